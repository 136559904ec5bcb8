//go:build release && linux

package elsewhere

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/docker"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

var errStill = errors.New("not yet")

func TestMain(m *testing.M) { os.Exit(docker.With(harness.With(m))) }

// world is a harness.World whose hosts are installed in ways of their own.
type world struct{ *harness.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{harness.NewWorld(t)}
}

func (w *world) ok(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// enrollment returns the flags that enrol a host, except the token.
func (w *world) enrollment() []string {
	s := w.Server.Info
	return []string{"--url", s.AgentURL, "--ca-pin", s.CAPin, "--trust-root", w.Publisher.TrustRoot}
}

// share is what machines see of this one: the programs and the packages.
func (w *world) share() []string {
	return []string{filepath.Dir(w.Programs.Agent), filepath.Join(w.Dir, "packages")}
}

// online waits until a host is online with a version.
func (w *world) online(name, version string) *harness.Host {
	w.Helper()
	h := &harness.Host{Name: name}
	w.Online(version, h)
	return h
}

// upgraded waits until an upgrade is committed.
func (w *world) upgraded(h *harness.Host, version string) {
	w.Helper()
	w.Wait(h, "has "+version+" for good", func(a adminapi.Agent) bool {
		return a.Agent.Version == version && a.Status == fleet.StatusOnline && a.UpgradeDetails == nil && a.UpgradeStartedAt == nil &&
			a.Watch != nil && a.Watch.Stage == agentapi.BeaconCommitted
	})
}

// rolledBack waits until a version was rolled back to another. The watcher reports the reason before
// it restarts the agent, and the end of the watch after that.
func (w *world) rolledBack(h *harness.Host, to, reason string) {
	w.Helper()
	w.Wait(h, "was rolled back to "+to+" for "+reason, func(a adminapi.Agent) bool {
		return a.Agent.Version == to && a.Status == fleet.StatusOnline && a.UpgradeStatus != nil && *a.UpgradeStatus == fleet.UpgradeRolledBack &&
			a.Watch != nil && a.Watch.Stage == agentapi.BeaconRolledBack && a.UpgradeDetails != nil && a.UpgradeDetails.Metadata != nil && a.UpgradeDetails.Metadata.ReasonCode != nil && *a.UpgradeDetails.Metadata.ReasonCode == reason
	})
}

// running returns whether an agent has a version after another was rolled back.
func running(version, rolledBack string) func(adminapi.Agent) bool {
	return func(a adminapi.Agent) bool {
		return a.Agent.Version == version && a.Status == fleet.StatusOnline && a.UpgradeDetails != nil &&
			a.Watch != nil && a.Watch.Stage == agentapi.BeaconRolledBack && a.UpgradeDetails.TargetVersion == rolledBack && a.UpgradeDetails.State == agentapi.UpgradeRollback
	}
}
