package upgrade

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// TestStolenServerCannotMoveAHostBack orders older versions, whose signatures are valid.
// The host runs 1.0.0.
func TestStolenServerCannotMoveAHostBack(t *testing.T) {
	unsigned := trust.Expectation{}
	allowed := trust.Expectation{Downgrade: true}
	committed := func(version string) func(*testing.T, *testHost, *source) {
		return func(t *testing.T, h *testHost, _ *source) {
			must(t, handoff.WriteVersions(disk.OS{}, h.top, handoff.Versions{Highest: version}))
		}
	}
	kept := func(hash string, ago time.Duration) func(*testing.T, *testHost, *source) {
		return func(t *testing.T, h *testHost, s *source) {
			delete(s.files, manifest.ArchiveName("0.9.0", "linux", "amd64", archiveFormat)) // the other build
			v := h.keep(t, s, "0.9.0", hash)
			must(t, handoff.WriteVersions(disk.OS{}, h.top, handoff.Versions{OnHost: []handoff.Version{{Install: v, ReplacedAt: time.Now().Add(-ago)}}}))
			s.publish(t, "0.9.0", pkg("0.9.0", "cccccc"))
		}
	}
	const older = "is older than"
	for _, c := range []struct {
		name    string
		version string
		host    func(*testing.T, *testHost, *source)
		request request.Request
		expect  trust.Expectation
		want    string // "" if it succeeds
	}{
		{"older than the running version", "0.9.0", nil, request.Request{}, unsigned, "is older than 1.0.0"},
		{"with force", "0.9.0", nil, request.Request{Force: true}, unsigned, "is older than 1.0.0"},
		{"older than one that was committed before", "1.4.0", committed("1.5.0"), request.Request{Force: true}, unsigned, "is older than 1.5.0"},
		{"a snapshot of the running version", "1.0.0-rc.1", nil, request.Request{}, unsigned, older},
		{"older, and a damaged record", "0.9.0", func(t *testing.T, h *testHost, _ *source) {
			must(t, os.WriteFile(layout.Path(h.top, layout.VersionsFile), []byte("zeros"), 0o600))
		}, request.Request{}, unsigned, "is older than 1.0.0"},
		{"on the host, without force", "0.9.0", nil, request.Request{Local: true}, unsigned, "`muster-agent upgrade 0.9.0 --force` on the host"},
		{"kept here, after its window", "0.9.0", kept("cccccc", 8*24*time.Hour), request.Request{Force: true}, unsigned, older},
		{"another build of what is kept here", "0.9.0", kept("dddddd", 0), request.Request{Force: true}, unsigned, "and not 0.9.0-dddddd, which is kept"},
		{"allowed, and below the floor", "0.9.0", nil, request.Request{}, trust.Expectation{Downgrade: true, Floor: "1.0.0"}, "is below 1.0.0"},

		{"newer", "1.1.0", nil, request.Request{}, unsigned, ""},
		{"the one that was committed before", "1.5.0", committed("1.5.0"), request.Request{}, unsigned, ""},
		{"older, on the host with force", "0.9.0", nil, request.Request{Local: true, Force: true}, unsigned, ""},
		{"older, allowed by its publishers", "0.9.0", nil, request.Request{}, allowed, ""},
		{"kept here", "0.9.0", kept("cccccc", time.Hour), request.Request{}, unsigned, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSource(t)
			s.publish(t, c.version, pkg(c.version, "cccccc"))
			h := newHost(t, s, disk.OS{})
			if c.host != nil {
				c.host(t, h, s)
			}
			h.executor.Trust = publisher{s.repo.Authority(), c.expect}
			r := c.request
			r.ID, r.Version = "a1", c.version
			err := h.executor.Upgrade(context.Background(), r)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestServerRollsBackOnlyWithinTheWindowAndAboveTheFloor(t *testing.T) {
	for _, c := range []struct {
		name  string
		floor string
		ago   time.Duration
		local bool
		want  string
	}{
		{"in the window", "0.9.0", time.Hour, false, ""},
		{"after the window", "", 8 * 24 * time.Hour, false, "its window of 168h0m0s is over"},
		{"after the window, on the host", "", 8 * 24 * time.Hour, true, "its window of 168h0m0s is over"},
		{"below the floor", "0.9.1", time.Hour, false, "below 0.9.1, the lowest version its publishers still allow"},
		{"below the floor, on the host", "0.9.1", time.Hour, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSource(t)
			h := newHost(t, s, disk.OS{})
			v := h.keep(t, s, "0.9.0", "cccccc")
			must(t, handoff.WriteVersions(disk.OS{}, h.top, handoff.Versions{OnHost: []handoff.Version{{Install: v, ReplacedAt: time.Now().Add(-c.ago)}}}))
			h.executor.Trust = publisher{s.repo.Authority(), trust.Expectation{Floor: c.floor}}
			r := back
			r.Local, r.Force = c.local, true
			err := h.executor.Upgrade(context.Background(), r)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
