package rollout_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/explain"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// reconciler returns a function that does one round of a reconciler on the store.
func (d *harness) reconciler(s store.Store) (round func()) {
	d.t.Helper()
	log := slog.New(slog.DiscardHandler)
	r := reconcile.New(reconcile.Config{Store: s, Actions: d.service.Actions, Events: d.service.Events, Log: log, Now: d.time, LeaseOwner: "this", Health: &storehealth.Monitor{}})
	return func() {
		d.t.Helper()
		d.later(reconcile.RoundInterval)
		d.must(r.Round(d.t.Context()))
	}
}

// If an operator changes the rollout during a round, the round ends, and the next one
// withdraws what it offered.
func TestPauseDuringARoundIsExecutedByTheNext(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c", "d", "e")
	r := d.start()
	paused := false
	round := d.reconciler(&meddledStore{Store: d.store, before: func() {
		if paused {
			return
		}
		paused = true
		_, err := d.service.Pause(t.Context(), r.ID, true, kim)
		d.must(err)
	}})
	round()
	count := func(state fleet.TargetState) (n int) {
		for _, target := range d.targets(r.ID) {
			if target.State == state {
				n++
			}
		}
		return n
	}
	if got := d.rollout(r.ID); !paused || got.State != fleet.RolloutPaused || count(fleet.TargetOffered) != 2 {
		t.Fatalf("after the round it is %s with %d offers", got.State, count(fleet.TargetOffered))
	}
	round()
	got := d.rollout(r.ID)
	if got.State != fleet.RolloutPaused || count(fleet.TargetWithdrawn) != 2 || got.Counts.Withdrawn != 2 || got.Stop.Withdrawn != 2 || len(got.Orders) != 0 {
		t.Errorf("it is %s, stopped by %+v, with %+v and orders %v", got.State, got.Stop, got.Counts, got.Orders)
	}
}

// The service and the reconciler share only the store: each must understand what the
// other writes.
func TestReconcilerExecutesCommands(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c", "d", "e")
	round := d.reconciler(d.store)
	ctx := t.Context()
	r := d.start()
	round()
	offered := d.rollout(r.ID).Counts
	if offered.Offered != 2 || offered.Pending != 3 {
		t.Fatalf("after the first round counts are %+v", offered)
	}
	first := d.targets(r.ID)[0]

	t.Run("a single upgrade of its agents is refused by its name", func(t *testing.T) {
		last := d.targets(r.ID)[4].AgentID
		var verdicts []action.Verdict
		o := action.UpgradeOrder{UpgradeRequest: fleet.UpgradeRequest{Version: "1.2.0"}, AgentIDs: []string{last}}
		err := d.service.Actions.EachVerdict(ctx, o, func(v action.Verdict) { verdicts = append(verdicts, v) })
		d.must(err)
		d.wantKind(verdicts[0].Err, fleet.Conflict, "spring")
	})
	t.Run("a pause at once takes back what was offered", func(t *testing.T) {
		_, err := d.service.Pause(ctx, r.ID, true, kim)
		d.must(err)
		round()
		got := d.rollout(r.ID)
		if got.Counts.Withdrawn != 2 || got.Counts.Offered != 0 || len(got.Orders) != 0 || got.Stop == nil {
			t.Errorf("counts are %+v, stop %+v, orders %v", got.Counts, got.Stop, got.Orders)
		}
		if a, err := d.store.Agents().Get(ctx, first.AgentID); err != nil || a.Upgrading() {
			t.Errorf("agent %s is still marked, %v", first.AgentID, err)
		}
		e, err := d.service.Why(ctx, first.AgentID, "", "", d.time())
		d.must(err)
		if e.Chain[0].Code != fleet.WhyPaused || e.RolloutID != r.ID {
			t.Errorf("it is explained as %+v", e)
		}
	})
	t.Run("retried and resumed, they are offered it again", func(t *testing.T) {
		ids := []string{d.targets(r.ID)[0].AgentID, d.targets(r.ID)[1].AgentID}
		_, err := d.service.Retry(ctx, r.ID, ids, kim)
		d.must(err)
		round()
		_, err = d.service.Resume(ctx, r.ID, kim)
		d.must(err)
		round()
		if got := d.rollout(r.ID); got.Counts.Offered != 2 || got.State != fleet.RolloutRunning {
			t.Errorf("it is %s with %+v", got.State, got.Counts)
		}
	})
	t.Run("the past is explained from the trail", func(t *testing.T) {
		e, err := d.service.Why(ctx, first.AgentID, "", r.ID, d.time().Add(-2*reconcile.RoundInterval))
		d.must(err)
		if !slices.ContainsFunc(e.Chain, func(link explain.Reason) bool { return link.Code == fleet.WhyPaused }) {
			t.Errorf("it was paused then; the explanation is %+v", e)
		}
	})
	t.Run("cancelled, it ends and lets go of its policies", func(t *testing.T) {
		_, err := d.service.Cancel(ctx, r.ID, kim)
		d.must(err)
		round()
		round()
		if got := d.rollout(r.ID); got.State != fleet.RolloutCancelled || got.EndedAt == nil || len(d.locks()) != 0 {
			t.Errorf("it is %s, locks are %v", got.State, d.locks())
		}
	})
}

// A rollout that is being cancelled holds the hosts in flight only, and none if that was to be at once.
func TestCancelLetsGoOfPolicies(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c", "d", "e")
	round := d.reconciler(d.store)
	ctx := t.Context()
	r := d.start()
	round()
	begun := d.targets(r.ID)[0]
	d.later(time.Second)
	d.change(begun.AgentID, func(a *fleet.Agent) {
		a.ObserveUpgrade("1.1.0", &agentapi.UpgradeDetails{ActionID: begun.ActionID, TargetVersion: "1.2.0", State: agentapi.UpgradeExtracting}, d.time())
	})
	refused := func(agent string) string {
		text := ""
		o := action.UpgradeOrder{UpgradeRequest: fleet.UpgradeRequest{Version: "1.2.0", Force: true}, AgentIDs: []string{agent}}
		d.must(d.service.Actions.EachVerdict(ctx, o, func(v action.Verdict) {
			if v.Err != nil {
				text = v.Err.Error()
			}
		}))
		return text
	}
	_, err := d.service.Cancel(ctx, r.ID, kim)
	d.must(err)
	for range 3 {
		round()
	}
	if got := d.rollout(r.ID); got.State != fleet.RolloutCancelling || got.Counts.Upgrading != 1 || got.Counts.Withdrawn != 1 || got.Counts.Cancelled != 3 {
		t.Fatalf("it is %s with %+v", got.State, got.Counts)
	}
	if text := refused(d.targets(r.ID)[4].AgentID); text != "" {
		t.Errorf("an order for a host that is not in flight is refused: %s", text)
	}
	now := "muster rollouts cancel " + r.ID + " --now"
	if text := refused(begun.AgentID); !strings.Contains(text, now) {
		t.Errorf("an order for a host in flight is refused without saying what works: %q", text)
	}
	for name, err := range map[string]error{
		"promote": second(d.service.Promote(ctx, r.ID, kim)), "force": second(d.service.Force(ctx, r.ID, kim)), "skip": second(d.service.Skip(ctx, r.ID, []string{begun.AgentID}, kim)),
	} {
		if err == nil || name != "skip" && !strings.Contains(err.Error(), now) {
			t.Errorf("%s says %v", name, err)
		}
	}
	other := d.create(called("summer"))
	if _, err := d.service.Start(ctx, other.ID, d.preview(other).Hash, false, kim); err != nil {
		t.Errorf("another rollout of its policy cannot start: %v", err)
	}
	_, err = d.service.CancelNow(ctx, r.ID, kim)
	d.must(err)
	if text := refused(begun.AgentID); text != "" {
		t.Errorf("after a cancel at once an order is refused: %s", text)
	}
	if _, err := d.service.CancelNow(ctx, r.ID, kim); err != nil {
		t.Errorf("a repeated cancel at once: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
