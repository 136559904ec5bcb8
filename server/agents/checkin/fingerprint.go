package checkin

import (
	"bytes"
	"crypto/sha256"
	"io"
)

// Fingerprint is a digest of a check-in's body without the ack token: after an action for
// the fleet every agent shows a new token, and nearly all change nothing else.
type Fingerprint [sha256.Size]byte

// FingerprintOf returns the fingerprint of a body and of the headers that its meaning depends
// on, and the ack token that was cut out, empty if none was found.
func FingerprintOf(body []byte, headers ...string) (f Fingerprint, token string) {
	before, token, after := cutToken(body)
	h := sha256.New()
	_, _ = h.Write(before)
	_, _ = h.Write(after)
	for _, header := range headers {
		_, _ = h.Write([]byte{0})
		_, _ = io.WriteString(h, header)
	}
	h.Sum(f[:0])
	return f, token
}

// maxToken is more than any ack token of a Muster has.
const maxToken = 64

// cutToken cuts the ack token out of a check-in, with its name and a comma, if it is
// written as encoders write it, and the name of the field occurs only there.
func cutToken(body []byte) (before []byte, token string, after []byte) {
	const name = "ack_token"
	at := bytes.Index(body, []byte(`"`+name+`":"`))
	if at < 0 || bytes.Count(body, []byte(name)) != 1 {
		return body, "", nil
	}
	before, after = body[:at], body[at+len(name)+len(`"":"`):]
	end := bytes.IndexByte(after, '"')
	if end < 0 || end > maxToken {
		return body, "", nil
	}
	for _, c := range after[:end] {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return body, "", nil
		}
	}
	token = string(after[:end])
	if after = after[end+1:]; bytes.HasPrefix(after, []byte(",")) {
		after = after[1:]
	} else {
		before = bytes.TrimSuffix(before, []byte(","))
	}
	return before, token, after
}
