package rollout

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

// anyRollout draws a rollout, also of combinations that no rollout reaches: the rules must agree
// there too.
func anyRollout(rt *rapid.T) (fleet.Rollout, plan.Around) {
	state := rapid.SampledFrom([]fleet.RolloutState{
		fleet.RolloutDraft, fleet.RolloutRunning, fleet.RolloutPaused, fleet.RolloutCancelling, fleet.RolloutCompleted, fleet.RolloutFailed, fleet.RolloutCancelled, fleet.RolloutRolledBack,
	}).Draw(rt, "state")
	flip := func(name string) bool { return rapid.Bool().Draw(rt, name) }
	few := func(name string) int { return rapid.IntRange(0, 2).Draw(rt, name) }
	kim := &fleet.Decision{By: "kim", At: rollouttest.Hour}
	r := rollouttest.InState(state)
	r.Plan.Strategy.Kind = rapid.SampledFrom([]fleet.StrategyKind{fleet.Rolling, fleet.Canary, fleet.LockstepStrategy, "of tomorrow"}).Draw(rt, "strategy")
	r.Counts = fleet.Counts{Failed: few("failed"), RolledBack: few("rolled back"), Succeeded: few("succeeded"), Pending: few("pending"), Upgrading: few("upgrading"), Withdrawn: few("withdrawn")}
	if state == fleet.RolloutPaused {
		kinds := []fleet.StopKind{fleet.StopOperator, fleet.StopSuccess, fleet.StopThreshold, fleet.StopCanary, fleet.StopExposure, fleet.StopDeadline, fleet.StopRollback, fleet.StopVerify}
		rollouttest.StoppedBy(rapid.SampledFrom(kinds).Draw(rt, "stop"))(&r)
	}
	for _, d := range []struct {
		name string
		of   **fleet.Decision
	}{{"pause asked", &r.PauseAsked}, {"approved", &r.Approved}, {"forced", &r.Forced}, {"promoted", &r.Promoted}} {
		if flip(d.name) {
			*d.of = kim
		}
	}
	if flip("canaries") {
		r.Plan.Strategy.Canary = &fleet.CanaryRule{Approval: flip("approval")}
		r.Batches[0].Kind, r.Batches[0].Counts = fleet.BatchCanary, fleet.Counts{Total: 3, Succeeded: 2, Failed: few("failed canaries")}
		if flip("canaries ended") {
			r.Batches[0].EndedAt = r.StartedAt
		}
	}
	if flip("deadline passed") {
		r.Plan.Strategy.Deadline = &r.CreatedAt
	}
	if r.Plan.Strategy.Kind == fleet.LockstepStrategy && state != fleet.RolloutDraft {
		phases := []fleet.LockstepPhase{fleet.LockstepVerify, fleet.LockstepBackup, fleet.LockstepSwitch, fleet.LockstepUndo}
		lockstepIn(rapid.SampledFrom(phases).Draw(rt, "phase"))(&r)
	}
	if flip("a rollback itself") {
		r.RollbackOf = "r0"
	}
	if flip("pinned") {
		r.Pin = &fleet.Pin{Hash: "sha256:1"}
	}
	if flip("retries already") {
		r.Orders = []fleet.Order{{Kind: fleet.OrderRetry}}
	}
	var a plan.Around
	if flip("rolled back") {
		back := rollouttest.InState(rapid.SampledFrom([]fleet.RolloutState{fleet.RolloutDraft, fleet.RolloutRunning, fleet.RolloutCompleted}).Draw(rt, "rollback is"))
		back.ID, back.RollbackOf = rapid.SampledFrom([]Scope{ScopeAll, ScopeFailed}).Draw(rt, "scope").id(r.ID), r.ID
		a.Backs, r.RolledBackBy = []fleet.Rollout{back}, back.ID
	}
	if flip("its policy is locked") {
		a.Locked = fleet.Errorf(fleet.Conflict, "another rollout has the policy")
	}
	return r, a
}

// What the list of commands says of one is what becomes of it: the service accepts a command and
// changes the rollout if and only if it is possible, and refuses it without a reason if and only
// if it needs one.
func TestCommandsThatArePossibleAreAccepted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r, a := anyRollout(rt)
		listed := plan.Commands(&r, a, rollouttest.Hour)
		primary := 0
		for i, c := range listed {
			if c.Allowed == (c.Reason != "") {
				rt.Fatalf("%+v must have a reason exactly if it is not possible", c)
			}
			if c.Primary {
				primary++
			}
			if c.Primary && (i != 0 || !c.Allowed) || primary > 1 {
				rt.Fatalf("the primary command is not the first, or not possible: %+v", listed)
			}
			do := changes[c.Name]
			if do == nil {
				continue // start, rollbacks and the like also depend on the fleet
			}
			after := r
			after.Orders = slices.Clone(r.Orders)
			text, err := command{name: c.Name, decide: do}.apply(&after, a, Request{Actor: "kim", Why: "I looked"}, rollouttest.Hour)
			if accepted := err == nil && text != ""; accepted != c.Allowed {
				rt.Fatalf("%s of %+v: accepted is %t (%q, %v), the list has %+v", c.Name, r, accepted, text, err, c)
			}
			if !c.Allowed {
				continue
			}
			after = r
			_, err = command{name: c.Name, decide: do}.apply(&after, a, Request{Actor: "kim"}, rollouttest.Hour)
			if (err != nil) != c.NeedsReason {
				rt.Fatalf("%s without a reason: %v, the list has %+v", c.Name, err, c)
			}
		}
	})
}
