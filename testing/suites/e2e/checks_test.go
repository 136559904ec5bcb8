package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// A package may contain health checks, which the watcher runs before it commits the
// version: here that a port is open and that a program succeeds.
func TestChecksOfThePackageDecide(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	flag := filepath.Join(w.Dir, "content")
	checks := filepath.Join(w.Dir, "checks.yml")
	check(t, os.WriteFile(checks, []byte(`
- {name: listens, tcp: "`+l.Addr().String()+`", timeout: 1s}
- {name: content, exec: [/usr/bin/test, -e, "`+flag+`"], timeout: 1s, threshold: 2}
`), 0o600))
	build := func(version string) {
		t.Helper()
		archive, err := w.Publisher.PackageOf(t.Context(), version, w.Programs.Agent, w.Programs.Watcher, "--checks", checks)
		check(t, err)
		check(t, w.Server.Publish(t.Context(), w.Publisher, archive))
	}
	build("1.1.0")
	w.Upgrade("1.1.0", h)
	w.rolledBack(h, "1.1.0", "1.0.0", "check_failed")
	a, err := w.Server.Agent(t.Context(), h.ID)
	check(t, err)
	if text := *a.UpgradeDetails.Metadata.Reason; !strings.Contains(text, "content") {
		t.Errorf("the reason is %q, want the check's name", text)
	}

	check(t, os.WriteFile(flag, nil, 0o600))
	build("1.1.1")
	w.Upgrade("1.1.1", h)
	w.upgraded(h, "1.1.1")
	w.Wait(h, "is reported as committed", func(a adminapi.Agent) bool { return a.Watch != nil && a.Watch.Stage == agentapi.BeaconCommitted })
}
