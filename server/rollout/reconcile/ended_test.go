package reconcile_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/explain"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
)

func cancelled(r *fleet.Rollout) { r.State = fleet.RolloutCancelling }

func skipped(ids ...string) func(*fleet.Rollout) {
	return func(r *fleet.Rollout) {
		r.Orders = append(r.Orders, fleet.Order{ID: fmt.Sprintf("skip-%d", r.Generation), Kind: fleet.OrderSkip, Agents: ids})
	}
}

// listen lets the loop follow events from now on, as in a server.
func (w *world) listen() {
	w.t.Helper()
	list, err := w.store.Events().After(w.t.Context(), 0, 1_000)
	w.must(err)
	w.heard = 1
	if len(list) > 0 {
		w.heard = list[len(list)-1].Seq
	}
	w.server.loop.Listen()
}

// downloads starts a rollout and returns a host that downloads its version and stays there.
func (w *world) downloads(change func(*fleet.Plan)) *host {
	w.t.Helper()
	h := w.hosts[w.order[0]]
	h.slow = true
	w.start("r", rolling(change))
	w.until("r", time.Minute, func(fleet.Rollout) bool { return h.state == agentapi.UpgradeDownloading })
	w.pass(w.tick)
	return h
}

func TestCancelledRolloutWaitsForHostsThatHaveItsVersion(t *testing.T) {
	t.Parallel()
	t.Run("until they have confirmed", func(t *testing.T) {
		w := newWorld(t, 2)
		h := w.downloads(nil)
		h.away = true
		w.change("r", cancelled)
		w.pass(5 * time.Minute)
		r := w.rollout("r")
		if r.State != fleet.RolloutCancelling || len(r.Waiting) != 1 || r.Waiting[0].Code != fleet.WhyUnconfirmed || r.Waiting[0].Until == nil {
			t.Fatalf("it is %s, waiting for %+v", r.State, r.Waiting)
		}
		h.away = false
		r = w.until("r", time.Minute, over)
		if target := w.target("r", h.id); r.State != fleet.RolloutCancelled || target.State != fleet.TargetWithdrawn || w.agent(h.id).CancelConfirmedAt == nil {
			t.Errorf("it ended %s, the target %+v", r.State, target)
		}
	})
	t.Run("for the time of late reports at most", func(t *testing.T) {
		w := newWorld(t, 2)
		h := w.downloads(nil)
		h.away = true
		w.change("r", cancelled)
		from := w.now
		r := w.until("r", time.Hour, over)
		if took := r.EndedAt.Sub(from); took < plan.LateReportWindow || took > plan.LateReportWindow+time.Minute {
			t.Errorf("it ended after %s", took)
		}
	})
	t.Run("not for those to which nothing was delivered", func(t *testing.T) {
		w := newWorld(t, 2)
		w.start("r", rolling(nil))
		w.now = w.now.Add(time.Second)
		w.must(w.server.loop.Round(t.Context())) // make the offers
		for _, h := range w.hosts {
			h.away = true
		}
		w.change("r", cancelled)
		if r := w.until("r", 3*w.tick, over); r.State != fleet.RolloutCancelled || r.Counts.Withdrawn != 2 {
			t.Errorf("it ended %s with %+v", r.State, r.Counts)
		}
		for _, h := range w.hosts {
			if a := w.agent(h.id); a.Upgrading() {
				t.Errorf("%s is still marked", h.id)
			}
		}
	})
}

func TestTargetThatWasCalledOffEndsAsItsHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*fleet.Rollout)
		state  fleet.RolloutState
	}{
		{"by a cancelled rollout", cancelled, fleet.RolloutCancelled},
		{"by an operator who skipped it", skipped("agent-000"), fleet.RolloutCompleted},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %v", c.name, late), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, 2)
				w.listen()
				h := w.downloads(nil)
				h.stubborn = true
				w.change("r", c.change)
				if late {
					w.until("r", time.Hour, over)
					w.pass(time.Hour)
				} else {
					w.pass(time.Minute)
				}
				h.slow = false
				w.pass(5 * time.Minute)
				r := w.until("r", time.Hour, func(r fleet.Rollout) bool { return over(r) && r.Counts.Succeeded == 2 })
				target := w.target("r", h.id)
				if r.State != c.state || h.version != "1.1.0" || target.State != fleet.TargetSucceeded || target.ReachedAt == nil {
					t.Errorf("it ended %s with %+v, the target %+v", r.State, r.Counts, target)
				}
				w.checkCounts(r)
				if text := w.why(r, target); !strings.Contains(text, "was upgraded from 1.0.0 to 1.1.0") {
					t.Errorf("why says %q", text)
				}
			})
		}
	}
}

// A report after the end of a rollout corrects the state that follows from it, too.
func TestLateReportCorrectsWhatARolloutEndedAs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	h := w.downloads(nil)
	h.away = true
	r := w.until("r", time.Hour, over)
	if target := w.target("r", h.id); r.State != fleet.RolloutFailed || target.Code != fleet.WhyStale {
		t.Fatalf("it ended %s, the target %+v", r.State, target)
	}
	w.pass(10 * time.Minute)
	h.away, h.slow, h.stubborn = false, false, true
	r = w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.State == fleet.RolloutCompleted })
	if r.Counts.Succeeded != 2 || r.Counts.Failed != 0 {
		t.Errorf("it is %s with %+v", r.State, r.Counts)
	}
	if n := len(w.events(fleet.EventRolloutCompleted)); n != 1 {
		t.Errorf("%d events tell that it has completed", n)
	}
}

// So does one in a rollout that is still active, however long ago its target has failed.
func TestHostThatGoesOnLateIsCorrectedInAnActiveRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.listen()
	h := w.downloads(nil)
	h.stubborn = true
	w.change("r", func(r *fleet.Rollout) {
		r.State, r.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopOperator, Text: "lunch", By: "ann", At: w.now}
	})
	w.until("r", time.Hour, func(fleet.Rollout) bool { return w.target("r", h.id).Code == fleet.WhyNoProgress })
	w.pass(2 * plan.LateReportWindow)
	h.slow = false
	r := w.until("r", time.Hour, func(fleet.Rollout) bool { return w.target("r", h.id).State == fleet.TargetSucceeded })
	if r.State != fleet.RolloutPaused || r.Counts.Succeeded != 2 {
		t.Errorf("the rollout is %s with %+v", r.State, r.Counts)
	}
}

func (w *world) why(r fleet.Rollout, target fleet.Target) string {
	w.t.Helper()
	a := w.agent(target.AgentID)
	return explain.Target(&r, target, &a, nil, "", w.now, w.now).Summary
}

// disagrees says which target of a rollout that has ended is not what its host is; empty: none.
func (w *world) disagrees(id string) string {
	w.t.Helper()
	r := w.rollout(id)
	if !r.State.Ended() {
		return ""
	}
	for _, h := range w.hosts {
		target, a := w.target(id, h.id), w.agent(h.id)
		if a.Version != "1.1.0" || a.UpgradeActionID == "" || a.UpgradeActionID != target.ActionID {
			continue
		}
		if plan.CalledOff(target.State) || target.State == fleet.TargetPending || target.State == fleet.TargetHeld || target.Code == fleet.WhyStale || target.Code == fleet.WhyReported {
			return fmt.Sprintf("%s runs 1.1.0 by the rollout, which is %s, and its target is %s (%s)", h.id, r.State, target.State, target.Code)
		}
		if text := w.why(r, target); strings.Contains(text, "was not brought") {
			return text
		}
	}
	return ""
}

func TestRolloutThatHasEndedAgreesWithItsHosts(t *testing.T) {
	t.Parallel()
	require.Time(t, "tries a hundred courses of rollouts")
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, 3)
		w.tick = time.Minute
		w.listen()
		w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = rapid.IntRange(1, 3).Draw(rt, "batch") }))
		for _, id := range w.order {
			w.hosts[id].slow = rapid.Bool().Draw(rt, "slow")
			w.hosts[id].stubborn = rapid.Bool().Draw(rt, "stubborn")
			w.hosts[id].bad = rapid.SampledFrom([]string{"", "", "", "deaf", "crash", "sick"}).Draw(rt, "bad")
		}
		turn := func() {
			w.must(w.turn())
			if text := w.disagrees("r"); text != "" {
				rt.Fatal(text)
			}
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			h := w.hosts[rapid.SampledFrom(w.order).Draw(rt, "host")]
			r := w.rollout("r")
			switch rapid.IntRange(0, 8).Draw(rt, "step") {
			case 0:
				if r.State == fleet.RolloutRunning || r.State == fleet.RolloutPaused {
					w.change("r", func(r *fleet.Rollout) { r.State, r.Stop = fleet.RolloutCancelling, nil })
				}
			case 1:
				if r.State == fleet.RolloutRunning || r.State == fleet.RolloutPaused {
					w.change("r", skipped(h.id))
				}
			case 2:
				if r.State == fleet.RolloutRunning {
					w.change("r", func(r *fleet.Rollout) {
						r.State, r.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopOperator, Text: "lunch", By: "ann", At: w.now}
						r.Orders = append(r.Orders, fleet.Order{ID: fmt.Sprintf("withdraw-%d", r.Generation), Kind: fleet.OrderWithdraw})
					})
				}
			case 3:
				h.slow = !h.slow
			case 4:
				h.away = !h.away
			case 5, 6, 7, 8:
				for range rapid.SampledFrom([]int{1, 1, 2, 10, 30}).Draw(rt, "turns") {
					turn()
				}
			}
		}
		if r := w.rollout("r"); !r.State.Ended() {
			w.change("r", func(r *fleet.Rollout) { r.State, r.Stop = fleet.RolloutCancelling, nil })
		}
		for _, id := range slices.Clone(w.order) {
			w.hosts[id].slow, w.hosts[id].away = false, rapid.IntRange(0, 4).Draw(rt, "gone") == 0
		}
		w.tick = 2 * time.Minute
		for range 40 { // longer than every wait
			turn()
		}
		r := w.rollout("r")
		if !r.State.Ended() {
			rt.Fatalf("it is still %s with %+v, waiting for %+v", r.State, r.Counts, r.Waiting)
		}
		w.checkCounts(r)
	})
}

// A rollback takes a host whose offer was withdrawn, and which has not confirmed that, and waits for
// what it does.
func TestRollbackIncludesHostsThatMayStillGoOn(t *testing.T) {
	t.Parallel()
	for _, confirms := range []bool{false, true} {
		w := newWorld(t, 2)
		h := w.downloads(nil)
		h.stubborn = !confirms
		h.details = w.details(h, *h.action, agentapi.UpgradeRequested) // so the order is taken from its document at once
		w.until("r", 10*time.Minute, func(r fleet.Rollout) bool { return r.Counts.Succeeded == 1 })
		w.checkin(h)
		h.away = confirms
		w.change("r", cancelled)
		w.pass(time.Minute)
		r, target := w.rollout("r"), w.target("r", h.id)
		if r.State != fleet.RolloutCancelling || target.State != fleet.TargetWithdrawn {
			t.Fatalf("it is %s, the target %+v", r.State, target)
		}
		a := w.agent(h.id)
		catalog, err := w.server.actions.Catalog(t.Context())
		w.must(err)
		back := fleet.Rollout{
			ID: "r-rollback", State: fleet.RolloutRunning, RollbackOf: "r", Generation: 1, CreatedAt: w.now, StartedAt: &w.now, Policies: []string{"default"},
			Plan: fleet.Plan{Name: "back", Strategy: fleet.Strategy{Kind: fleet.AllAtOnce}, Health: r.Plan.Health},
		}
		pre, err := preview.ComputeRollback(&back, []fleet.Target{target}, preview.Fleet{Agents: []fleet.Agent{a}, Catalog: catalog}, w.now)
		w.must(err)
		if len(pre.Targets) != 1 {
			t.Fatalf("the rollback leaves it out: %+v", pre.Skipped)
		}
		w.must(w.store.PolicyLocks().Delete(t.Context(), "default"))
		w.adopt(&back, pre)
		w.change("r", func(r *fleet.Rollout) { r.RolledBackBy = "r-rollback" })
		w.pass(time.Minute)
		if b := w.rollout("r-rollback"); b.State.Ended() {
			t.Fatalf("the rollback ended %s with %+v before the host was known", b.State, b.Counts)
		}
		h.slow, h.away = confirms, false
		b := w.until("r-rollback", time.Hour, over)
		is := w.target("r-rollback", h.id)
		if b.State != fleet.RolloutCompleted || h.version != "1.0.0" || h.upgrades != map[bool]int{false: 2, true: 0}[confirms] {
			t.Errorf("confirms %v: the rollback ended %s after %d upgrades, its target %+v", confirms, b.State, h.upgrades, is)
		}
		want := map[bool]fleet.TargetState{false: fleet.TargetSucceeded, true: fleet.TargetSkipped}[confirms]
		if is.State != want {
			t.Errorf("confirms %v: the target of the rollback is %+v", confirms, is)
		}
	}
}

// A rollout that is cancelled at once judges no health any more, and what the hosts do later still
// corrects it.
func TestCancelAtOnceWaitsForNoHealth(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "late"} {
		w := newWorld(t, 2)
		w.start("r", rolling(func(p *fleet.Plan) { p.Health.Wait = fleet.Duration(10 * time.Minute) }))
		w.until("r", time.Minute, func(r fleet.Rollout) bool { return r.Counts.Verifying == 2 })
		w.change("r", func(r *fleet.Rollout) {
			r.State, r.CancelledNow = fleet.RolloutCancelling, &fleet.Decision{By: "ann", At: w.now}
		})
		r := w.until("r", 3*w.tick, over)
		if target := w.target("r", w.order[0]); r.State != fleet.RolloutCancelled || r.Counts.Succeeded != 2 || target.Code != fleet.WhyUnchecked {
			t.Errorf("it ended %s with %+v, a target %+v", r.State, r.Counts, target)
		}
		if bad == "" {
			continue
		}
		h := w.hosts[w.order[0]]
		w.beacon(h, agentapi.BeaconRolledBack, 2, "it ended twice")
		h.version, h.details = h.from, w.details(h, *h.action, agentapi.UpgradeRollback)
		h.details.Metadata.Reason, h.action, h.state = "it ended twice", nil, ""
		w.checkin(h)
		w.pass(w.tick)
		if r, target := w.rollout("r"), w.target("r", h.id); target.State != fleet.TargetRolledBack || r.Counts.RolledBack != 1 {
			t.Errorf("after its watcher rolled it back it is %s with %+v, the target %+v", r.State, r.Counts, target)
		}
	}
}

// A host goes on after a cancel and commits the version, before or after the end of the rollout. The
// rollback that an operator then orders brings it back with the others.
func TestRollbackAfterACancelBringsBackWhatWasCommittedAllTheSame(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			w.listen()
			h := w.downloads(nil)
			h.stubborn = true
			w.change("r", cancelled)
			if late {
				w.until("r", time.Hour, over)
			} else {
				w.pass(time.Minute)
			}
			h.slow = false
			r := w.until("r", time.Hour, func(r fleet.Rollout) bool { return over(r) && w.target("r", h.id).State == fleet.TargetSucceeded })
			ran := w.running("1.1.0")
			if r.State != fleet.RolloutCancelled || !slices.Contains(ran, h.id) {
				t.Fatalf("it is %s, and %v run 1.1.0", r.State, ran)
			}
			log := slog.New(slog.DiscardHandler)
			service := &rollout.Service{
				Store: w.store, Actions: w.server.actions, Events: &event.Stream{Store: w.store.Events(), Log: log}, Log: log, Now: func() time.Time { return w.now },
			}
			back, err := service.Rollback(t.Context(), "r", rollout.ScopeAll, rollout.Request{Actor: "kim", Why: "1.1.0 is bad"})
			w.must(err)
			back = w.until(back.ID, time.Hour, over)
			if back.State != fleet.RolloutCompleted || back.Counts.Total != len(ran) || back.Counts.Succeeded != len(ran) || len(w.running("1.0.0")) != len(w.order) {
				t.Errorf("%v ran 1.1.0, the rollback ended %s with %+v, and %v run 1.0.0", ran, back.State, back.Counts, w.running("1.0.0"))
			}
		})
	}
}
