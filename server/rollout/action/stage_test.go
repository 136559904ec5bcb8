package action_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func stageOrder(component, version string, ids ...string) action.UpgradeOrder {
	return action.UpgradeOrder{Stages: true, Component: component, UpgradeRequest: fleet.UpgradeRequest{Version: version}, AgentIDs: ids, Actor: "ann"}
}

// staged is what a check-in of the agent reports of its staged versions.
func (w *world) staged(id string, versions ...string) {
	w.t.Helper()
	w.change(id, func(a *fleet.Agent) { a.StagedVersions = append([]string{}, versions...) })
}

func TestVersionIsStagedWhereItCanBe(t *testing.T) {
	w := newComponentWorld(t, "old", "has", "other", "elastic")
	w.staged("has", "1.1.0")
	w.staged("other", "1.2.0")
	w.change("elastic", func(a *fleet.Agent) {
		a.LocalMetadata = json.RawMessage(`{"elastic":{"agent":{"version":"8.15.0","build":{"original":"8.15.0 (build: 1a2b)"}}}}`)
	})
	for id, want := range map[string]string{
		"old":     "agent old is of a version that cannot stage others: upgrade the agent first",
		"has":     "agent has has staged 1.1.0 already",
		"other":   "",
		"elastic": "agent elastic is an Elastic Agent, which cannot stage versions: upgrade it instead",
	} {
		w.must(w.service.EachVerdict(t.Context(), stageOrder("", "1.1.0", id), func(v action.Verdict) {
			if got := ""; v.Err != nil {
				got = v.Err.Error()
				if got != want {
					t.Errorf("%s: %q, want %q", id, got, want)
				}
			} else if want != "" {
				t.Errorf("%s can stage it, want %q", id, want)
			}
		}))
	}
	a, err := w.service.Upgrade(t.Context(), stageOrder("", "1.1.0", "old", "has", "other"))
	w.must(err)
	if a.Type != agentapi.ActionStage || string(a.Data) != `{"version":"1.1.0"}` || len(a.Agents) != 1 || a.Agents[0] != "other" || a.Expiration == nil {
		t.Errorf("the action is %+v", a)
	}
	if agent := w.agent("other"); agent.Upgrading() {
		t.Error("the agent counts as being upgraded")
	}

	// The acknowledgement ends it, and the CANCEL of one that waits too.
	w.ack("other", agentapi.AckEvent{ActionID: a.ID, AgentID: "other", Message: "1.1.0 is staged"})
	if s := w.status(a); s.State != fleet.ActionFailed || s.Counts.Acked != 1 || s.Counts.Failed != 2 || s.Done() != 1 {
		t.Errorf("the status is %+v", s)
	}
	b, err := w.service.Upgrade(t.Context(), stageOrder("web", "2.5.0", "other"))
	w.must(err)
	var d agentapi.UpgradeData
	w.must(json.Unmarshal(b.Data, &d))
	if d.Component == nil || d.Component.Name != "web" || d.Version != "2.5.0" {
		t.Errorf("the data is %s", b.Data)
	}
	if _, err := w.service.Cancel(t.Context(), b.ID, "ann"); err != nil {
		t.Error(err)
	}
	if s := w.status(b); s.State != fleet.ActionCancelled {
		t.Errorf("after its CANCEL the status is %+v", s)
	}
}

// Staging stops nothing, so what holds up upgrades does not hold it up.
func TestRunningRolloutDoesNotHoldUpAStage(t *testing.T) {
	w := newComponentWorld(t, "a")
	w.staged("a")
	w.service.Locks = locks(func(context.Context, []fleet.Agent) (map[string]string, error) {
		return map[string]string{"a": "agent a belongs to the active rollout spring (r1)"}, nil
	})
	o := order("1.1.0", "a")
	o.Single = true
	if _, err := w.service.Upgrade(t.Context(), o); err == nil || !strings.Contains(err.Error(), "spring") {
		t.Errorf("an upgrade: %v", err)
	}
	if a, err := w.service.Upgrade(t.Context(), stageOrder("", "1.1.0", "a")); err != nil || len(a.Agents) != 1 {
		t.Errorf("the stage is %+v, %v", a, err)
	}
}
