package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/testing/harness"
)

// The commands on the host itself: status, upgrade, uninstall.
func TestUpgradeAndUninstallFromTheHostsCommandLine(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	ctx, h := t.Context(), w.hosts[0]

	says := func(want string, args ...string) {
		t.Helper()
		if out, err := h.CLI(ctx, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("muster-agent %s: %v\n%s\nwant a word of %q", args, err, out, want)
		}
	}
	refuses := func(want string, args ...string) {
		t.Helper()
		if out, err := h.CLI(ctx, args...); err == nil || !strings.Contains(err.Error()+out, want) {
			t.Errorf("muster-agent %s: %v\n%s\nwant a refusal with %q", args, err, out, want)
		}
	}
	// Until the agent has reached its server, the exit code of status is not 0.
	eventually(t, "the agent and its connection are healthy", func() error {
		_, err := h.CLI(ctx, "status")
		return err
	})
	says("agent: healthy", "status")
	says(`"state": "healthy"`, "status", "-o", "json")
	refuses("muster package push", "upgrade", "9.9.9")
	refuses("three numbers", "upgrade", "latest")

	w.publish("1.1.0", w.Programs.Agent)
	says("Version 1.1.0 was healthy", "upgrade", "1.1.0")
	w.onDisk(h, "1.1.0")
	// The host reports the upgrade, which the server did not order.
	w.wait(h, "is known to run 1.1.0", func(a adminapi.Agent) bool {
		return a.Agent.Version == "1.1.0" && a.UpgradeDetails == nil && a.UpgradedAt != nil && a.Status == adminapi.StatusOnline
	})
	refuses("already runs here", "upgrade", "1.1.0")

	// The watcher reports its verdict before it ends, and a removal waits for that.
	eventually(t, "only the agent keeps the host from being removed", func() error {
		out, err := h.CLI(ctx, "uninstall", "--yes")
		if err != nil && strings.Contains(err.Error()+out, "stop it first") {
			return nil
		}
		return errors.Join(fmt.Errorf("muster-agent uninstall printed %q", out), err)
	})
	check(t, h.Stop())
	refuses("not running", "status")
	says("Removed", "uninstall", "--yes")
	if _, err := os.Lstat(h.Top); !os.IsNotExist(err) {
		t.Errorf("after uninstall %s is still there: %v", h.Top, err)
	}
	w.wait(h, "is known to be uninstalled", func(a adminapi.Agent) bool { return a.Status == adminapi.StatusUninstalled })
}
