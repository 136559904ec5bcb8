package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

var catalog = Catalog{
	{Version: "1.0.0", OS: "linux", Arch: "amd64"},
	{Version: "1.1.0", OS: "linux", Arch: "amd64"},
	{Version: "1.1.0", OS: "linux", Arch: "arm64"},
	{Version: "1.10.0", OS: "windows", Arch: "amd64"},
	{Version: "2.0.0-SNAPSHOT"},
}

func upgradeable(version string) Agent {
	return Agent{
		ID: "a", Active: true, Version: version,
		LocalMetadata: []byte(`{"elastic":{"agent":{"upgradeable":true}},"host":{"architecture":"x86_64"},"os":{"type":"linux"}}`),
	}
}

func TestCheckUpgrade(t *testing.T) {
	to := func(v string) UpgradeRequest { return UpgradeRequest{Version: v} }
	forced := UpgradeRequest{Version: "1.0.0", Force: true}
	for _, row := range []struct {
		name   string
		change func(*Agent)
		wish   UpgradeRequest
		want   string // a part of the refusal, "" for none
	}{
		{"it can", nil, to("1.1.0"), ""},
		{"to a package for any platform", nil, to("2.0.0-SNAPSHOT"), ""},
		{"unenrolled", func(a *Agent) { a.Active = false }, forced, "is unenrolled"},
		{"being unenrolled", func(a *Agent) { a.UnenrollmentStartedAt = &now }, forced, "being unenrolled"},
		{"in a container", func(a *Agent) { a.LocalMetadata = nil }, forced, "container"},
		{"no package for its system", nil, UpgradeRequest{Version: "1.10.0", Force: true}, "no package of version 1.10.0 for linux/x86_64"},
		{"the package lies elsewhere", nil, UpgradeRequest{Version: "1.10.0", SourceURI: "https://x"}, ""},
		{"already under way", func(a *Agent) { a.BeginUpgrade("act", "1.1.0", now) }, to("2.0.0-SNAPSHOT"), "already being upgraded to 1.1.0"},
		{"already under way, forced", func(a *Agent) { a.BeginUpgrade("act", "1.1.0", now) }, forced, ""},
		{"still watched", func(a *Agent) {
			a.UpgradeDetails = &agentapi.UpgradeDetails{State: agentapi.UpgradeWatching, TargetVersion: "1.0.1"}
		}, to("1.1.0"), "still being watched after its upgrade to 1.0.1"},
		{"after a failure", func(a *Agent) { a.UpgradeDetails = &agentapi.UpgradeDetails{State: agentapi.UpgradeFailed} }, to("1.1.0"), ""},
		{"same version", func(a *Agent) { a.Version = "1.1.0" }, to("1.1.0"), "already runs 1.1.0"},
		{"down", func(a *Agent) { a.Version = "1.1.0" }, to("1.0.0"), "needs force"},
		{"down, forced", func(a *Agent) { a.Version = "1.1.0" }, forced, ""},
		{"unknown version", func(a *Agent) { a.Version = "" }, to("1.1.0"), "cannot be compared"},
	} {
		a := upgradeable("1.0.0")
		if row.change != nil {
			row.change(&a)
		}
		err := a.CheckUpgrade(row.wish, catalog)
		if (row.want == "") != (err == nil) || (err != nil && (KindOf(err) != Invalid || !strings.Contains(err.Error(), row.want))) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// Force does not help a host that runs the very build: it would load all of the package, and then
// refuse it. Another build of the version is another thing.
func TestForceDoesNotOrderWhatRunsAlready(t *testing.T) {
	const hash = "3f2a9c0123456789"
	for _, c := range []struct {
		name, version, build, hash string
		upgrading                  bool
		refused                    bool
	}{
		{"this build", "1.1.0", "1.1.0-3f2a9c", hash, false, true},
		{"another build", "1.1.0", "1.1.0-abcdef", hash, false, false},
		{"a release of an agent that does not report its build", "1.1.0", "", hash, false, true},
		{"a snapshot of one", "1.1.0-SNAPSHOT", "", hash, false, false},
		{"this build of a snapshot", "1.1.0-SNAPSHOT", "1.1.0-SNAPSHOT-3f2a9c", hash, false, true},
		{"while it is upgraded from it", "1.1.0", "1.1.0-3f2a9c", hash, true, false},
		{"an Elastic Agent's", "8.1.0", "8.1.0 (build: 3f2a9c0123456789 at 2026-01-01)", hash, false, true},
	} {
		a := upgradeable(c.version)
		a.LocalMetadata = []byte(strings.Replace(string(a.LocalMetadata), `"upgradeable":true`, fmt.Sprintf(`"upgradeable":true,"build":{"original":%q}`, c.build), 1))
		if c.upgrading {
			a.BeginUpgrade("x", "1.9.0", now)
		}
		of := Catalog{{Version: c.version, Hash: c.hash, OS: "linux", Arch: "amd64", Maker: a.Host().Maker, Snapshot: strings.HasSuffix(c.version, "-SNAPSHOT")}}
		err := a.CheckUpgrade(UpgradeRequest{Version: c.version, Force: true}, of)
		var refused *Error
		if (err != nil) != c.refused || c.refused && (!errors.As(err, &refused) || refused.Forceable || refused.Cause != CauseRunning) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestUpgradeRequestCheck(t *testing.T) {
	for _, row := range []struct {
		wish UpgradeRequest
		in   Catalog
		want string
	}{
		{UpgradeRequest{Version: "1.1.0"}, catalog, ""},
		{UpgradeRequest{Version: "7.0.0", SourceURI: "https://x"}, catalog, ""},
		{UpgradeRequest{}, catalog, "[request body.version]: is missing"},
		{UpgradeRequest{Version: "1.1"}, catalog, `[request body.version]: version is "1.1"`},
		{UpgradeRequest{Version: "7.0.0"}, catalog, "published are 2.0.0-SNAPSHOT, 1.10.0, 1.1.0, 1.0.0"},
		{UpgradeRequest{Version: "7.0.0"}, nil, "nothing is published yet"},
	} {
		err := row.wish.Check("", row.in)
		if (row.want == "") != (err == nil) || (err != nil && (KindOf(err) != Invalid || !strings.Contains(err.Error(), row.want))) {
			t.Errorf("%+v: %v, want %q", row.wish, err, row.want)
		}
	}
}

func TestCatalogHasAcceptsBothArchNames(t *testing.T) {
	for _, row := range []struct {
		version, os, arch string
		want              bool
	}{
		{"1.1.0", "linux", "arm64", true},
		{"1.1.0", "linux", "aarch64", true},
		{"1.1.0", "linux", "x86_64", true},
		{"1.0.0", "linux", "aarch64", false},
		{"1.10.0", "linux", "amd64", false},
		{"1.10.0", "", "", false},
		{"2.0.0-SNAPSHOT", "plan9", "mips", true},
		{"2.0.0", "linux", "amd64", false},
	} {
		host := HostMetadata{OS: osMetadata{Type: row.os}}
		host.Host.Architecture = row.arch
		if got := catalog.Has(row.version, host); got != row.want {
			t.Errorf("%s for %s/%s: %v", row.version, row.os, row.arch, got)
		}
	}
	if got, want := catalog.Versions(), []string{"2.0.0-SNAPSHOT", "1.10.0", "1.1.0", "1.0.0"}; !slices.Equal(got, want) {
		t.Errorf("versions are %v, want %v", got, want)
	}
}

func TestErrorKeepsKindAndCause(t *testing.T) {
	cause := FieldError("body.x", "is %q", "y")
	err := Errorf(Conflict, "doing it: %w", cause)
	if KindOf(err) != Conflict || !errors.Is(err.Unwrap(), cause) || err.Error() != `doing it: [request body.x]: is "y"` {
		t.Errorf("error is %q of kind %s with cause %v", err, KindOf(err), err.Unwrap())
	}
	if KindOf(cause) != Invalid || KindOf(nil) != Internal {
		t.Errorf("kinds are %s and %s", KindOf(cause), KindOf(nil))
	}
	a, b := NewID(), NewID()
	if len(a) != 26 || a == b || strings.Trim(a, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		t.Errorf("ids are %q and %q", a, b)
	}
}

func TestNewHostsGetTheNewestRelease(t *testing.T) {
	of := func(version string, change func(*Package)) Package {
		p := Package{Version: version, OS: "linux", Arch: "amd64", Snapshot: strings.Contains(version, "-")}
		if change != nil {
			change(&p)
		}
		return p
	}
	c := Catalog{
		of("2.0.0-SNAPSHOT", nil), of("1.9.0", nil), of("1.10.0", nil), of("1.2.0", nil),
		of("3.0.0", func(p *Package) { p.Component = "web" }),
		of("4.0.0", func(p *Package) { p.Withheld = "not signed" }),
		of("5.0.0", func(p *Package) { p.Maker = MakerElastic }),
		of("6.0.0", func(p *Package) { p.Arch = "arm64" }),
		of("7.0.0-SNAPSHOT", func(p *Package) { p.OS = "darwin" }),
	}
	for platform, want := range map[string]string{"linux-amd64": "1.10.0", "linux-arm64": "6.0.0", "darwin-amd64": "7.0.0-SNAPSHOT", "windows-amd64": "", "-": ""} {
		if p, ok := c.NewestAgent(platform); p.Version != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", platform, p.Version, want)
		}
	}
}
