package checkin

import (
	"strconv"
	"strings"
)

// Ack tokens are opaque to agents. A token is the store's generation, a dash, and the
// sequence number of the last delivered action. After a restore the store assigns numbers
// again that agents have acknowledged before, so a token of another generation says
// nothing about this store's actions. Nor does a plain number, the form of older versions.

// appendToken appends the ack token of a sequence number.
func appendToken(b []byte, generation string, seq int64) []byte {
	return strconv.AppendInt(append(append(b, generation...), '-'), seq, 10)
}

// parseToken returns the sequence number of an ack token, or 0 if the token is not of the
// generation.
func parseToken(token, generation string) int64 {
	rest, ok := strings.CutPrefix(token, generation)
	if !ok || len(rest) < 2 || rest[0] != '-' || rest[1] < '1' || rest[1] > '9' { // ParseInt accepts signs and zeros
		return 0
	}
	seq, err := strconv.ParseInt(rest[1:], 10, 64)
	if err != nil {
		return 0
	}
	return seq
}
