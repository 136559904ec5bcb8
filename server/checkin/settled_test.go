package checkin

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// The cache relies on it: a check-in without upgrade details that changed nothing about
// a settled agent changes nothing at any later time.
func TestTimeAloneChangesNothingAboutASettledAgent(t *testing.T) {
	start := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	versions := []string{"", "1.0.0", "2.0.0"}
	times := []*time.Time{nil, new(start.Add(-time.Hour)), new(start.Add(-24 * time.Hour))}
	raws := []json.RawMessage{nil, json.RawMessage(`{"elastic":{"agent":{"version":"1.0.0"}}}`), json.RawMessage(`{"elastic":{"agent":{"version":"2.0.0"}}}`)}
	details := []*agentapi.UpgradeDetails{nil, nil, nil, {State: agentapi.UpgradeDownloading, ActionID: "one", TargetVersion: "2.0.0"}, {State: agentapi.UpgradeFailed, ActionID: "one", TargetVersion: "2.0.0"}}
	settled := 0
	rapid.Check(t, func(t *rapid.T) {
		a := fleet.Agent{
			Active:  true,
			Version: rapid.SampledFrom(versions).Draw(t, "version"), LastHealthyVersion: rapid.SampledFrom(versions).Draw(t, "last healthy"),
			HealthySince: rapid.SampledFrom(times).Draw(t, "healthy since"), VersionSince: rapid.SampledFrom(times).Draw(t, "version since"),
			LocalMetadata:    rapid.SampledFrom(raws).Draw(t, "metadata"),
			UpgradeStartedAt: rapid.SampledFrom(times).Draw(t, "started"), UpgradedAt: rapid.SampledFrom(times).Draw(t, "upgraded"),
			UpgradeStatus:   rapid.SampledFrom([]fleet.UpgradeStatus{fleet.UpgradeNone, fleet.UpgradeStarted, fleet.UpgradeFailed, fleet.UpgradeRolledBack}).Draw(t, "upgrade status"),
			UpgradeDetails:  rapid.SampledFrom(details).Draw(t, "details"),
			UpgradeActionID: rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "action"), UpgradeTarget: rapid.SampledFrom(versions).Draw(t, "target"),
			UpgradeEndTold: rapid.Bool().Draw(t, "end told"),
		}
		if rapid.Bool().Draw(t, "watched") {
			stage := rapid.SampledFrom([]agentapi.BeaconStage{agentapi.BeaconWatching, agentapi.BeaconRollbackFailed, agentapi.BeaconCommitted}).Draw(t, "stage")
			a.Watch = &fleet.Watch{Beacon: agentapi.Beacon{Stage: stage, To: "1.0.0", ActionID: "one"}, ReceivedAt: start.Add(-time.Minute)}
		}
		req := agentapi.CheckinRequest{
			Status:    rapid.SampledFrom([]string{"online", "degraded"}).Draw(t, "status"),
			LocalMeta: rapid.SampledFrom(raws).Draw(t, "says of itself"),
		}
		observe(&a, req, 0, start.Add(-time.Minute)) // most documents are not what the check-in says
		if changed, _ := observe(&a, req, 0, start); changed || !a.Settled() {
			return
		}
		settled++
		later := start.Add(time.Duration(rapid.IntRange(0, 1_000).Draw(t, "hours")) * time.Hour)
		if changed, _ := observe(&a, req, 0, later); changed {
			t.Fatalf("the same check-in changes %+v", a)
		}
	})
	if settled == 0 {
		t.Error("no agent was settled")
	}
}
