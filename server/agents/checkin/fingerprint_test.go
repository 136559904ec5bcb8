package checkin_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/agents/checkin"
)

func TestFingerprintIgnoresOnlyTheAckToken(t *testing.T) {
	const well = `{"status":"online","ack_token":"%s","components":[]}`
	first, token := checkin.FingerprintOf(fmt.Appendf(nil, well, "7"), "")
	if token != "7" {
		t.Errorf("the token is %q", token)
	}
	for _, c := range []struct {
		name, body, encoding string
		token                string
		same                 bool
	}{
		{"another token", fmt.Sprintf(well, "0123456789abcdef-123456789012345678"), "", "0123456789abcdef-123456789012345678", true},
		{"an empty token", fmt.Sprintf(well, ""), "", "", true},
		{"the field is missing", `{"status":"online","components":[]}`, "", "", true},
		{"a token that is too long", fmt.Sprintf(well, strings.Repeat("1", 65)), "", "", false},
		{"a token of another server", fmt.Sprintf(well, "7A=="), "", "", false},
		{"a text that ends in the token", `{"status":"online","ack_token":"7`, "", "", false},
		{"two tokens", `{"ack_token":"7",` + fmt.Sprintf(well, "7")[1:], "", "", false},
		{"a token in a text within", `{"message":"\"ack_token\":\"7\"",` + fmt.Sprintf(well, "7")[1:], "", "", false},
		{"more behind it", fmt.Sprintf(well, "7") + " ", "", "7", false},
		{"another status", `{"status":"degraded","ack_token":"7","components":[]}`, "", "7", false},
		{"the same bytes, packed", fmt.Sprintf(well, "7"), "gzip", "7", false},
	} {
		f, token := checkin.FingerprintOf([]byte(c.body), c.encoding)
		if token != c.token || (f == first) != c.same {
			t.Errorf("%s: token %q, same %t", c.name, token, f == first)
		}
	}
	last, token := checkin.FingerprintOf([]byte(`{"status":"online","components":[],"ack_token":"8"}`), "")
	if last != first || token != "8" {
		t.Errorf("where the field stands matters: token %q", token)
	}
}
