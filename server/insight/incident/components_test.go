package incident_test

import (
	"encoding/json"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// failedComponent writes that the upgrade of a component of a host, which an action has
// ordered, failed.
func (w *world) failedComponent(t *testing.T, host, component, version, actionID string, why agentapi.UpgradeMetadata) fleet.Agent {
	t.Helper()
	a := rollouttest.Host{ID: host}.Agent()
	a.AccessKeyID = host
	a.BeginOf(component, actionID, version, w.now)
	d := &agentapi.UpgradeDetails{TargetVersion: version, ActionID: actionID, State: agentapi.UpgradeFailed, Metadata: why}
	raw, err := json.Marshal([]agentapi.Component{{ID: "component-" + component, ComponentReport: agentapi.ComponentReport{Name: component, UpgradeDetails: d}}})
	if err != nil {
		t.Fatal(err)
	}
	a.Components = raw
	a.ObserveComponents(nil, w.now)
	if err := w.store.Agents().Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return a
}

// fail publishes that the upgrade of web on a host failed before the version was started.
func (w *world) fail(t *testing.T, host, actionID, code string) {
	t.Helper()
	a := w.failedComponent(t, host, "web", "2.0.0", actionID, agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeReplacing, ErrorMsg: "the disk is gone", ReasonCode: code})
	w.Events.Publish(t.Context(), a.UpgradeEvent("web"))
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

func TestComponentBrokenBeforeTheStartOpensAnIncidentOnce(t *testing.T) {
	w := newWorld(t)
	w.Agents = w.store.Agents()
	w.fail(t, "undone", "act-1", "")
	w.fail(t, "of-a-rollout", "r1-g1-1", agentapi.FailedRollback)
	w.fail(t, "broken", "act-2", agentapi.FailedRollback)
	stop := w.follow(t)
	i := w.opened(t, 1)
	if i.AgentID != "broken" {
		t.Errorf("the incident is %+v", i)
	}
	stop()
	if _, err := w.Resolve(t.Context(), i.ID, "ann", "repaired"); err != nil {
		t.Fatal(err)
	}
	w.follow(t)
	w.fail(t, "next", "act-3", agentapi.FailedRollback) // shows that the start was handled
	w.eventually(t, i.Title, "web on host-next failed to upgrade to 2.0.0, and could not go back")
	if got := w.get(t, i.ID); got.State != fleet.IncidentResolved {
		t.Errorf("the resolved incident is %+v", got)
	}
}
