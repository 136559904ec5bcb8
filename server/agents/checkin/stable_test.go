package checkin

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The cache relies on it: a check-in without upgrade details that changed nothing about
// a stable agent changes nothing about any agent with the same CheckinState, at any
// time, and neither does an acknowledgement of an upgrade without an error.
func TestCheckinChangesNoAgentInTheSameState(t *testing.T) {
	start := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	versions := []string{"", "1.0.0", "2.0.0"}
	times := []*time.Time{nil, new(start.Add(-time.Hour)), new(start.Add(-24 * time.Hour))}
	raws := []json.RawMessage{nil, json.RawMessage(`{"elastic":{"agent":{"version":"1.0.0"}}}`), json.RawMessage(`{"elastic":{"agent":{"version":"2.0.0"}}}`)}
	var details []*agentapi.UpgradeDetails
	for _, state := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeWatching, agentapi.UpgradeFailed} {
		details = append(details, nil, nil, &agentapi.UpgradeDetails{State: state, ActionID: "one", TargetVersion: "2.0.0"})
	}
	kept := []agentapi.CheckinUpgrade{{}, {Rollbacks: []agentapi.Rollback{{Version: "1.0.0", ValidUntil: start}}}}
	// change draws the fields that documents differ in.
	change := func(t *rapid.T, a *fleet.Agent) {
		a.Active = true
		if rapid.Bool().Draw(t, "what it says") {
			a.Version = rapid.SampledFrom(versions).Draw(t, "version")
			a.LastHealthyVersion = rapid.SampledFrom(versions).Draw(t, "last healthy")
			a.HealthySince = rapid.SampledFrom(times).Draw(t, "healthy since")
			a.VersionSince = rapid.SampledFrom(times).Draw(t, "version since")
			a.LocalMetadata = rapid.SampledFrom(raws).Draw(t, "metadata")
			a.Kept = rapid.SampledFrom(kept).Draw(t, "kept")
			a.PolicyRev = rapid.Int64Range(0, 2).Draw(t, "policy revision")
			a.AuditUnenrolledReason = rapid.SampledFrom([]string{"", "", "", "uninstall"}).Draw(t, "audit")
		}
		a.UpgradeStartedAt = rapid.SampledFrom(times).Draw(t, "started")
		a.UpgradedAt = rapid.SampledFrom(times).Draw(t, "upgraded")
		a.UpgradeStatus = rapid.SampledFrom([]fleet.UpgradeStatus{fleet.UpgradeNone, fleet.UpgradeStarted, fleet.UpgradeFailed, fleet.UpgradeRolledBack}).Draw(t, "upgrade status")
		a.UpgradeDetails = rapid.SampledFrom(details).Draw(t, "details")
		a.UpgradeActionID = rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "action")
		a.UpgradeTo = rapid.SampledFrom(versions).Draw(t, "upgrade to")
		a.UpgradeEndReported = rapid.Bool().Draw(t, "end reported")
		if rapid.Bool().Draw(t, "watched") {
			phase := rapid.SampledFrom([]agentapi.BeaconPhase{agentapi.BeaconWatching, agentapi.BeaconRollbackFailed, agentapi.BeaconCommitted}).Draw(t, "phase")
			a.Watch = &fleet.Watch{Beacon: agentapi.Beacon{Phase: phase, To: "1.0.0", ActionID: "one"}, ReceivedAt: start.Add(-time.Minute)}
		}
		a.Tags = rapid.SampledFrom([][]string{nil, {"eu"}}).Draw(t, "tags")
	}
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		var before fleet.Agent
		change(t, &before)
		req := agentapi.CheckinRequest{
			Status:    rapid.SampledFrom([]string{"online", "degraded"}).Draw(t, "status"),
			LocalMeta: rapid.SampledFrom(raws).Draw(t, "says of itself"),
		}
		if rapid.Bool().Draw(t, "names what it keeps") {
			req.Upgrade = new(rapid.SampledFrom(kept).Draw(t, "says it keeps"))
		}
		// Most generated documents differ from the check-in, so it is applied once first.
		observe(&before, req, 0, start.Add(-time.Minute))
		seen := before
		if changed, _ := observe(&seen, req, 0, start); changed || !before.Stable() {
			return
		}
		after := before
		change(t, &after)
		if state := after.CheckinState(); state == 0 || state != before.CheckinState() {
			return
		}
		compared++
		later := start.Add(time.Duration(rapid.IntRange(0, 1_000).Draw(t, "hours")) * time.Hour)
		acked, again := after, after
		if changed, _ := observe(&again, req, 0, later); changed {
			t.Fatalf("a check-in changes %+v", after)
		}
		for _, action := range []string{"one", "two"} {
			if acked.ObserveAck(action, "", false, later) {
				t.Fatalf("an acknowledgement of %s changes %+v", action, after)
			}
		}
	})
	if compared == 0 {
		t.Error("no two documents were alike")
	}
}
