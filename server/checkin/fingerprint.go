package checkin

import (
	"bytes"
	"crypto/sha256"
)

// Fingerprint is a digest of a check-in's body without the ack token: after an action for
// the fleet every agent shows a new token, and nearly all change nothing else.
type Fingerprint [sha256.Size]byte

// FingerprintOf returns the fingerprint of a body in its content encoding, and the ack
// token that was cut out, 0 if none was found.
func FingerprintOf(body []byte, encoding string) (f Fingerprint, token int64) {
	before, token, after := cutToken(body)
	h := sha256.New()
	for _, part := range [][]byte{before, after, {0}, []byte(encoding)} {
		_, _ = h.Write(part)
	}
	h.Sum(f[:0])
	return f, token
}

// maxDigits fit an int64.
const maxDigits = 18

// cutToken cuts the ack token out of a check-in, with its name and a comma, if it is
// written as encoders write it, and the name of the field occurs only there.
func cutToken(body []byte) (before []byte, token int64, after []byte) {
	const name = "ack_token"
	at := bytes.Index(body, []byte(`"`+name+`":"`))
	if at < 0 || bytes.Count(body, []byte(name)) != 1 {
		return body, 0, nil
	}
	before, after = body[:at], body[at+len(name)+len(`"":"`):]
	end := bytes.IndexByte(after, '"')
	if end < 0 || end > maxDigits {
		return body, 0, nil
	}
	for _, c := range after[:end] {
		if c < '0' || c > '9' {
			return body, 0, nil
		}
		token = 10*token + int64(c-'0')
	}
	if after = after[end+1:]; bytes.HasPrefix(after, []byte(",")) {
		after = after[1:]
	} else {
		before = bytes.TrimSuffix(before, []byte(","))
	}
	return before, token, after
}
