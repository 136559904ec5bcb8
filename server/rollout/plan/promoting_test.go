package plan

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// A declared fleet whose spec changes replaces its rollout, unless that is promoting.
func TestPromoting(t *testing.T) {
	cleared := func(kind fleet.BatchKind) fleet.Batch {
		return fleet.Batch{Kind: kind, StartedAt: &afternoon, EndedAt: &afternoon, ClearedAt: &afternoon}
	}
	under := func(kind fleet.BatchKind) fleet.Batch {
		return fleet.Batch{Kind: kind, StartedAt: &afternoon, EndedAt: &afternoon}
	}
	canary := fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{}}}
	rings := fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Rings, Canary: &fleet.CanaryRule{}}}
	approval := fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Canary, Canary: &fleet.CanaryRule{Approval: true}}}
	breaking := canary
	breaking.Migration.Type = fleet.MigrationBreaking
	lockstep := fleet.Plan{Component: "web", Strategy: fleet.Strategy{Kind: fleet.LockstepStrategy}}
	passed := []fleet.Batch{cleared(fleet.BatchCanary), under(fleet.BatchRegular)}
	observed := []fleet.Batch{under(fleet.BatchCanary), {Kind: fleet.BatchRegular}}
	word := &fleet.Decision{By: "ann", At: afternoon}
	committed, commit := &fleet.Lockstep{Phase: fleet.LockstepSwitch}, afternoon.Add(time.Minute)
	committed.CommittedAt = &commit

	for name, c := range map[string]struct {
		r    fleet.Rollout
		want bool
	}{
		"canaries are observed":                     {fleet.Rollout{Plan: canary, Batches: observed}, false},
		"canaries are done":                         {fleet.Rollout{Plan: canary, Batches: passed}, true},
		"canaries before the rings are done":        {fleet.Rollout{Plan: rings, Batches: passed}, true},
		"one of two batches of canaries is done":    {fleet.Rollout{Plan: rings, Batches: []fleet.Batch{cleared(fleet.BatchCanary), under(fleet.BatchCanary)}}, false},
		"both batches of canaries are done":         {fleet.Rollout{Plan: rings, Batches: []fleet.Batch{cleared(fleet.BatchCanary), cleared(fleet.BatchCanary)}}, true},
		"rings without canaries":                    {fleet.Rollout{Plan: fleet.Plan{Strategy: fleet.Strategy{Kind: fleet.Rings}}, Batches: []fleet.Batch{cleared(fleet.BatchRegular)}}, false},
		"rolling, in its second batch":              {fleet.Rollout{Plan: rolling(), Batches: []fleet.Batch{cleared(fleet.BatchRegular), under(fleet.BatchRegular)}}, false},
		"canaries are done and nobody has approved": {fleet.Rollout{Plan: approval, Batches: passed}, false},
		"canaries are done and approved":            {fleet.Rollout{Plan: approval, Batches: passed, Approved: word}, true},
		"approved before the observation ended":     {fleet.Rollout{Plan: approval, Batches: observed, Approved: word}, false},
		"a breaking migration implies the approval": {fleet.Rollout{Plan: breaking, Batches: passed}, false},
		"promoted while canaries are observed":      {fleet.Rollout{Plan: canary, Batches: observed, Promoted: word}, true},
		"promoted instead of approved":              {fleet.Rollout{Plan: approval, Batches: passed, Promoted: word}, true},
		"promoted without canaries":                 {fleet.Rollout{Plan: rolling(), Promoted: word}, true},
		"lockstep before the commit":                {fleet.Rollout{Plan: lockstep, Lockstep: &fleet.Lockstep{Phase: fleet.LockstepBackup}}, false},
		"lockstep before its first round":           {fleet.Rollout{Plan: lockstep}, false},
		"lockstep after the commit":                 {fleet.Rollout{Plan: lockstep, Lockstep: committed}, true},
		"lockstep that is undone":                   {fleet.Rollout{Plan: lockstep, Lockstep: &fleet.Lockstep{Phase: fleet.LockstepUndo, Undo: &fleet.Undo{}}}, false},
		"it has no batches yet":                     {fleet.Rollout{Plan: canary}, false},
	} {
		c.r.State = fleet.RolloutRunning
		if got := Promoting(&c.r); got != c.want {
			t.Errorf("running, %s: promoting is %t", name, got)
		}
		for _, kind := range []fleet.StopKind{fleet.StopOperator, fleet.StopSuccess, fleet.StopRollback, fleet.StopVerify} {
			c.r.State, c.r.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: kind}
			if got := Promoting(&c.r); got != c.want {
				t.Errorf("paused (%s), %s: promoting is %t", kind, name, got)
			}
		}
		for _, kind := range []fleet.StopKind{fleet.StopThreshold, fleet.StopCanary, fleet.StopExposure, fleet.StopDeadline} {
			c.r.Stop.Kind = kind
			if Promoting(&c.r) {
				t.Errorf("stopped by the gate %s, %s: it is promoting", kind, name)
			}
		}
		c.r.Stop = nil
		for _, state := range []fleet.RolloutState{fleet.RolloutDraft, fleet.RolloutCancelling, fleet.RolloutCompleted, fleet.RolloutFailed, fleet.RolloutCancelled, fleet.RolloutRolledBack} {
			if c.r.State = state; Promoting(&c.r) {
				t.Errorf("%s, %s: it is promoting", state, name)
			}
		}
	}
}
