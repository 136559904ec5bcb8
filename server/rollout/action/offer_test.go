package action_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func offer(w *world, id, version string, agents ...string) action.Offer {
	return action.Offer{ID: id, UpgradeRequest: fleet.UpgradeRequest{Version: version}, AgentIDs: agents, Expiration: w.now.Add(time.Hour), Actor: "rollout Tuesday"}
}

func (w *world) offer(o action.Offer) map[string]error {
	w.t.Helper()
	refused, err := w.service.Offer(w.t.Context(), o)
	w.must(err)
	return refused
}

func (w *world) action(id string) fleet.Action {
	w.t.Helper()
	a, err := w.store.Actions().Get(w.t.Context(), id)
	w.must(err)
	return a
}

func TestOffers(t *testing.T) {
	t.Run("mark agents that can follow, and return why the others cannot", func(t *testing.T) {
		w := newWorld(t, "a", "b", "there", "busy")
		w.change("there", func(a *fleet.Agent) { a.Version = "1.1.0" })
		w.upgrade("busy")
		refused := w.offer(offer(w, "r-g1-1", "1.1.0", "a", "there", "busy", "b", "nobody"))
		if len(refused) != 3 || refused["there"] == nil || refused["busy"] == nil || fleet.KindOf(refused["nobody"]) != fleet.NotFound {
			t.Errorf("refused are %v", refused)
		}
		a := w.action("r-g1-1")
		if !slices.Equal(a.Agents, []string{"a", "b"}) || a.Actioned != 2 || a.Upgrade().Version != "1.1.0" || a.CreatedBy != "rollout Tuesday" {
			t.Errorf("the action is %+v", a)
		}
		if b := w.agent("b"); b.UpgradeActionID != "r-g1-1" || !b.Upgrading() {
			t.Errorf("the mark is %+v", b)
		}
		if r := w.result(a, "there"); r != nil {
			t.Errorf("a refused agent has the result %+v", r)
		}
	})
	t.Run("of a rollout that the server created are marked", func(t *testing.T) {
		w := newWorld(t, "a")
		o := offer(w, "r-g1-1", "1.1.0", "a")
		o.Automatic = true
		w.offer(o)
		if a := w.action("r-g1-1"); !a.Automatic {
			t.Errorf("the action is %+v", a)
		}
	})
	t.Run("are created once", func(t *testing.T) {
		w := newWorld(t, "a", "late")
		w.change("late", func(a *fleet.Agent) { a.Version = "1.1.0" })
		w.offer(offer(w, "r-g1-1", "1.1.0", "a", "late"))
		before := w.agent("a")
		refused := w.offer(offer(w, "r-g1-1", "1.1.0", "a", "late"))
		if len(refused) != 1 || refused["late"] == nil || w.agent("a").Revision != before.Revision {
			t.Errorf("the second time refused %v", refused)
		}
		w.change("late", func(a *fleet.Agent) { a.Version = "1.0.0" })
		refused = w.offer(offer(w, "r-g1-1", "1.1.0", "a", "late"))
		if !errors.Is(refused["late"], action.ErrOtherOffer) || w.upgrading("late") {
			t.Errorf("an agent that is not in the action is refused with %v", refused["late"])
		}
	})
	t.Run("that no agent can follow create no action", func(t *testing.T) {
		w := newWorld(t, "there")
		w.change("there", func(a *fleet.Agent) { a.Version = "1.1.0" })
		if refused := w.offer(offer(w, "r-g1-1", "1.1.0", "there")); len(refused) != 1 {
			t.Errorf("refused are %v", refused)
		}
		_, err := w.store.Actions().Get(t.Context(), "r-g1-1")
		w.wantKind(err, fleet.NotFound, "")
	})
	t.Run("with force do not reinstall the running version", func(t *testing.T) {
		w := newWorld(t, "a")
		o := offer(w, "r-g1-1", "1.0.0", "a")
		o.Force = true
		if refused := w.offer(o); refused["a"] == nil {
			t.Error("it was offered what it runs")
		}
	})
	t.Run("are completed after a crash between marks and action", func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.store.create = away
		if _, err := w.service.Offer(t.Context(), offer(w, "r-g1-1", "1.1.0", "a", "b")); err == nil {
			t.Fatal("no error although the action was not made")
		}
		w.store.create = nil
		began := *w.agent("a").UpgradeStartedAt
		w.now = w.now.Add(30 * time.Second)
		if refused := w.offer(offer(w, "r-g1-1", "1.1.0", "a", "b")); len(refused) != 0 {
			t.Errorf("refused are %v", refused)
		}
		if a := w.action("r-g1-1"); len(a.Agents) != 2 || !w.agent("a").UpgradeStartedAt.Equal(began) {
			t.Errorf("the action is %+v", a)
		}
	})
	t.Run("of an executor that was suspended while they were withdrawn are not created", func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.store.create = away
		_, _ = w.service.Offer(t.Context(), offer(w, "r-g1-1", "1.1.0", "a", "b"))
		w.store.create = nil
		w.withdraw("r-g1-1", "a")
		if refused := w.offer(offer(w, "r-g1-1", "1.1.0", "a", "b")); refused["a"] == nil || refused["b"] != nil || w.upgrading("a") {
			t.Errorf("refused are %v", refused)
		}
	})
	t.Run("of a rollback go to the version kept", func(t *testing.T) {
		w := newWorld(t, "a", "other")
		for id, kept := range map[string]string{"a": "1.0.0", "other": "0.9.0"} {
			w.change(id, func(a *fleet.Agent) {
				a.Version, a.Kept.Rollbacks = "1.1.0", []agentapi.Rollback{{Version: kept, ValidUntil: w.now.Add(time.Hour)}}
			})
		}
		o := offer(w, "r-g1-1", "1.0.0", "a", "other")
		o.Rollback = true
		if refused := w.offer(o); refused["a"] != nil || refused["other"] == nil {
			t.Errorf("refused are %v", refused)
		}
		if a := w.agent("a"); !a.UpgradeRollback || a.UpgradeTo != "1.0.0" || !w.action("r-g1-1").Upgrade().Rollback {
			t.Errorf("the mark is %+v", a)
		}
	})
}

func (w *world) withdraw(actionID string, agents ...string) {
	w.t.Helper()
	w.must(w.service.Withdraw(w.t.Context(), action.Withdrawal{
		ID: action.WithdrawalID(actionID, agents), ActionID: actionID, AgentIDs: agents, Why: "too many failed", Actor: "rollout Tuesday",
	}))
}

func TestWithdrawals(t *testing.T) {
	says := func(w *world, id string, s agentapi.UpgradeState, metadata agentapi.UpgradeMetadata) {
		w.change(id, func(a *fleet.Agent) {
			a.ObserveUpgrade("", &agentapi.UpgradeDetails{ActionID: "r-g1-1", TargetVersion: "1.1.0", State: s, Metadata: metadata}, w.now)
		})
	}
	t.Run("remove the marks of agents that have not begun, and no others", func(t *testing.T) {
		w := newWorld(t, "away", "loading", "begun", "kept")
		w.offer(offer(w, "r-g1-1", "1.1.0", "away", "loading", "begun", "kept"))
		says(w, "loading", agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{})
		says(w, "begun", agentapi.UpgradeExtracting, agentapi.UpgradeMetadata{})
		for range 2 { // twice is once
			w.withdraw("r-g1-1", "away", "loading", "begun")
		}
		a := w.action("r-g1-1")
		for id, want := range map[string]bool{"away": true, "loading": true, "begun": false, "kept": false} {
			if r := w.result(a, id); (r != nil) != want || (r != nil && r.Error != "withdrawn: too many failed") {
				t.Errorf("the result of %s is %+v", id, r)
			}
		}
		if w.upgrading("away") || !w.upgrading("loading") || !w.upgrading("begun") || !w.upgrading("kept") {
			t.Error("marked are the wrong ones")
		}
		cancel := w.action(action.WithdrawalID("r-g1-1", []string{"begun", "away", "loading"}))
		if !slices.Equal(cancel.Agents, []string{"away", "loading"}) || cancel.Cancels() != "r-g1-1" || !cancel.Expiration.Equal(*a.Expiration) {
			t.Errorf("the CANCEL is %+v", cancel)
		}

		w.ack("loading", agentapi.AckEvent{ActionID: cancel.ID, Message: "cancelled"})
		w.ack("loading", agentapi.AckEvent{ActionID: "r-g1-1", Error: agentapi.Cancelled})
		says(w, "loading", agentapi.UpgradeFailed, agentapi.UpgradeMetadata{ErrorMsg: agentapi.Cancelled})
		if l := w.agent("loading"); l.Upgrading() || l.UpgradeDetails != nil || l.UpgradeStatus != fleet.UpgradeNone {
			t.Errorf("after its answer it is %+v", l)
		}
		if r := w.result(a, "loading"); r.Error != "withdrawn: too many failed" {
			t.Errorf("its result is %+v", r)
		}
	})
	t.Run("do not end as failed while the host decides", func(t *testing.T) {
		w := newWorld(t, "loading")
		w.offer(offer(w, "r-g1-1", "1.1.0", "loading"))
		says(w, "loading", agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{})
		w.withdraw("r-g1-1", "loading")
		w.must(w.service.ReconcileUpgradesOnce(t.Context()))
		if a := w.agent("loading"); !a.Upgrading() {
			t.Errorf("it ended: %+v", a.UpgradeDetails)
		}
		w.must(w.service.GiveUp(t.Context(), w.agent("loading"), w.agent("loading").UpgradeActionID, "no sign"))
		if a := w.agent("loading"); a.UpgradeStatus != fleet.UpgradeFailed || a.UpgradeDetails.Metadata.ErrorMsg != "no sign" {
			t.Errorf("given up it is %+v", a)
		}
		if r := w.result(w.action("r-g1-1"), "loading"); r.Error != "no sign" {
			t.Errorf("its result is %+v", r)
		}
	})
	t.Run("do not replace the success of a host that continued", func(t *testing.T) {
		for _, handed := range []agentapi.UpgradeState{"", agentapi.UpgradeDownloading} {
			w := newWorld(t, "a")
			w.offer(offer(w, "r-g1-1", "1.1.0", "a"))
			if handed != "" {
				says(w, "a", handed, agentapi.UpgradeMetadata{})
			}
			w.withdraw("r-g1-1", "a")
			says(w, "a", agentapi.UpgradeReplacing, agentapi.UpgradeMetadata{})
			w.change("a", func(a *fleet.Agent) {
				a.ObserveUpgrade("1.1.0", &agentapi.UpgradeDetails{ActionID: "r-g1-1", TargetVersion: "1.1.0", State: agentapi.UpgradeWatching}, w.now)
			})
			a := w.agent("a")
			if a.Upgrading() || a.UpgradedAt == nil || a.UpgradeStatus != fleet.UpgradeNone {
				t.Errorf("handed over in %q: the document says %+v", handed, a)
			}
			_, err := w.store.Results().Put(t.Context(), a.UpgradeResults("", w.now))
			w.must(err)
			if r := w.result(w.action("r-g1-1"), "a"); r.Error != "" {
				t.Errorf("handed over in %q: its result is %+v", handed, r)
			}
			w.withdraw("r-g1-1", "a") // once more
			if r := w.result(w.action("r-g1-1"), "a"); r.Error != "" || w.agent("a").UpgradedAt == nil {
				t.Errorf("handed over in %q: withdrawn after its success it is %+v", handed, r)
			}
		}
	})
	t.Run("are completed after a crash", func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.offer(offer(w, "r-g1-1", "1.1.0", "a", "b"))
		for _, broken := range []*func() error{&w.store.updateMany, &w.store.create} {
			*broken = away
			if err := w.service.Withdraw(t.Context(), action.Withdrawal{ID: "c", ActionID: "r-g1-1", AgentIDs: []string{"a", "b"}, Why: "x"}); err == nil {
				t.Fatal("no error")
			}
			*broken = nil
		}
		w.withdraw("r-g1-1", "a", "b")
		if w.upgrading("a") || w.upgrading("b") || len(w.action(action.WithdrawalID("r-g1-1", []string{"a", "b"})).Agents) != 2 {
			t.Error("it was not completed")
		}
	})
}

func TestOrdersForAgentsOfARolloutAreRefused(t *testing.T) {
	w := newWorld(t, "mine", "free")
	w.service.Locks = locks(func(_ context.Context, agents []fleet.Agent) (map[string]string, error) {
		locked := map[string]string{}
		for _, a := range agents {
			if a.ID == "mine" {
				locked[a.ID] = `agent mine is a target of the rollout "Tuesday"`
			}
		}
		return locked, nil
	})
	for _, id := range []string{"mine", "free"} {
		w.change(id, func(a *fleet.Agent) {
			a.Kept.Rollbacks = []agentapi.Rollback{{Version: "0.9.0", ValidUntil: w.now.Add(time.Hour)}}
		})
	}
	verdicts, err := previewed(t.Context(), w.service.EachVerdict, order("1.1.0", "mine", "free"))
	w.must(err)
	w.wantKind(verdicts[0].Err, fleet.Conflict, `"Tuesday"`)
	if verdicts[1].Err != nil {
		t.Errorf("the free one is refused: %v", verdicts[1].Err)
	}
	back, err := previewed(t.Context(), w.service.EachRollbackVerdict, action.RollbackOrder{AgentIDs: []string{"mine", "free"}})
	w.must(err)
	w.wantKind(back[0].Err, fleet.Conflict, `"Tuesday"`)
	_, err = w.service.Rollback(t.Context(), action.RollbackOrder{AgentIDs: []string{"mine"}})
	w.wantKind(err, fleet.Conflict, `"Tuesday"`)
	if up := w.upgrade("mine", "free"); !slices.Equal(up.Agents, []string{"free"}) {
		t.Errorf("upgraded are %v", up.Agents)
	}
	if refused := w.offer(offer(w, "r-g1-1", "1.1.0", "mine")); len(refused) != 0 {
		t.Errorf("the rollout itself is refused: %v", refused)
	}
}
