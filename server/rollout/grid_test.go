package rollout_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The grid has every target in the rollout's order, and a host that has reached the version is
// committed only when its own watch is over, however short the plan's wait was.
func TestGridHasAllTargetsInOrder(t *testing.T) {
	d := newHarness(t)
	wide := fleet.Rollout{ID: "wide", Generation: 3, State: fleet.RolloutRunning, Plan: fleet.Plan{Version: "1.2.0"}}
	d.must(d.store.Rollouts().Create(t.Context(), wide))
	ended := d.now.Add(-time.Minute)
	var targets []fleet.Target
	add := func(host string, batch int, s fleet.TargetState, change ...func(*fleet.Target)) {
		target := fleet.Target{RolloutID: "wide", AgentID: "id-" + host, Hostname: host, Batch: batch, Place: len(targets), State: s, To: "1.2.0"}
		for _, c := range change {
			c(&target)
		}
		targets = append(targets, target)
	}
	succeeded := func(t *fleet.Target) { t.EndedAt, t.ActionID = &ended, "u1" }
	add("zeta", 0, fleet.TargetSucceeded, succeeded)
	add("alpha", 0, fleet.TargetSucceeded, succeeded)
	add("gone", 0, fleet.TargetSucceeded, succeeded)
	add("beta", 1, fleet.TargetOffered, func(t *fleet.Target) { t.Phase = string(agentapi.UpgradeDownloading) })
	add("gamma", 1, fleet.TargetHeld)
	add("delta", 2, fleet.TargetPending)
	d.must(d.store.Targets().Create(t.Context(), targets))
	for _, host := range []string{"zeta", "alpha"} {
		a := document("id-"+host, "1.2.0", fleet.DefaultPolicyID, d.now)
		a.UpgradeActionID, a.UpgradeTo, a.UpgradedAt = "u1", "1.2.0", &ended
		if host == "alpha" {
			a.UpgradeDetails = &agentapi.UpgradeDetails{TargetVersion: "1.2.0", ActionID: "u1", State: agentapi.UpgradeWatching}
		}
		d.must(d.store.Agents().Create(t.Context(), a))
	}
	g, err := d.service.Grid(t.Context(), "wide")
	d.must(err)
	want := "[zeta alpha gone beta gamma delta] [0 0 0 1 1 2] [committed watching committed downloading waiting_for_host ] 3"
	if got := fmt.Sprint(g.Hostnames, g.Batches, g.Progress, g.Generation); got != want {
		t.Errorf("the grid has\n%s, want\n%s", got, want)
	}
	progress, err := d.service.Progress(t.Context(), &wide, targets[1:3])
	d.must(err)
	if fmt.Sprint(progress) != "[watching committed]" {
		t.Errorf("two of its targets are %s", progress)
	}
	_, err = d.service.Grid(t.Context(), "none")
	d.wantKind(err, fleet.NotFound, "no rollout")
}
