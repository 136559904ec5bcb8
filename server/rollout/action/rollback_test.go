package action_test

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func (w *world) keep(id, version string, left time.Duration) {
	w.t.Helper()
	w.change(id, func(a *fleet.Agent) {
		a.Version = "1.1.0"
		a.Kept.Rollbacks = []agentapi.Rollback{{Version: version, ValidUntil: w.now.Add(left)}}
	})
}

func back(ids ...string) action.RollbackOrder {
	return action.RollbackOrder{AgentIDs: ids, Actor: "ann"}
}

func TestRollbackCreatesOneActionForEachVersion(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "bare")
	w.keep("a", "1.0.0", time.Hour)
	w.keep("b", "0.9.0", time.Hour)
	w.keep("c", "1.0.0", 3*time.Hour)
	ids := []string{"bare", "a", "b", "c", "unknown"}
	verdicts, err := previewed(t.Context(), w.service.EachRollbackVerdict, back(ids...))
	w.must(err)
	if w.upgrading("a") {
		t.Error("a preview has begun the rollback")
	}
	actions, err := w.service.Rollback(t.Context(), back(ids...))
	w.must(err)
	if len(actions) != 2 || actions[0].Upgrade() != (agentapi.UpgradeData{Version: "1.0.0", Rollback: true}) || actions[1].Upgrade().Version != "0.9.0" {
		t.Fatalf("actions are %+v", actions)
	}
	first := actions[0]
	if first.CreatedBy != "ann" || first.Actioned != 4 || !slices.Equal(first.Agents, []string{"a", "c"}) || !first.Expiration.Equal(w.now.Add(3*time.Hour)) {
		t.Errorf("the first action is %+v", first)
	}
	for i, v := range verdicts {
		r := w.result(first, ids[i])
		switch {
		case v.Agent.ID != ids[i]:
			t.Errorf("verdict %d is about %s", i, v.Agent.ID)
		case v.Err == nil && (r != nil || !w.upgrading(ids[i]) || w.agent(ids[i]).UpgradeTo != v.To.Version):
			t.Errorf("%s was to go back to %s: %v", ids[i], v.To.Version, r)
		case v.Err != nil && (r == nil || r.Error != v.Err.Error()):
			t.Errorf("%s was to be refused with %q, its result is %v", ids[i], v.Err, r)
		}
	}
	if types := w.eventTypes(0); !slices.Equal(types, []string{
		fleet.EventActionCreated, fleet.EventAgentUpgrade, fleet.EventAgentUpgrade, fleet.EventActionCreated, fleet.EventAgentUpgrade,
	}) {
		t.Errorf("events are %v", types)
	}
}

func TestRollbackRefusalsHaveAReason(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, err := w.service.Rollback(t.Context(), back("a"))
	w.wantKind(err, fleet.Invalid, "upgrade rollback not available for agent")
	_, err = w.service.Rollback(t.Context(), back("unknown"))
	w.wantKind(err, fleet.NotFound, "Agent unknown not found")
	_, err = w.service.Rollback(t.Context(), back("a", "b"))
	w.wantKind(err, fleet.Invalid, "none of the 2 agents")
	_, err = w.service.Rollback(t.Context(), back())
	w.wantKind(err, fleet.Invalid, "is empty")
	if list, err := w.service.List(t.Context(), store.ActionQuery{Limit: 10}, 10); err != nil || len(list) != 0 {
		t.Errorf("actions are %v, %v", list, err)
	}
}

func TestRollbackChecksAChangedAgentAgain(t *testing.T) {
	w := newWorld(t, "touched", "moved")
	w.keep("touched", "1.0.0", time.Hour)
	w.keep("moved", "1.0.0", time.Hour)
	first := true
	w.store.updateMany = func() error {
		if first {
			first = false
			w.change("touched", func(a *fleet.Agent) { a.Tags = []string{"edge"} })
			w.change("moved", func(a *fleet.Agent) { a.Kept.Rollbacks[0].Version = "0.9.0" })
		}
		return nil
	}
	actions, err := w.service.Rollback(t.Context(), back("touched", "moved"))
	w.must(err)
	if len(actions) != 1 || !slices.Equal(actions[0].Agents, []string{"touched"}) {
		t.Fatalf("actions are %+v", actions)
	}
	if r := w.result(actions[0], "moved"); r == nil || w.upgrading("moved") {
		t.Errorf("the one that moved has the result %v", r)
	}
}

// The store goes away between the marks and the action.
func TestRollbackIsContinuedAfterTheStoreWasAway(t *testing.T) {
	w := newWorld(t, "a")
	w.keep("a", "1.0.0", time.Hour)
	w.store.create = away
	_, err := w.service.Rollback(t.Context(), back("a"))
	w.wantKind(err, fleet.Unavailable, "away")
	w.store.create = nil
	w.now = w.now.Add(fleet.CreateGrace + time.Second)
	w.must(w.service.ReconcileUpgradesOnce(t.Context()))
	if a := w.agent("a"); !a.Upgrading() {
		t.Errorf("the mark of an order that goes on was cleared: %q", a.UpgradeStatus)
	}
	done, err := w.service.Rollback(t.Context(), back("a"))
	w.must(err)
	if got := w.agent("a"); len(done) != 1 || !slices.Equal(done[0].Agents, []string{"a"}) || got.UpgradeActionID != done[0].ID {
		t.Errorf("the repeated order made %+v, the agent is %s of %s", done, got.UpgradeStatus, got.UpgradeActionID)
	}
}

// The watcher has put the older version back, which is never heard of again.
func TestReconcileUpgradesEndsARollbackOfASilentAgent(t *testing.T) {
	w := newWorld(t, "a")
	up := w.upgrade("a")
	w.change("a", func(a *fleet.Agent) {
		a.ObserveUpgrade("1.1.0", &agentapi.UpgradeDetails{ActionID: up.ID, TargetVersion: "1.1.0", State: agentapi.UpgradeWatching}, w.now)
	})
	actions, err := w.service.Rollback(t.Context(), back("a"))
	w.must(err)
	w.change("a", func(a *fleet.Agent) {
		a.ObserveBeacon(agentapi.Beacon{
			ActionID: up.ID, From: "1.0.0", To: "1.1.0", Phase: agentapi.BeaconRolledBack, Reason: &agentapi.BeaconCause{Code: "manual", Text: "asked for"}, At: w.now,
		}, w.now)
	})
	w.must(w.service.ReconcileUpgradesOnce(t.Context()))
	if !w.upgrading("a") {
		t.Fatal("it was given up at once")
	}
	w.now = w.now.Add(fleet.AckGrace + time.Second)
	w.must(w.service.ReconcileUpgradesOnce(t.Context()))
	if r := w.result(actions[0], "a"); r == nil || r.Error == "" || w.upgrading("a") {
		t.Errorf("its result is %v", r)
	}
}

func TestUpgradeCancelledInFlightHasNoResult(t *testing.T) {
	for name, order := range map[string][]string{"CANCEL first": {"cancel", "upgrade"}, "UPGRADE first": {"upgrade", "cancel"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a")
			up := w.upgrade("a")
			w.change("a", func(a *fleet.Agent) {
				a.UpgradeDetails = &agentapi.UpgradeDetails{ActionID: up.ID, TargetVersion: "1.1.0", State: agentapi.UpgradeDownloading}
			})
			c, err := w.service.Cancel(t.Context(), up.ID, "ann")
			w.must(err)
			if !w.upgrading("a") {
				t.Fatal("an agent that has begun was not asked")
			}
			events := map[string]agentapi.AckEvent{
				"cancel":  {ActionID: c.ID, AgentID: "a"},
				"upgrade": {ActionID: up.ID, AgentID: "a", Error: agentapi.Cancelled},
			}
			for _, e := range order {
				w.wantItem(w.ack("a", events[e])[0], 200, "OK")
				if a := w.agent("a"); a.Upgrading() || a.UpgradeStatus != fleet.UpgradeNone || a.UpgradeDetails != nil || a.UpgradedAt != nil {
					t.Errorf("after %s: %q, %+v", e, a.UpgradeStatus, a.UpgradeDetails)
				}
			}
			if s := w.status(up); w.result(up, "a") != nil || s.State != fleet.ActionCancelled || s.Counts.Failed != 0 {
				t.Errorf("result %v, state %s with %+v", w.result(up, "a"), s.State, s.Counts)
			}
		})
	}
	t.Run("an upgrade cancelled on the host has a result", func(t *testing.T) {
		w := newWorld(t, "a")
		up := w.upgrade("a")
		w.ack("a", agentapi.AckEvent{ActionID: up.ID, Error: agentapi.Cancelled})
		if r, a := w.result(up, "a"), w.agent("a"); r == nil || a.UpgradeStatus != fleet.UpgradeNone || a.Upgrading() {
			t.Errorf("result %v, agent %q", r, a.UpgradeStatus)
		}
	})
	t.Run("an upgrade that failed by itself has a result", func(t *testing.T) {
		w := newWorld(t, "a")
		up := w.upgrade("a")
		w.change("a", func(a *fleet.Agent) {
			a.UpgradeDetails = &agentapi.UpgradeDetails{ActionID: up.ID, TargetVersion: "1.1.0", State: agentapi.UpgradeDownloading}
		})
		_, err := w.service.Cancel(t.Context(), up.ID, "ann")
		w.must(err)
		w.ack("a", agentapi.AckEvent{ActionID: up.ID, Error: "the disk is full"})
		if r, a := w.result(up, "a"), w.agent("a"); r == nil || a.UpgradeStatus != fleet.UpgradeFailed {
			t.Errorf("result %v, agent %q", r, a.UpgradeStatus)
		}
	})
}

func TestSupersededUpgradeDoesNotChangeTheNewerOne(t *testing.T) {
	w := newWorld(t, "a")
	old := w.upgrade("a")
	o := order("1.2.0", "a")
	o.Force = true
	newer, err := w.service.Upgrade(t.Context(), o)
	w.must(err)
	w.ack("a", agentapi.AckEvent{ActionID: old.ID, Error: "superseded by the newer upgrade " + newer.ID})
	a := w.agent("a")
	if !a.Upgrading() || a.UpgradeActionID != newer.ID || a.UpgradeTo != "1.2.0" || a.UpgradeDetails != nil {
		t.Errorf("the newer one is %+v", a)
	}
	if s := w.status(old); s.State != fleet.ActionFailed || len(s.Errors) != 1 {
		t.Errorf("the older one is %s with %+v", s.State, s.Errors)
	}
	if s := w.status(newer); s.State != fleet.ActionInProgress {
		t.Errorf("the newer one is %s", s.State)
	}
}

func TestRollbackGoesForwardOnlyIfThatIsMeant(t *testing.T) {
	w := newWorld(t, "a")
	w.keep("a", "9.0.0", time.Hour)
	_, err := w.service.Rollback(t.Context(), back("a"))
	w.wantKind(err, fleet.Invalid, "would go forward to 9.0.0")
	if w.upgrading("a") {
		t.Error("it goes forward")
	}
	o := back("a")
	o.Forward = true
	if made, err := w.service.Rollback(t.Context(), o); err != nil || len(made) != 1 || made[0].Upgrade().Version != "9.0.0" {
		t.Errorf("as meant, it makes %+v, %v", made, err)
	}
}
