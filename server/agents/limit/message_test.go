package limit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

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
		{CheckinMessage, `{"message":` + quoted(text+1) + `}`, ""},
		{CheckinMessage, `{"components":[{"message":` + quoted(components+1) + `}]}`, ""},
		{CheckinMessage, `{"components":[{"payload":` + quoted(components+1) + `}]}`, "body.components]: has more than 524288 bytes"},
		{CheckinMessage, `{"components":[` + strings.Repeat(list(9_000, "0")+",", 6) + `0]}`, "body]: has more than 50000 values"},
		{CheckinMessage, `{"components":[{"units":` + list(maxMembers+1, "0") + `}]}`, "body.components[0].units]: has more than 10000 elements"},
		{CheckinMessage, `{"components":[{` + members(maxMembers+1) + `}]}`, "body.components[0]]: has more than 10000 fields"},
		{CheckinMessage, `{"staged_versions":` + list(300, `"1.0.0"`) + `}`, "body.staged_versions"},
		{CheckinMessage, `{"status":null,"components":null}`, ""},
		{BeaconMessage, `{"reason":{"code":` + quoted(word+1) + `}}`, "body.reason.code"},
		{AckMessage, `{"events":[{},{"action_id":` + quoted(word+1) + `}]}`, "body.events[1].action_id"},
		{AckMessage, `{"events":` + list(1_001, "{}") + `}`, "body.events]: has more than 1000 elements"},

		// The decoder has the better error.
		{CheckinMessage, ``, ""},
		{CheckinMessage, `{"status":`, ""},
		{CheckinMessage, `status=online`, ""},
	} {
		_, _, err := c.m.Check([]byte(c.body))
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

// pieces reads a few bytes at a time, as a reader that unpacks does.
type pieces struct {
	io.Reader
	size int
}

func (r *pieces) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), r.size)]) }

// A refusal would cut the host off because of a long error, so its text is cut.
func TestLongTextsOfMessagesAreCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é\n", 100_000)
	fill := func(m Message, path string) string {
		body := `"` + strings.ReplaceAll(long, "\n", `\n`) + `"`
		for _, name := range slices.Backward(strings.Split(path, ".")) {
			if name, list := strings.CutSuffix(name, "[]"); list {
				body = `{"` + name + `":[{},` + body + `,{}]}`
			} else {
				body = `{"x":1,"` + name + `":` + body + `, "y":"z" }`
			}
		}
		return body
	}
	for _, m := range Messages {
		m.Body = 1 << 20 // so that the text is what is too long
		for _, f := range m.Fields() {
			if !f.Cut {
				continue
			}
			path := f.Path
			for name, check := range map[string]func(string) ([]byte, int64, error){
				"in memory": func(body string) ([]byte, int64, error) { return m.Check([]byte(body)) },
				"unpacked":  func(body string) ([]byte, int64, error) { return m.Read(&pieces{strings.NewReader(body), 1021}) },
			} {
				body, cost, err := check(fill(m, path))
				var v any
				if err != nil || json.Unmarshal(body, &v) != nil || len(body) > 2*text || cost < int64(len(body)) {
					t.Errorf("%s %s, %s: %d bytes are left, which cost %d, %v", m.Name, path, name, len(body), cost, err)
					continue
				}
				want := strings.ReplaceAll(fill(m, path), strings.ReplaceAll(long, "\n", `\n`), `TEXT`)
				got := regexp.MustCompile(`"(é\\n)+é?… \(300000 bytes\)"`).ReplaceAllString(string(body), `"TEXT"`)
				if got != want {
					t.Errorf("%s %s, %s: left is %.200s, want %s", m.Name, path, name, got, want)
				}
			}
		}
	}
}

// A body that is being unpacked is read up to what is wrong with it, and no further.
func TestUnpackingEndsAtTheBound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		most int64
		want string
	}{
		"a bomb":        {`{"x":"` + strings.Repeat("x", 50<<20), 1<<20 + 1, "body]: has more than 1048576 bytes when unpacked"},
		"spaces":        {strings.Repeat(" ", 50<<20), 1<<20 + 1, "body]: has more than 1048576 bytes when unpacked"},
		"after the end": {`{}` + strings.Repeat(" ", 50<<20), 1<<20 + 1, "body]: has more than 1048576 bytes when unpacked"},
		"deep":          {strings.Repeat("[", 50<<20), 64 << 10, "nested more than 64 deep"},
		"many":          {`[` + strings.Repeat("0,", 25<<20), 64 << 10, "body]: has more than 10000 elements"},
		"metadata":      {`{"local_metadata":{` + strings.Repeat(`"a":"b",`, 5<<20), 128 << 10, "body.local_metadata]: has more than"},
	} {
		r := strings.NewReader(c.body)
		_, _, err := CheckinMessage.Read(r)
		if read := r.Size() - int64(r.Len()); fleet.KindOf(err) != fleet.Invalid || !strings.Contains(fmt.Sprint(err), c.want) || read > c.most {
			t.Errorf("%s: %d bytes were read, at most %d should be; the error is %v, want %s", name, read, c.most, err, c.want)
		}
	}
	broken := errors.New("broken")
	if _, _, err := CheckinMessage.Read(io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("the reader's error is %v", err)
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
		_, _, err := CheckinMessage.Check([]byte(body))
		if depth > MaxDepth && err == nil {
			t.Fatalf("%s is accepted", body)
		}
		var v any
		if err == nil && json.Unmarshal([]byte(body), &v) != nil {
			t.Fatalf("%s is accepted, and cannot be decoded", body)
		}
	})
}
