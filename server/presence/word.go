package presence

import (
	"bytes"
	"crypto/sha256"
)

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// DigestOf makes one.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// Word is a check-in as it came: from whom, with which proof, saying what.
type Word struct {
	AgentID string
	// Proof is of the credential, Said of the body, but for the ack token in it.
	Proof, Said Digest
	// Token is the ack token; 0: there is none, or none that could be told apart.
	Token int64
}

// Says takes the body of the check-in in, as it came in its content encoding.
//
// An agent that was given an action shows its token from then on, and says nothing
// else that is new. So the field is cut out of the text: what is left is the same as
// before, to the byte.
func (w *Word) Says(body []byte, encoding string) {
	var before, behind []byte
	before, w.Token, behind = cutToken(body)
	h := sha256.New()
	for _, part := range [][]byte{before, behind, {0}, []byte(encoding)} {
		_, _ = h.Write(part)
	}
	h.Sum(w.Said[:0])
}

// maxDigits is what an int64 surely holds.
const maxDigits = 18

// cutToken cuts the ack token out of a check-in, with its name and a comma, if it is
// written as encoders write it, and the name of the field is nowhere else.
func cutToken(body []byte) (before []byte, token int64, behind []byte) {
	const name = "ack_token"
	at := bytes.Index(body, []byte(`"`+name+`":"`))
	if at < 0 || bytes.Count(body, []byte(name)) != 1 {
		return body, 0, nil
	}
	before, behind = body[:at], body[at+len(name)+len(`"":"`):]
	end := bytes.IndexByte(behind, '"')
	if end < 0 || end > maxDigits {
		return body, 0, nil
	}
	for _, c := range behind[:end] {
		if c < '0' || c > '9' {
			return body, 0, nil
		}
		token = 10*token + int64(c-'0')
	}
	if behind = behind[end+1:]; bytes.HasPrefix(behind, []byte(",")) {
		behind = behind[1:]
	} else {
		before = bytes.TrimSuffix(before, []byte(","))
	}
	return before, token, behind
}
