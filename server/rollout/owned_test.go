package rollout_test

import (
	"context"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
)

// owners decides about the agents of its own, until it is suspended.
type owners struct {
	name      string
	own       []string
	suspended bool
}

func (o *owners) Of(context.Context, string) (func(*fleet.Agent) string, error) {
	return func(a *fleet.Agent) string {
		if !o.suspended && slices.Contains(o.own, a.ID) {
			return o.name
		}
		return ""
	}, nil
}

func (o *owners) TakeOver(context.Context, string, string, string) error {
	o.suspended = true
	return nil
}

// A fleet would bring agents that are rolled back forward again.
func TestRollbackOfADeclaredRolloutSuspendsItsFleet(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b")
	r := d.start()
	for _, id := range []string{"a", "b"} {
		d.end(r.ID, id, fleet.TargetSucceeded)
	}
	edge := &owners{name: "edge", own: []string{"b"}}
	d.service.Owners = edge
	_, err := d.service.Rollback(t.Context(), r.ID, rollout.ScopeAll, kim)
	d.wantKind(err, fleet.Conflict, "1 of the agents belong to the fleet edge")
	if got := d.rollout(r.ID); got.State != fleet.RolloutRunning || edge.suspended {
		t.Errorf("it was refused, and the rollout is %s", got.State)
	}
	takes := kim
	takes.TakeOver = "edge"
	for range 2 {
		back, err := d.service.Rollback(t.Context(), r.ID, rollout.ScopeAll, takes)
		d.must(err)
		if back.Counts.Total != 2 || !edge.suspended {
			t.Errorf("it rolls back %d agents, and the fleet is suspended: %v", back.Counts.Total, edge.suspended)
		}
		takes.TakeOver = "" // a repeated command needs no confirmation
	}
}
