package fleet

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/agentapi"
)

// drawText has what JSON spells in a way of its own.
func drawText(t *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "plain", "1.10.0", `a "quoted\ one`, "<&>", "äöü \u2028", "tab\t\x00\x7f", "bad \xff byte", `"`, `\`, "null"}),
		rapid.StringN(0, 12, -1),
	).Draw(t, label)
}

func drawTime(t *rapid.T, label string) time.Time {
	zone := rapid.SampledFrom([]*time.Location{time.UTC, time.FixedZone("", 5400), time.FixedZone("", -3600)}).Draw(t, label+" zone")
	return time.Unix(rapid.Int64Range(-1e10, 1e11).Draw(t, label), rapid.Int64Range(0, 999_999_999).Draw(t, label+" ns")).In(zone)
}

// drawMetadata is valid JSON, much of it what hosts say of themselves, some of it odd.
func drawMetadata(t *rapid.T, label string) json.RawMessage {
	known := map[string][]string{
		"": {"elastic", "host", "os"}, "elastic": {"agent"}, "agent": {"version", "snapshot", "upgradeable"},
		"host": {"hostname", "name", "architecture"}, "os": {"platform", "family", "type"},
	}
	odd := []string{`other`, ``, `ho\u0073t`, `\u017fo`, `ſnapshot`, `ELASTIC`, `Host`, `OS`, `Agent`, `HOSTNAME`, `Type`, `Version`, `agent`, `ä`}
	values := []string{`true`, `false`, `null`, `17`, `-1.5e3`, `[]`, `["a",{"b":"]}"}, 1]`, `"x"`, `"1.2.0"`, `"a\"b\\"`, `"\\"`, `"\ud800"`, `"<ä>"`, "\"bad \xff byte\""}
	one := func(from []string) string { return rapid.SampledFrom(from).Draw(t, label) }
	space := func() string { return one([]string{"", "", "", " ", "\n\t"}) }
	var object func(names []string) string
	object = func(names []string) string {
		var parts []string
		for range rapid.IntRange(0, 4).Draw(t, label) {
			name, value := one(names), one(values)
			if rapid.IntRange(0, 5).Draw(t, label) == 0 {
				name = one(odd)
			}
			if inner := known[strings.ToLower(name)]; name != "" && inner != nil && rapid.IntRange(0, 5).Draw(t, label) > 0 {
				value = object(inner)
			}
			parts = append(parts, space()+`"`+name+`"`+space()+":"+space()+value+space())
		}
		return "{" + strings.Join(parts, ",") + space() + "}"
	}
	if rapid.IntRange(0, 9).Draw(t, label) == 0 {
		return json.RawMessage(one(values))
	}
	return json.RawMessage(object(known[""]))
}

// drawAgent gives every field that a document has something.
func drawAgent(t *rapid.T) Agent {
	var a Agent
	v := reflect.ValueOf(&a).Elem()
	details := &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: "act", State: agentapi.UpgradeDownloading, Metadata: agentapi.UpgradeMetadata{DownloadPercent: 0.5, ErrorMsg: "<no> \"space\""}}
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if tag := v.Type().Field(i).Tag.Get("json"); tag == "" || tag == "-" || rapid.IntRange(0, 3).Draw(t, name+" empty") == 0 {
			continue
		}
		switch p := v.Field(i).Addr().Interface().(type) {
		case *string:
			*p = drawText(t, name)
		case *UpgradeStatus:
			*p = UpgradeStatus(drawText(t, name))
		case *bool:
			*p = rapid.Bool().Draw(t, name)
		case *int64:
			*p = rapid.Int64().Draw(t, name)
		case *time.Time:
			*p = drawTime(t, name)
		case **time.Time:
			at := drawTime(t, name)
			*p = &at
		case *json.RawMessage:
			*p = drawMetadata(t, name)
		case *[]string:
			*p = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return drawText(t, name) }), 0, 3).Draw(t, name)
		case **agentapi.UpgradeDetails:
			*p = details
		case **UndoneUpgrade:
			*p = &UndoneUpgrade{ActionID: "before", To: "1.0.0", StartedAt: &now, Details: details}
		case *agentapi.CheckinUpgrade:
			p.Rollbacks = []agentapi.Rollback{{Version: "1.0.0", ValidUntil: now}}
		case *Duration:
			*p = Duration(rapid.Int64().Draw(t, name))
		case **Watch:
			*p = &Watch{Beacon: agentapi.Beacon{ActionID: "act"}, ReceivedAt: now}
		default:
			t.Fatalf("the test does not know the type of %s", name)
		}
	}
	return a
}

// sameJSON compares texts of JSON as what they mean. What is no UTF-8 is what readers
// see in its place.
func sameJSON(t *rapid.T, what, got string, want []byte) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%s: %v: %s", what, err, got)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Fatalf("%s is\n%s\nwant\n%s", what, got, want)
	}
}

func encoded(a *Agent) (string, error) {
	doc, err := a.Encode([]byte("before "))
	return strings.TrimPrefix(string(doc), "before "), err
}

func remembersNothing(a Agent) Agent {
	a.read = nil
	return a
}

// The short ways of reading and writing documents lead where encoding/json does.
func TestDocumentsAreThoseOfEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawAgent(t)
		plain, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := encoded(&want)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, "the document", doc, plain)
		if !json.Valid([]byte(doc)) || strings.ToValidUTF8(doc, "") != doc {
			t.Fatalf("the document is not valid: %q", doc)
		}
		for what, text := range map[string]string{"its own": doc, "that of json.Marshal": strings.ToValidUTF8(string(plain), "\uFFFD")} {
			var slow Agent
			if err := json.Unmarshal([]byte(text), &slow); err != nil {
				t.Fatal(err)
			}
			slow.Revision = 7
			quick, err := DecodeAgent(text, 7)
			if err != nil {
				t.Fatal(err)
			}
			if quick.read == nil {
				t.Fatalf("%s document is read in the long way: %s", what, text)
			}
			if !reflect.DeepEqual(remembersNothing(quick), slow) {
				t.Fatalf("%s document is read as\n%+v\nwant\n%+v\nof\n%s", what, quick, slow, text)
			}
			if got, want := quick.Host(), slow.Host(); got != want {
				t.Fatalf("the host of %s is\n%+v\nwant\n%+v", quick.LocalMetadata, got, want)
			}
			// Changed, it is written as one that was never read.
			other := drawAgent(t)
			for i := range reflect.TypeFor[Agent]().NumField() {
				if rapid.IntRange(0, 4).Draw(t, "changes") == 0 && reflect.TypeFor[Agent]().Field(i).IsExported() {
					reflect.ValueOf(&quick).Elem().Field(i).Set(reflect.ValueOf(other).Field(i))
				}
			}
			again, err := encoded(&quick)
			if err != nil {
				t.Fatal(err)
			}
			if plain, err = json.Marshal(quick); err != nil {
				t.Fatal(err)
			}
			sameJSON(t, "the changed document", again, plain)
			fresh := remembersNothing(quick)
			if got, want := quick.Host(), fresh.Host(); got != want {
				t.Fatalf("the host of changed %s is\n%+v\nwant\n%+v", quick.LocalMetadata, got, want)
			}
		}
	})
}

// Other people's agents send what they like.
func TestOddMetadataIsReadAsEncodingJSONDoes(t *testing.T) {
	check := func(metadata string) error {
		var want HostMetadata
		_ = json.Unmarshal([]byte(metadata), &want)
		doc, err := encoded(&Agent{LocalMetadata: json.RawMessage(metadata)})
		if err != nil {
			return err
		}
		a, err := DecodeAgent(doc, 1)
		if err != nil {
			return err
		}
		if got := a.Host(); a.read == nil || got != want {
			return fmt.Errorf("the host of %s is\n%+v\nwant\n%+v", metadata, got, want)
		}
		return nil
	}
	for _, metadata := range []string{
		`{"host":{"HOSTNAME":"a"}}`, `{"host":{"hostname":"a","Hostname":"b"}}`, `{"Host":{"name":"a"},"host":{"architecture":"b"}}`,
		`{"host":{"name":"a"},"host":{"architecture":"b"}}`, `{"host":{"name":"a","name":7}}`, `{"host":{"name":"a","name":null,"name":{}}}`,
		`{"elastic":{"agent":{"snapshot":true,"snapshot":17,"upgradeable":true,"upgradeable":"no"}}}`, `{"elastic":{"AGENT":{"version":"1"}}}`,
		`{"elastic":{"agent":{"Version":"1"}}}`, `{"os":{"TYPE":"linux"}}`, `{"o\u017f":{"type":"linux"}}`, `{"oſ":{"type":"linux"}}`, `{"OS":{"type":"linux"}}`,
		`{"o\u0073":{"type":"linux"}}`, `{"os":{"type":"li\u006eux","family":"a\\"}}`, `{"os":["type"]}`, `{"os":"type","host":7}`, `{}`, `null`, `[]`, `"os"`, `7`,
		`{"other":{"os":{"type":"x"}},"os":{"type":"y","more":[{"}":"]"}]}}`,
	} {
		if err := check(metadata); err != nil {
			t.Error(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			// Readers see the same in place of what is no UTF-8.
			if err := check(strings.ToValidUTF8(string(drawMetadata(t, "metadata")), "\uFFFD")); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestMetadataOfTheSameLengthIsWritten(t *testing.T) {
	a, err := DecodeAgent(`{"id":"a","components":["x"]}`, 1)
	if err != nil {
		t.Fatal(err)
	}
	a.Components[2] = 'y'
	if doc, err := encoded(&a); err != nil || !strings.Contains(doc, `"components":["y"]`) {
		t.Errorf("the document is %s: %v", doc, err)
	}
	a.Components[2] = '"'
	if doc, err := encoded(&a); err == nil {
		t.Errorf("what is no JSON is written: %s", doc)
	}
}

func TestADocumentThatIsCutOffIsRefused(t *testing.T) {
	a := valued()
	doc, err := encoded(&a)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(doc) {
		if got, err := DecodeAgent(doc[:n], 1); err == nil {
			t.Fatalf("the first %d bytes of %s are read as %+v", n, doc, got)
		}
	}
	for _, doc := range []string{doc + "x", doc + "}", `{"active":1}`, `{"enrolled_at":"soon"}`, `{"id":"a" "type":"b"}`, `{"tags":}`, `[]`, `{"id":"a",}`} {
		if got, err := DecodeAgent(doc, 1); err == nil {
			t.Errorf("%s is read as %+v", doc, got)
		}
	}
}

func TestAnyTextIsReadAsEncodingJSONDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := []string{"{", "}", "[", "]", ",", ":", `"`, `\`, " ", `"id"`, `"Id"`, `"tags"`, `"active"`, "true", "null", "1", `"a"`, `"upgraded_at"`, `"2026-03-03T10:00:00Z"`, `["x"]`, "ä", "\xff"}
		doc := "{" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 12).Draw(t, "parts"), "")
		var want Agent
		wantErr := json.Unmarshal([]byte(doc), &want)
		got, err := DecodeAgent(doc, 0)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%s: error %v, want %v", doc, err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(remembersNothing(got), want) {
			t.Fatalf("%s is read as\n%+v\nwant\n%+v", doc, got, want)
		}
	})
}

func TestMetadataThatIsNotJSONIsNotWritten(t *testing.T) {
	for _, raw := range []string{"{", `{"a":}`, "\xff", "nonsense"} {
		a := Agent{ID: "a", Components: json.RawMessage(raw)}
		if doc, err := encoded(&a); err == nil {
			t.Errorf("%q is written as %s", raw, doc)
		}
	}
}

func TestAnAgentKnowsInWhatItDiffers(t *testing.T) {
	whole := valued()
	whole.UserMetadata = json.RawMessage(`{"rack":4}`)
	doc, err := encoded(&whole)
	if err != nil {
		t.Fatal(err)
	}
	type differs struct{ standing, upgrade bool }
	all := differs{true, true}
	later := now.Add(time.Hour)
	for name, tc := range map[string]struct {
		change func(*Agent)
		want   differs
	}{
		"nothing":                  {func(*Agent) {}, differs{}},
		"what it says":             {func(a *Agent) { a.Components = json.RawMessage(`[]`); a.Last.Status = "error" }, differs{}},
		"a phase":                  {func(a *Agent) { a.UpgradeDetails, a.UpgradeStatus = nil, UpgradeFailed }, differs{}},
		"the same, said anew":      {func(a *Agent) { a.LocalMetadata = slices.Clone(a.LocalMetadata); a.Tags = slices.Clone(a.Tags) }, differs{}},
		"an upgrade":               {func(a *Agent) { a.BeginUpgrade("act", "2.0.0", later) }, differs{upgrade: true}},
		"the time of one, in it":   {func(a *Agent) { *a.UpgradedAt = later }, differs{upgrade: true}},
		"its id":                   {func(a *Agent) { a.ID = "b" }, differs{standing: true}},
		"its policy":               {func(a *Agent) { a.PolicyID = "b" }, differs{standing: true}},
		"its version":              {func(a *Agent) { a.Version = "b" }, differs{standing: true}},
		"whether it is active":     {func(a *Agent) { a.Active = false }, differs{standing: true}},
		"whether it leaves":        {func(a *Agent) { a.UnenrollmentStartedAt = nil }, differs{standing: true}},
		"why it left":              {func(a *Agent) { a.AuditUnenrolledReason = "" }, differs{standing: true}},
		"when it enrolled":         {func(a *Agent) { a.EnrolledAt = later }, differs{standing: true}},
		"when it was well":         {func(a *Agent) { a.HealthySince = &later }, differs{standing: true}},
		"since when the version":   {func(a *Agent) { a.VersionSince = &later }, differs{standing: true}},
		"a tag, in the list":       {func(a *Agent) { a.Tags[0] = "other" }, differs{standing: true}},
		"a tag more":               {func(a *Agent) { a.Tags = append(a.Tags, "other") }, differs{standing: true}},
		"its host":                 {func(a *Agent) { a.LocalMetadata = json.RawMessage(`{}`) }, differs{standing: true}},
		"a byte of it, in it":      {func(a *Agent) { a.LocalMetadata[1] = ' ' }, differs{standing: true}},
		"what people say of it":    {func(a *Agent) { a.UserMetadata = nil }, differs{standing: true}},
		"both":                     {func(a *Agent) { a.PolicyID = "b"; a.UpgradeStartedAt = &later }, all},
		"the revision":             {func(a *Agent) { a.Revision++ }, all},
		"one that is forgotten":    {func(a *Agent) { a.Forget() }, all},
		"one that was never read":  {func(a *Agent) { *a = whole }, all},
		"one read in the long way": {func(a *Agent) { *a, err = DecodeAgent(`{"ID":"a"}`, 3) }, all},
	} {
		a, readErr := DecodeAgent(doc, 3)
		if readErr != nil {
			t.Fatal(readErr)
		}
		copied := a
		tc.change(&a)
		if standing, upgrade := a.Differs(); (differs{standing, upgrade}) != tc.want {
			t.Errorf("%s: it differs in %+v, want %+v", name, differs{standing, upgrade}, tc.want)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// What is remembered has nothing of the Agent's.
		if host := copied.read.host; host.Host.Hostname != "web-01" {
			t.Errorf("%s: the host that was read is %+v", name, host)
		}
	}
}

// A name that is kept must not keep the kilobytes it was read from: an action has
// those of its agents, for as long as it is remembered.
func TestWhatIsKeptOfAnAgentIsSmall(t *testing.T) {
	a := valued()
	a.Components = json.RawMessage(`"` + strings.Repeat("x", 1<<16) + `"`)
	doc, err := encoded(&a)
	if err != nil {
		t.Fatal(err)
	}
	const agents = 500
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	kept := make([]string, 0, 4*agents)
	before := heap()
	for range agents {
		a, err := DecodeAgent(strings.Clone(doc), 1)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, a.ID, a.Hostname(), string(a.UpgradeStatus), a.Tags[0])
	}
	if used := int64(heap()) - int64(before); used > agents*int64(len(doc))/4 { //nolint:gosec // no heap is that large
		t.Errorf("%d texts of %d agents keep %d bytes", len(kept), agents, used)
	}
	runtime.KeepAlive(kept)
}

func TestEventsAreThoseOfEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Event{
			At: drawTime(t, "at"), Type: drawText(t, "type"), Subject: drawText(t, "subject"), Actor: drawText(t, "actor"),
			Seq: rapid.SampledFrom([]int64{0, 0, 7}).Draw(t, "seq"),
		}
		if rapid.Bool().Draw(t, "with data") {
			e.Data = drawMetadata(t, "data")
		}
		written, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		parts := []string{"{", "}", ",", ":", `"type"`, `"Type"`, `"at"`, `"seq"`, "null", "1", `"a"`, `"2026-03-03T10:00:00Z"`, `["x"]`, "ä"}
		odd := "{" + strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 9).Draw(t, "parts"), "")
		for _, doc := range []string{string(written), " " + string(written) + "\n", odd} {
			var want Event
			wantErr := json.Unmarshal([]byte(doc), &want)
			if got, err := DecodeEvent(doc); (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("%s is read as\n%+v, %v; want\n%+v, %v", doc, got, err, want, wantErr)
			}
		}
		for n := range written {
			if got, err := DecodeEvent(string(written[:n])); err == nil {
				t.Fatalf("the first %d bytes of %s are read as %+v", n, written, got)
			}
		}
	})
}
