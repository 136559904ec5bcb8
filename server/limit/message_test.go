package limit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

func nested(depth int, open, end string) string {
	return strings.Repeat(open, depth) + strings.Repeat(end, depth)
}

func TestMessageBeyondItsBoundsNamesTheField(t *testing.T) {
	t.Parallel()
	quoted := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	list := func(n int, of string) string { return "[" + strings.Join(slices.Repeat([]string{of}, n), ",") + "]" }
	long := strings.Repeat("n", maxName+1)
	for _, c := range []struct {
		m    Message
		body string
		want string // empty: it is accepted
	}{
		{EnrollMessage, `{"metadata":{"local":` + nested(MaxDepth-2, "[", "]") + `}}`, ""},
		{EnrollMessage, `{"metadata":{"local":` + nested(MaxDepth-1, "[", "]") + `}}`, "body.metadata.local[0][0]"},
		{EnrollMessage, `{"metadata":{"user_provided":` + nested(1001, `{"a":`, "}") + `}}`, "body.metadata.user_provided.a.a"},
		{CheckinMessage, `{"components":[{"units":` + nested(100_000, "[", "]") + `}]}`, "body.components[0].units[0]"},
		{CheckinMessage, nested(1001, "[", "]"), "body[0][0]"},
		{AckMessage, `{"events":[{"data":` + nested(1001, `{"a":`, "}") + `}]}`, "body.events[0].data.a"},
		{BeaconMessage, `{"x":` + nested(1001, `{"a":`, "}") + `}`, "body.x.a"},
		{UploadBeginMessage, `{"file":` + nested(1001, `{"a":`, "}") + `}`, "body.file.a"},

		{EnrollMessage, `{"metadata":{"local":{"host":{"hostname":` + quoted(MaxHostname) + `}}}}`, ""},
		{EnrollMessage, `{"metadata":{"local":{"host":{"hostname":"` + strings.Repeat("é", MaxHostname) + `"}}}}`, ""},
		{EnrollMessage, `{"metadata":{"local":{"host":{"hostname":"` + strings.Repeat(`\u00e9`, MaxHostname) + `"}}}}`, ""},
		{EnrollMessage, `{"metadata":{"local":{"host":{"hostname":` + quoted(MaxHostname+1) + `}}}}`, "body.metadata.local.host.hostname]: has 254 characters"},
		{EnrollMessage, `{"metadata":{"local":{"host.hostname":` + quoted(MaxHostname+1) + `}}}`, "body.metadata.local.host.hostname"},
		{CheckinMessage, `{"local_metadata":{"host":{"name":` + quoted(MaxHostname+1) + `}}}`, "body.local_metadata.host.name"},
		{EnrollMessage, `{"metadata":{"tags":` + list(maxTags, `"a"`) + `}}`, ""},
		{EnrollMessage, `{"metadata":{"tags":` + list(maxTags+1, `"a"`) + `}}`, "body.metadata.tags]: has more than 100 elements"},
		{EnrollMessage, `{"metadata":{"tags":["a",` + quoted(2000) + `]}}`, "body.metadata.tags[1]"},
		{EnrollMessage, `{"metadata":{"local":{"a":` + quoted(document) + `}}}`, "body.metadata.local]: has more than"},
		{EnrollMessage, `{"enrollment_id":` + quoted(word+1) + `}`, "body.enrollment_id"},
		{EnrollMessage, `{"metadata":{"local":{"` + long[1:] + `":1}}}`, ""},
		{EnrollMessage, `{"metadata":{"local":{"` + long + `":1}}}`, "body.metadata.local"},
		{EnrollMessage, `{"metadata":{"local":{"a":1e999}}}`, "body.metadata.local.a]: is 1e999"},
		{EnrollMessage, `{"metadata":{"local":{"a":-1e-999}}}`, ""},
		{EnrollMessage, `{"metadata":{"local":{"a":` + strings.Repeat("1", 100) + `}}}`, "body.metadata.local.a"},
		{CheckinMessage, `{"message":` + quoted(text) + `}`, ""},
		{CheckinMessage, `{"message":` + quoted(text+1) + `}`, "body.message]: has 65537 bytes"},
		{CheckinMessage, `{"components":[{"message":` + quoted(text+1) + `}]}`, "body.components[0].message"},
		{CheckinMessage, `{"components":[{"units":` + list(maxMembers+1, "0") + `}]}`, "body.components[0].units]: has more than 10000 elements"},
		{CheckinMessage, `{"local_metadata":{` + members(maxMembers+1) + `}}`, "body.local_metadata]: has more than 10000 fields"},
		{CheckinMessage, `{"staged_versions":` + list(300, `"1.0.0"`) + `}`, "body.staged_versions"},
		{CheckinMessage, `{"status":null,"components":null}`, ""},
		{BeaconMessage, `{"reason":{"text":` + quoted(beaconText+1) + `}}`, "body.reason.text"},
		{AckMessage, `{"events":[{},{"error":` + quoted(text+1) + `}]}`, "body.events[1].error"},

		// The decoder has the better error.
		{CheckinMessage, ``, ""},
		{CheckinMessage, `{"status":`, ""},
		{CheckinMessage, `status=online`, ""},
	} {
		err := c.m.Check([]byte(c.body))
		shown := c.body[:min(len(c.body), 60)]
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s is refused: %v", shown, err)
		case c.want != "" && (fleet.KindOf(err) != fleet.Invalid || !strings.Contains(err.Error(), "[request "+c.want)):
			t.Errorf("%s: %v, want an error of %s", shown, err, c.want)
		case err != nil && len(err.Error()) > 2*maxPath:
			t.Errorf("%s: the error has %d bytes", shown, len(err.Error()))
		}
	}
}

func members(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`"m%d":0`, i)
	}
	return strings.Join(out, ",")
}

// Whatever is accepted can be decoded, and is no deeper than MaxDepth.
func TestAcceptedMessageCanBeRead(t *testing.T) {
	t.Parallel()
	leaf := rapid.SampledFrom([]string{"1", "1e999", "-0", `"x"`, `"\ud800"`, "null", "true", `"` + strings.Repeat("h", 300) + `"`})
	rapid.Check(t, func(t *rapid.T) {
		body, depth := leaf.Draw(t, "leaf"), 0
		for range rapid.IntRange(0, 2*MaxDepth).Draw(t, "depth") {
			depth++
			if rapid.Bool().Draw(t, "list") {
				body = "[" + body + "]"
			} else {
				body = `{"` + rapid.SampledFrom([]string{"local_metadata", "host", "hostname", "a.b", "components", "x"}).Draw(t, "name") + `":` + body + "}"
			}
		}
		err := CheckinMessage.Check([]byte(body))
		if depth > MaxDepth && err == nil {
			t.Fatalf("%s is accepted", body)
		}
		var v any
		if err == nil && json.Unmarshal([]byte(body), &v) != nil {
			t.Fatalf("%s is accepted, and cannot be decoded", body)
		}
	})
}
