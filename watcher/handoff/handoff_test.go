package handoff

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

func host(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	if err := os.Mkdir(layout.Path(top, layout.DataDir), 0o700); err != nil {
		t.Fatal(err)
	}
	return top
}

func example() Marker {
	return Marker{
		ActionID:  "7d0e4c0e",
		From:      Install{Identity: manifest.Identity{Version: "1.0.0", Hash: "9be1f0aa"}, Home: "data/muster-agent-1.0.0-9be1f0"},
		To:        Install{Identity: manifest.Identity{Version: "1.1.0", Snapshot: true, Hash: "3f2a9cbb"}, Home: "data/muster-agent-1.1.0-SNAPSHOT-3f2a9c"},
		CreatedAt: time.Date(2026, 3, 10, 12, 0, 0, 123456789, time.UTC),
		Rules:     rules(),
		Restart:   Restart{Service: "muster-agent"},
		Before:    Before{Failing: []string{"runtime docker"}, Healthy: map[string]string{"web": "2.4.0"}},
	}
}

func rules() Rules {
	r := DefaultRules()
	r.Checks = []manifest.Check{{Name: "page", HTTP: "http://127.0.0.1:8080/health", Timeout: time.Second}, {Name: "own", Exec: []string{"check", "-q"}}}
	return r
}

func TestReadMarkerReturnsTheWrittenMarker(t *testing.T) {
	top := host(t)
	if m, err := ReadMarker(disk.OS{}, top); m != nil || err != nil {
		t.Fatalf("without a marker: %+v, %v; want none and no error", m, err)
	}
	want := example()
	if err := WriteMarker(disk.OS{}, top, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadMarker(disk.OS{}, top)
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Fatalf("read %+v, %v; want %+v", got, err, want)
	}
	if err := RemoveMarker(disk.OS{}, top); err != nil {
		t.Fatal(err)
	}
	if m, err := ReadMarker(disk.OS{}, top); m != nil || err != nil {
		t.Fatalf("after Remove: %+v, %v; want none", m, err)
	}
	if err := RemoveMarker(disk.OS{}, top); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}

func TestReadRequestReturnsWhatWasWritten(t *testing.T) {
	top, m := host(t), example()
	if r, err := ReadRequest(disk.OS{}, top); r != nil || err != nil {
		t.Errorf("without a request: %+v, %v", r, err)
	}
	r := Request{ToHome: m.To.Home, Why: "Ann asked.", At: m.CreatedAt}
	if err := WriteRequest(disk.OS{}, top, r); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadRequest(disk.OS{}, top); err != nil || !reflect.DeepEqual(*got, r) {
		t.Errorf("request %+v, %v; want %+v", got, err, r)
	}
	if err := RemoveRequest(disk.OS{}, top); err != nil {
		t.Fatal(err)
	}
	if r, err := ReadRequest(disk.OS{}, top); r != nil || err != nil {
		t.Errorf("after RemoveRequest: %+v, %v", r, err)
	}
}

func TestReadOutcomeReturnsTheWrittenOutcome(t *testing.T) {
	top, m := host(t), example()
	want := Outcome{
		ActionID: m.ActionID, From: m.From, To: m.To, Result: RolledBack, At: m.CreatedAt.Add(time.Minute),
		Reason: &Reason{Code: ReasonCrashLoop, Text: "The process ended 3 times."},
	}
	if err := WriteOutcome(disk.OS{}, top, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadOutcome(disk.OS{}, top)
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Fatalf("read %+v, %v; want %+v", got, err, want)
	}
	if err := RemoveOutcome(disk.OS{}, top); err != nil {
		t.Fatal(err)
	}
	if o, err := ReadOutcome(disk.OS{}, top); o != nil || err != nil {
		t.Errorf("after RemoveOutcome: %+v, %v; want none", o, err)
	}
}

// A marker with a damaged byte is read as it was, as the previous one, or not at all with an
// error.
func TestDamagedMarkerIsNeverMisread(t *testing.T) {
	top := host(t)
	path := layout.Path(top, layout.MarkerFile)
	if err := WriteMarker(disk.OS{}, top, example()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		data := append([]byte(nil), whole...)
		switch rapid.SampledFrom([]string{"flip", "cut", "zero", "append"}).Draw(rt, "damage") {
		case "flip":
			data[rapid.IntRange(0, len(data)-1).Draw(rt, "at")] ^= byte(rapid.IntRange(1, 255).Draw(rt, "bits"))
		case "cut":
			data = data[:rapid.IntRange(0, len(data)-1).Draw(rt, "length")]
		case "zero":
			clear(data)
		case "append":
			data = append(data, rapid.Byte().Draw(rt, "byte"))
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			rt.Fatal(err)
		}
		m, err := ReadMarker(disk.OS{}, top)
		if m != nil {
			// Only white space in the header line may change.
			if !reflect.DeepEqual(*m, example()) {
				rt.Fatalf("read %+v from a damaged file", m)
			}
			return
		}
		if !errors.Is(err, disk.ErrDamaged) {
			rt.Fatalf("error %v, want one that says the record is damaged", err)
		}
	})
}

func TestDamagedMarkerIsReadFromThePreviousCopy(t *testing.T) {
	top, first, second := host(t), example(), example()
	second.ActionID = "later"
	for _, m := range []Marker{first, second} {
		if err := WriteMarker(disk.OS{}, top, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(layout.Path(top, layout.MarkerFile), make([]byte, 500), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := ReadMarker(disk.OS{}, top)
	if err != nil || m == nil || m.ActionID != first.ActionID {
		t.Errorf("read %+v, %v; want the marker before", m, err)
	}
}

func TestNewerMarkerFormatIsRefused(t *testing.T) {
	top := host(t)
	if err := disk.WriteRecord(disk.OS{}, "test", layout.Path(top, layout.MarkerFile), "marker", MarkerVersion+1, example()); err != nil {
		t.Fatal(err)
	}
	m, err := ReadMarker(disk.OS{}, top)
	if m != nil || !errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), "format version") {
		t.Errorf("read %+v, %v; want none, because of the format version", m, err)
	}
}

// Homes and rules are validated when a marker is written and when it is read, because homes
// are removed by name and rules decide on rollbacks.
func TestInvalidMarkersAreRefused(t *testing.T) {
	tests := []struct {
		name string
		edit func(m *Marker)
		want string
	}{
		{"home outside data", func(m *Marker) { m.To.Home = "etc/muster" }, "to.home"},
		{"home is the data folder", func(m *Marker) { m.To.Home = "data" }, "to.home"},
		{"home climbs out", func(m *Marker) { m.To.Home = "data/../etc" }, "to.home"},
		{"home climbs", func(m *Marker) { m.From.Home = "data/.." }, "from.home"},
		{"home is deeper", func(m *Marker) { m.From.Home = "data/a/b" }, "from.home"},
		{"home is absolute", func(m *Marker) { m.From.Home = "/data/a" }, "from.home"},
		{"home with a drive", func(m *Marker) { m.From.Home = "data/c:a" }, "from.home"},
		{"home with a backslash", func(m *Marker) { m.To.Home = `data/a\..\b` }, "to.home"},
		{"home with a tail", func(m *Marker) { m.To.Home += "/" }, "to.home"},
		{"no home", func(m *Marker) { m.To.Home = "" }, "to.home"},
		{"one home twice", func(m *Marker) { m.To.Home = m.From.Home }, "both"},
		{"no interval", func(m *Marker) { m.Rules.Interval = 0 }, "rules"},
		{"no grace", func(m *Marker) { m.Rules.Grace = -1 }, "rules"},
		{"no patience", func(m *Marker) { m.Rules.FailedFor = 0 }, "rules"},
		{"fewer than no crashes", func(m *Marker) { m.Rules.MaxCrashes = -1 }, "rules"},
		{"a check that asks nothing", func(m *Marker) { m.Rules.Checks = []manifest.Check{{Name: "empty"}} }, `rules.checks[0]: "empty": wants exactly one`},
		{"too many checks", func(m *Marker) { m.Rules.Checks = make([]manifest.Check, manifest.MaxChecks+1) }, "has 21 checks"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			top, m := host(t), example()
			tc.edit(&m)
			if err := WriteMarker(disk.OS{}, top, m); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Write: %v, want an error that names %s", err, tc.want)
			}
			if err := disk.WriteRecord(disk.OS{}, "test", layout.Path(top, layout.MarkerFile), "marker", MarkerVersion, m); err != nil {
				t.Fatal(err)
			}
			if got, err := ReadMarker(disk.OS{}, top); got != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Read: %+v, %v; want none and an error that names %s", got, err, tc.want)
			}
		})
	}
}

func TestDurationIsEncodedAsText(t *testing.T) {
	b, err := json.Marshal(DefaultRules())
	if err != nil || string(b) != `{"interval":"10s","grace":"10m0s","failed_for":"30s","max_crashes":2,"keep":{"previous":1,"staged":2,"bytes":4000000000,"window":"168h0m0s"}}` {
		t.Errorf("rules are %s, %v", b, err)
	}
	var r Rules
	if err := json.Unmarshal([]byte(`{"interval":"soon"}`), &r); err == nil {
		t.Error("a duration of \"soon\" was accepted")
	}
}
