package action_test

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestOrderToProceedExistsOnce(t *testing.T) {
	w := newComponentWorld(t, "a", "b")
	o := action.ProceedOrder{
		ID: "r-gproceed-1.stop", Actor: "rollout spring", AgentIDs: []string{"a", "b"},
		ProceedData: agentapi.ProceedData{Component: "web", UpgradeID: "r-g1-1", Until: agentapi.LockstepStop},
	}
	w.must(w.service.Proceed(t.Context(), o))
	again := o
	again.AgentIDs = []string{"b"}
	w.must(w.service.Proceed(t.Context(), again))
	a, err := w.store.Actions().Get(t.Context(), o.ID)
	w.must(err)
	if a.Type != agentapi.ActionProceed || string(a.Data) != `{"component":"web","upgrade_id":"r-g1-1","until":"stop"}` || len(a.Agents) != 2 {
		t.Errorf("the action is %+v with %s", a, a.Data)
	}
	if wait := a.Expiration.Sub(a.CreatedAt); wait != 30*24*time.Hour {
		t.Errorf("it waits for hosts that are away for %s", wait)
	}
	w.ack("a", agentapi.AckEvent{ActionID: o.ID, AgentID: "a"})
	w.ack("b", agentapi.AckEvent{ActionID: o.ID, AgentID: "b", Error: "there is no such upgrade"})
	if s := w.status(a); s.Counts.Acked != 1 || s.Counts.Failed != 1 {
		t.Errorf("the status is %+v", s)
	}
	if _, err := w.service.Cancel(t.Context(), o.ID, "ann"); fleet.KindOf(err) != fleet.Invalid {
		t.Errorf("it is cancelled: %v", err)
	}
}
