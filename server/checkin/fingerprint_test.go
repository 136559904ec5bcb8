package checkin_test

import (
	"fmt"
	"testing"

	"github.com/muster-fleet/muster/server/checkin"
)

func TestFingerprintIgnoresOnlyTheAckToken(t *testing.T) {
	const well = `{"status":"online","ack_token":"%s","components":[]}`
	first, token := checkin.FingerprintOf(fmt.Appendf(nil, well, "7"), "")
	if token != 7 {
		t.Errorf("the token is %d", token)
	}
	for _, c := range []struct {
		name, body, encoding string
		token                int64
		same                 bool
	}{
		{"another token", fmt.Sprintf(well, "123456789012345678"), "", 123456789012345678, true},
		{"an empty token", fmt.Sprintf(well, ""), "", 0, true},
		{"the field is missing", `{"status":"online","components":[]}`, "", 0, true},
		{"a token that is too long", fmt.Sprintf(well, "1234567890123456789"), "", 0, false},
		{"a token that is no number", fmt.Sprintf(well, "7a"), "", 0, false},
		{"a text that ends in the token", `{"status":"online","ack_token":"7`, "", 0, false},
		{"two tokens", `{"ack_token":"7",` + fmt.Sprintf(well, "7")[1:], "", 0, false},
		{"a token in a text within", `{"message":"\"ack_token\":\"7\"",` + fmt.Sprintf(well, "7")[1:], "", 0, false},
		{"more behind it", fmt.Sprintf(well, "7") + " ", "", 7, false},
		{"another status", `{"status":"degraded","ack_token":"7","components":[]}`, "", 7, false},
		{"the same bytes, packed", fmt.Sprintf(well, "7"), "gzip", 7, false},
	} {
		f, token := checkin.FingerprintOf([]byte(c.body), c.encoding)
		if token != c.token || (f == first) != c.same {
			t.Errorf("%s: token %d, same %t", c.name, token, f == first)
		}
	}
	last, token := checkin.FingerprintOf([]byte(`{"status":"online","components":[],"ack_token":"8"}`), "")
	if last != first || token != 8 {
		t.Errorf("where the field stands matters: token %d", token)
	}
}
