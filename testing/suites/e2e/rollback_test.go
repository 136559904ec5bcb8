package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// offers reports whether the server lists a version as a rollback target of a host.
func offers(a adminapi.Agent, version string) bool {
	return a.Rollback != nil && a.Rollback.Available && a.Rollback.Version != nil && *a.Rollback.Version == version
}

func TestRollbackToTheKeptVersion(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", h)
	w.upgraded(h, "1.1.0")
	a := w.Wait(h, "offers 1.0.0, and its watcher has said that 1.1.0 stays", func(a adminapi.Agent) bool {
		return offers(a, "1.0.0") && a.Watch != nil && a.Watch.Stage == agentapi.BeaconCommitted
	})
	if until := *a.Rollback.ValidUntil; time.Until(until) < 6*24*time.Hour {
		t.Errorf("it can go back until %s, want for a week", until)
	}
	_, err := w.Server.CLI(t.Context(), "agents", "rollback", h.ID)
	check(t, err)
	w.Wait(h, "runs 1.0.0 again, kept by its watcher", func(a adminapi.Agent) bool {
		return a.Agent.Version == "1.0.0" && a.UpgradeStartedAt == nil && a.UpgradeDetails == nil && offers(a, "1.1.0")
	})
	w.onDisk(h, "1.0.0")
	w.result(h, "1.0.0", "")
	// A rollback downloads nothing, so it needs no package on the server.
	if left, err := filepath.Glob(filepath.Join(layout.Path(h.Top, layout.DownloadsDir), "*")); err != nil || len(left) > 0 {
		t.Errorf("downloads: %v, %v", left, err)
	}
	// Then an upgrade on the host itself.
	if out, err := h.CLI(t.Context(), "rollback"); err != nil || !strings.Contains(out, "Version 1.1.0 runs again") {
		t.Errorf("muster-agent rollback: %v\n%s", err, out)
	}
	w.onDisk(h, "1.1.0")
}

func TestRollbackDuringAWatchIsDoneByTheWatcher(t *testing.T) {
	w := newWorld(t, harness.HostOptions{Grace: 10 * time.Minute}, "web-01", "web-02")
	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", w.Hosts...)
	for _, h := range w.Hosts {
		w.Wait(h, "is watched, and can go back", func(a adminapi.Agent) bool {
			return a.UpgradeDetails != nil && a.UpgradeDetails.State == agentapi.UpgradeWatching && offers(a, "1.0.0")
		})
	}
	_, err := w.Server.CLI(t.Context(), "agents", "rollback", w.Hosts[0].ID)
	check(t, err)
	if out, err := w.Hosts[1].CLI(t.Context(), "rollback", "1.0.0"); err != nil || !strings.Contains(out, "Version 1.0.0 runs again") {
		t.Errorf("muster-agent rollback: %v\n%s", err, out)
	}
	// The rollback of the server succeeds, and ends the upgrade that the server had ordered.
	for _, end := range []struct {
		h      *harness.Host
		reason string
	}{{w.Hosts[0], ""}, {w.Hosts[1], "manual"}} {
		w.Wait(end.h, "runs 1.0.0 again", func(a adminapi.Agent) bool {
			return a.Agent.Version == "1.0.0" && a.UpgradeStartedAt == nil && a.Status == fleet.StatusOnline && reasonCode(a) == end.reason
		})
		w.onDisk(end.h, "1.0.0")
	}
	// A rollback by an operator does not mark the version as bad: it may be tried again.
	w.Upgrade("1.1.0", w.Hosts[0])
	w.waitPhase(w.Hosts[0], agentapi.UpgradeWatching)
}

// The new version never starts, so only the watcher can report the rollback.
func TestWatcherReportsARollback(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	h := w.Hosts[0]
	w.Publish("1.2.0", w.Programs.Crasher)
	w.Upgrade("1.2.0", h)
	w.Wait(h, "is reported by its watcher", func(a adminapi.Agent) bool {
		return a.Watch != nil && a.Watch.To == "1.2.0" && a.Watch.Stage == agentapi.BeaconRolledBack && a.Watch.Reason != nil && slices.Contains(diesAtStart, a.Watch.Reason.Code)
	})
	w.rolledBack(h, "1.2.0", "1.0.0", diesAtStart...)
	// The watcher has its own credential, readable only by the owner.
	fi, err := os.Stat(layout.Path(h.Top, layout.WatcherIdentityFile))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the watcher's credential: %v, %v", fi, err)
	}
}
