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
	"unicode/utf8"

	jsonv1 "github.com/go-json-experiment/json/v1"
	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// drawText returns strings that JSON escapes in different ways.
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

// drawMetadata returns valid JSON, mostly what hosts report, with some oddities.
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

// drawAgent draws a value for every field of the document.
func drawAgent(t *rapid.T) Agent {
	var a Agent
	v := reflect.ValueOf(&a).Elem()
	details := &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: "act", State: agentapi.UpgradeDownloading, Metadata: agentapi.UpgradeMetadata{DownloadPercent: 0.5, ErrorMsg: "<no> \"space\""}}
	for _, f := range reflect.VisibleFields(v.Type()) {
		name := f.Name
		if tag := f.Tag.Get("json"); tag == "" || tag == "-" || rapid.IntRange(0, 3).Draw(t, name+" empty") == 0 {
			continue
		}
		switch p := v.FieldByIndex(f.Index).Addr().Interface().(type) {
		case **RolloutRef:
			*p = &RolloutRef{ID: "r", Name: drawText(t, name)}
		case *[]Phase:
			*p = []Phase{{State: ProgressSent, At: now, Text: drawText(t, name)}}
		case *string:
			*p = drawText(t, name)
		case *UpgradeStatus:
			*p = UpgradeStatus(drawText(t, name))
		case *bool:
			*p = rapid.Bool().Draw(t, name)
		case *int64:
			*p = rapid.Int64().Draw(t, name)
		case **int64:
			n := rapid.Int64().Draw(t, name)
			*p = &n
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
		case *[]FailedVersion:
			*p = []FailedVersion{{Version: "1.1.0", ActionID: "act", Reason: drawText(t, name), At: now}}
		case *map[string]ComponentUpgrade:
			u := ComponentUpgrade{Upgrade: Upgrade{UpgradeActionID: "act", UpgradeTo: "2.5.0", UpgradeStartedAt: &now, UpgradeStatus: UpgradeStarted, UpgradeDetails: details}}
			*p = map[string]ComponentUpgrade{"web": u, drawText(t, name): {Upgrade: Upgrade{UpgradeActionID: drawText(t, name+" action"), UpgradeTo: "2.5.0"}}}
		case **UndoneUpgrade:
			*p = &UndoneUpgrade{ActionID: "before", To: "1.0.0", StartedAt: &now, Details: details}
		case *agentapi.CheckinUpgrade:
			p.Rollbacks = []agentapi.Rollback{{Version: "1.0.0", ValidUntil: now}}
		case *Duration:
			*p = Duration(rapid.Int64().Draw(t, name))
		case *[]DiagnosticsRequest:
			*p = []DiagnosticsRequest{{ActionID: "act", At: now, Until: now}}
		case *[]Bearer:
			*p = []Bearer{{MachineID: drawText(t, name), ProcessID: "process", Hostname: drawText(t, name+" host"), Since: now, Again: now}}
		case **Watch:
			*p = &Watch{Beacon: agentapi.Beacon{ActionID: "act"}, ReceivedAt: now}
		default:
			t.Fatalf("the test does not know the type of %s", name)
		}
	}
	return a
}

// sameJSON compares the meaning of two JSON texts. Invalid UTF-8 counts as U+FFFD.
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
	doc, err := a.Encode()
	return string(doc), err
}

func withoutRead(a Agent) Agent {
	a.read = nil
	return a
}

// Other tools read the documents by field name, so the library in use must agree with
// encoding/json.
func TestAgentDocumentEncodesAsEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawAgent(t)
		standard, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := encoded(&want)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, "the document", doc, standard)
		if !json.Valid([]byte(doc)) || !utf8.ValidString(doc) {
			t.Fatalf("the document is not valid: %q", doc)
		}
		var slow Agent
		if err := json.Unmarshal([]byte(doc), &slow); err != nil {
			t.Fatal(err)
		}
		slow.Revision = 7
		got, err := DecodeAgent(doc, 7)
		if err != nil {
			t.Fatal(err)
		}
		if facts, upgrade := got.Differs(); facts || upgrade {
			t.Fatalf("an agent that was just read differs from its document %s", doc)
		}
		if !reflect.DeepEqual(withoutRead(got), slow) {
			t.Fatalf("the document is read as\n%+v\nwant\n%+v\nof\n%s", got, slow, doc)
		}
	})
}

// DecodeAgent reads a document as stores do.
func DecodeAgent(doc string, revision int64) (Agent, error) {
	var a Agent
	err := jsonv1.Unmarshal([]byte(doc), &a)
	a.Revision = revision
	if err != nil {
		return a, err
	}
	return a.AsRead(), nil
}

// Agents of other makers send what they like.
func TestUnusualMetadataDecodesAsEncodingJSON(t *testing.T) {
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
		if got := a.Host(); got != want {
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
			// Encode replaces invalid UTF-8 in the same way.
			if err := check(strings.ToValidUTF8(string(drawMetadata(t, "metadata")), "\uFFFD")); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestTruncatedAgentDocumentIsRefused(t *testing.T) {
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

func TestInvalidMetadataIsNotEncoded(t *testing.T) {
	for _, raw := range []string{"{", `{"a":}`, "\xff", "nonsense"} {
		a := Agent{ID: "a", Components: json.RawMessage(raw)}
		if doc, err := encoded(&a); err == nil {
			t.Errorf("%q is written as %s", raw, doc)
		}
	}
}

func TestAgentDiffersFromItsDocument(t *testing.T) {
	whole := valued()
	whole.UserMetadata = json.RawMessage(`{"rack":4}`)
	doc, err := encoded(&whole)
	if err != nil {
		t.Fatal(err)
	}
	type differs struct{ facts, upgrade bool }
	all := differs{true, true}
	later := now.Add(time.Hour)
	for name, tc := range map[string]struct {
		change func(*Agent)
		want   differs
	}{
		"nothing":              {func(*Agent) {}, differs{}},
		"last check-in":        {func(a *Agent) { a.Components = json.RawMessage(`[]`); a.Last.Status = "error" }, differs{}},
		"a phase":              {func(a *Agent) { a.UpgradeDetails, a.UpgradeStatus = nil, UpgradeFailed }, differs{upgrade: true}},
		"equal copies":         {func(a *Agent) { a.LocalMetadata = slices.Clone(a.LocalMetadata); a.Tags = slices.Clone(a.Tags) }, differs{}},
		"an upgrade":           {func(a *Agent) { a.BeginUpgrade("act", "2.0.0", later) }, differs{upgrade: true}},
		"its id":               {func(a *Agent) { a.ID = "b" }, differs{facts: true}},
		"its policy":           {func(a *Agent) { a.PolicyID = "b" }, differs{facts: true}},
		"its version":          {func(a *Agent) { a.Version = "b" }, differs{facts: true}},
		"whether it is active": {func(a *Agent) { a.Active = false }, differs{facts: true}},
		"unenrolling":          {func(a *Agent) { a.UnenrollmentStartedAt = nil }, differs{facts: true}},
		"why it left":          {func(a *Agent) { a.AuditUnenrolledReason = "" }, differs{facts: true}},
		"when it enrolled":     {func(a *Agent) { a.EnrolledAt = later }, differs{facts: true}},
		"healthy since":        {func(a *Agent) { a.HealthySince = &later }, differs{facts: true}},
		"version since":        {func(a *Agent) { a.VersionSince = &later }, differs{facts: true}},
		"a tag more":           {func(a *Agent) { a.Tags = append(a.Tags, "other") }, differs{facts: true}},
		"its host":             {func(a *Agent) { a.LocalMetadata = json.RawMessage(`{}`) }, differs{facts: true}},
		"user metadata":        {func(a *Agent) { a.UserMetadata = nil }, differs{facts: true}},
		"both":                 {func(a *Agent) { a.PolicyID = "b"; a.UpgradeStartedAt = &later }, all},
		"the revision":         {func(a *Agent) { a.Revision++ }, all},
		"after Forget":         {func(a *Agent) { a.Forget() }, all},
		"not decoded":          {func(a *Agent) { *a = whole }, all},
	} {
		a, readErr := DecodeAgent(doc, 3)
		if readErr != nil {
			t.Fatal(readErr)
		}
		tc.change(&a)
		if facts, upgrade := a.Differs(); (differs{facts, upgrade}) != tc.want {
			t.Errorf("%s: it differs in %+v, want %+v", name, differs{facts, upgrade}, tc.want)
		}
	}
}

// A retained hostname must not retain the kilobytes of the document it was decoded
// from.
func TestAgentStringsDoNotRetainDocument(t *testing.T) {
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
