package incident_test

import (
	"encoding/json"
	"testing"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

// fail publishes that the upgrade of web on a host, which an action has ordered, failed.
func (w *world) fail(t *testing.T, host, actionID, code string) {
	t.Helper()
	a := rollouttest.Host{ID: host}.Agent()
	a.AccessKeyID = host
	a.BeginComponentUpgrade("web", actionID, "2.0.0", w.now)
	d := &agentapi.UpgradeDetails{
		TargetVersion: "2.0.0", ActionID: actionID, State: agentapi.UpgradeFailed,
		Metadata: agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeReplacing, ErrorMsg: "the disk is gone", ReasonCode: code},
	}
	raw, err := json.Marshal([]agentapi.Component{{ID: "component-web", ComponentReport: agentapi.ComponentReport{Name: "web", UpgradeDetails: d}}})
	if err != nil {
		t.Fatal(err)
	}
	a.Components = raw
	a.ObserveComponents(nil, w.now)
	if err := w.store.Agents().Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	w.Events.Publish(t.Context(), a.ComponentEvent("web"))
}

func TestComponentThatCannotBePutBackOpensAnIncident(t *testing.T) {
	w := newWorld(t)
	w.Agents = w.store.Agents()
	w.follow(t)
	w.fail(t, "undone", "act-1", "")
	w.fail(t, "of-a-rollout", "r1-g1-1", agentapi.FailedRollback) // whose incident the reconciler opens
	w.fail(t, "broken", "act-2", agentapi.FailedRollback)
	i := w.opened(t, 1)
	if i.Category != fleet.IncidentUpgradeFailed || i.Severity != "critical" || i.AgentID != "broken" || i.Component != "web" || i.Text != "the disk is gone" ||
		i.Title != "web on host-broken failed to upgrade to 2.0.0, and could not go back" {
		t.Errorf("the incident is %+v", i)
	}
}
