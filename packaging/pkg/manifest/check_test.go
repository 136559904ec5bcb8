package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestChecksAreValidated(t *testing.T) {
	exec := func(argv ...string) Check { return Check{Name: "c", Exec: argv} }
	web := func(url string) Check { return Check{Name: "c", HTTP: url} }
	tcp := func(addr string) Check { return Check{Name: "c", TCP: addr} }
	for _, good := range []Check{
		exec("bin/check", "../any argument"), exec("/usr/bin/true"),
		web("http://127.0.0.1:8080/health?deep=1"), web("https://localhost"), web("http://[::1]:80?x"),
		tcp("127.0.0.1:8080"), tcp("[::1]:1"), tcp("localhost:65535"), tcp(":80"),
		{Name: "c", TCP: ":1", Timeout: MaxCheckTimeout, Threshold: 100},
	} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	tests := []struct {
		want string
		c    Check
	}{
		{"name is missing", Check{TCP: ":1"}},
		{"name has 65 characters", Check{Name: strings.Repeat("x", 65), TCP: ":1"}},
		{"exactly one", Check{Name: "c"}},
		{"exactly one", Check{Name: "c", TCP: ":1", HTTP: "http://a"}},
		{"timeout is", Check{Name: "c", TCP: ":1", Timeout: -1}},
		{"timeout is", Check{Name: "c", TCP: ":1", Timeout: MaxCheckTimeout + 1}},
		{"threshold is", Check{Name: "c", TCP: ":1", Threshold: -1}},
		{"exec is", exec("")},
		{"exec is", exec("../other/bin")},
		{"exec is", exec("a/../../b")},
		{"http is", web("127.0.0.1:8080")},
		{"http is", web("ftp://a")},
		{"http is", web("http://")},
		{"http is", web("http:///x")},
		{"http is", web("http://a b/")},
		{"http is", web("http://me:secret@a/")},
		{"tcp is", tcp("127.0.0.1")},
		{"tcp is", tcp("a:0")},
		{"tcp is", tcp("a:65536")},
		{"tcp is", tcp("a:http")},
		{"tcp is", tcp("a:+1")},
		{"tcp is", tcp("::1:80")},
	}
	for _, tc := range tests {
		if err := tc.c.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want it to say %q", tc.c, err, tc.want)
		}
	}
}

func TestWithDefaultsFillsTimeoutAndThreshold(t *testing.T) {
	if c := (Check{Name: "c", TCP: ":1"}).WithDefaults(); c.Timeout != DefaultCheckTimeout || c.Threshold != DefaultCheckThreshold {
		t.Errorf("%+v", c)
	}
	own := Check{Name: "c", TCP: ":1", Timeout: time.Second, Threshold: 1}
	if c := own.WithDefaults(); !reflect.DeepEqual(c, own) {
		t.Errorf("%+v", c)
	}
}

// The upgrade marker holds a manifest's checks, so they survive JSON.
func TestChecksAreReadFromAManifest(t *testing.T) {
	text := `version: muster/v1
kind: PackageManifest
package:
  version: 1.1.0
  hash: 3f2a9c
  os: linux
  arch: amd64
  versioned-home: data/muster-agent-3f2a9c
  checks:
    - {name: table, exec: [bin/check, --table], timeout: 2s, threshold: 5}
    - {name: page, http: "http://127.0.0.1:8080/health"}
    - {name: port, tcp: "127.0.0.1:9000"}
`
	m, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Check{
		{Name: "table", Exec: []string{"bin/check", "--table"}, Timeout: 2 * time.Second, Threshold: 5},
		{Name: "page", HTTP: "http://127.0.0.1:8080/health"},
		{Name: "port", TCP: "127.0.0.1:9000"},
	}
	if !reflect.DeepEqual(m.Package.Checks, want) {
		t.Errorf("%+v, want %+v", m.Package.Checks, want)
	}
	b, err := json.Marshal(m.Package.Checks)
	if err != nil {
		t.Fatal(err)
	}
	var again []Check
	if err := json.Unmarshal(b, &again); err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("through JSON: %+v, %v", again, err)
	}
	if _, err := Parse(strings.NewReader(strings.Replace(text, "9000", "0", 1))); err == nil || !strings.Contains(err.Error(), "package.checks[2]") || !strings.Contains(err.Error(), `"port"`) {
		t.Errorf("a wrong port: %v", err)
	}
	many := text
	for i := range MaxChecks {
		many += fmt.Sprintf("    - {name: c%d, tcp: \":1\"}\n", i)
	}
	if _, err := Parse(strings.NewReader(many)); err == nil || !strings.Contains(err.Error(), "has 23 checks") {
		t.Errorf("too many: %v", err)
	}
}
