package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// A host refuses a version that its watcher gave up. The server knows of it from the
// reports of host and watcher, and refuses the same upgrades.
func TestVersionThatFailedOnAHostIsRefusedForIt(t *testing.T) {
	report := func(state agentapi.UpgradeState, m agentapi.UpgradeMetadata) func(*Agent) {
		return func(a *Agent) {
			a.ObserveUpgrade("1.0.0", &agentapi.UpgradeDetails{TargetVersion: "1.1.0", ActionID: "act", State: state, Metadata: m}, now)
		}
	}
	beacon := func(phase agentapi.BeaconPhase, code string) func(*Agent) {
		return func(a *Agent) {
			a.ObserveBeacon(agentapi.Beacon{ActionID: "act", From: "1.0.0", To: "1.1.0", Phase: phase, At: now, Reason: &agentapi.BeaconCause{Code: code, Text: "it crashed"}}, now)
		}
	}
	for _, row := range []struct {
		name   string
		end    func(*Agent)
		failed bool
	}{
		{"the agent reports the rollback", report(agentapi.UpgradeRollback, agentapi.UpgradeMetadata{Reason: "it crashed", ReasonCode: "crash_loop"}), true},
		{"the watcher reports the rollback", beacon(agentapi.BeaconRolledBack, "crash_loop"), true},
		{"the watcher could not go back", beacon(agentapi.BeaconRollbackFailed, "crash_loop"), true},
		{"the host refused it, since it remembers an earlier failure", report(agentapi.UpgradeFailed, agentapi.UpgradeMetadata{ErrorMsg: "version 1.1.0 " + agentapi.FailedBefore + ": it crashed"}), true},
		{"somebody asked for the rollback", beacon(agentapi.BeaconRolledBack, agentapi.ReasonManual), false},
		{"the host could not write", beacon(agentapi.BeaconRolledBack, agentapi.ReasonUnwritable), false},
		{"the settings of the host were not valid", report(agentapi.UpgradeRollback, agentapi.UpgradeMetadata{Reason: "it crashed", ReasonCode: agentapi.ReasonSettings}), false},
		{"it failed before it ran", report(agentapi.UpgradeFailed, agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeDownloading, ErrorMsg: "no space"}), false},
		{"it was committed", func(a *Agent) { a.ObserveUpgrade("1.1.0", nil, now) }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := upgradeable("1.0.0")
			a.BeginUpgrade("act", "1.1.0", now)
			row.end(&a)
			a.Version = "1.0.0"
			check := func(when string) {
				t.Helper()
				f, failed := a.FailedBefore("1.1.0")
				if failed != row.failed || failed && !strings.Contains(f.Reason, "it crashed") {
					t.Fatalf("%s: failed before: %v (%+v), want %v", when, failed, f, row.failed)
				}
				err := a.CheckFailedBefore("1.1.0", catalog)
				if (err != nil) != row.failed {
					t.Errorf("%s: refusal is %v", when, err)
				}
			}
			check("after the end")
			a.BeginUpgrade("next", "1.2.0", now.Add(time.Hour))
			a.ObserveUpgrade("1.2.0", nil, now.Add(time.Hour))
			check("after another upgrade")
			if _, failed := a.FailedBefore("1.2.0"); failed {
				t.Error("the version that runs well is taken for a failed one")
			}
		})
	}
}

func TestUpgradeToAFailedVersionNeedsForce(t *testing.T) {
	a := upgradeable("1.0.0")
	a.FailedVersions = []FailedVersion{{Version: "1.1.0", Reason: "it crashed", At: now}}
	err := a.CheckUpgrade(UpgradeRequest{Version: "1.1.0"}, catalog)
	if err == nil || err.Error() != "agent a: version 1.1.0 failed on its host before, at 2026-03-03T10:00:00Z (it crashed): upgrade it to a later version, or force this one" {
		t.Errorf("refusal is %v", err)
	}
	if err := a.CheckUpgrade(UpgradeRequest{Version: "1.1.0", Force: true}, catalog); err != nil {
		t.Errorf("forced, it is refused: %v", err)
	}

	// The same snapshot may be built again; a package pushed since then is another build.
	a.FailedVersions = []FailedVersion{{Version: "2.0.0-SNAPSHOT", At: now}}
	for pushed, want := range map[time.Time]bool{now.Add(-time.Hour): false, now.Add(time.Hour): true} {
		err := a.CheckUpgrade(UpgradeRequest{Version: "2.0.0-SNAPSHOT"}, Catalog{{Version: "2.0.0-SNAPSHOT", Snapshot: true, PushedAt: pushed}})
		if (err == nil) != want {
			t.Errorf("pushed at %s: %v", pushed, err)
		}
	}
}

func TestFailedVersionsAreBounded(t *testing.T) {
	var a Agent
	for i := range 3 * maxFailedVersions {
		version := "1." + string(rune('0'+i%10)) + "." + strings.Repeat("1", i/10+1)
		a.UpgradeStatus, a.UpgradeTo = UpgradeRolledBack, version
		a.UpgradeDetails = &agentapi.UpgradeDetails{State: agentapi.UpgradeRollback, Metadata: agentapi.UpgradeMetadata{Reason: strings.Repeat("ä", 4000)}}
		if !a.rememberFailed(now) || a.rememberFailed(now) {
			t.Fatalf("%s is not remembered once", version)
		}
	}
	if len(a.FailedVersions) != maxFailedVersions {
		t.Errorf("%d are remembered", len(a.FailedVersions))
	}
	for _, f := range a.FailedVersions {
		if len(f.Reason) > maxFailedReason+10 || strings.Contains(f.Reason, "\ufffd") {
			t.Fatalf("a reason has %d bytes: %q", len(f.Reason), f.Reason)
		}
	}
}
