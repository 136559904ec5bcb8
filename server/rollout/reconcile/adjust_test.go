package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/fleettest"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store"
)

// adjust changes the plan of a rollout as the service does.
func (w *world) adjust(id string, change func(*fleet.Plan)) {
	w.t.Helper()
	w.change(id, func(r *fleet.Rollout) {
		before, p := r.Plan, r.Plan
		change(&p)
		var changes []string
		var err error
		r.Plan, changes, err = plan.Adjust(before, p.Limits, p.Failure, p.Health, p.Pace)
		w.must(err)
		if len(changes) == 0 {
			w.t.Fatal("nothing differs")
		}
		if !plan.SameTargets(&before, &r.Plan) {
			r.Orders = append(r.Orders, fleet.Order{ID: fmt.Sprintf("o%d", len(r.Orders)), Kind: fleet.OrderAdjust})
		}
	})
}

func TestAdjustedLimitsHoldFromTheNextRound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	for i := range 8 {
		w.enrol(fmt.Sprintf("web-%d", i), "site=fra", fmt.Sprintf("rack=r%d", i/4)).slow = true
	}
	w.start("r", rolling(func(p *fleet.Plan) {
		p.Limits = fleet.Limits{Per: []fleet.LabelLimit{{Label: "site", Max: 1}}}
	}))
	w.pass(time.Minute)
	if r := w.rollout("r"); r.Counts.InFlight() != 1 || r.Waiting[0].Code != fleet.WhyLabelLimit {
		t.Fatalf("of one site are upgraded %+v, it waits for %+v", r.Counts, r.Waiting)
	}

	// Three of each rack, and no limit of the site.
	w.adjust("r", func(p *fleet.Plan) { p.Limits.Per = []fleet.LabelLimit{{Label: "rack", Max: 3}} })
	w.must(w.turn())
	racks := map[string]int{}
	w.must(w.store.Targets().Each(t.Context(), "r", func(x fleet.Target) {
		a := w.agent(x.AgentID)
		if want := a.Label("rack"); !slices.Equal(x.Values, []string{want}) {
			t.Errorf("%s has the values %v, want %s", x.AgentID, x.Values, want)
		}
		if x.State.InFlight() {
			racks[x.Values[0]]++
		}
	}))
	if racks["r0"] != 3 || racks["r1"] != 3 || len(w.rollout("r").Orders) != 0 {
		t.Errorf("in flight are %v, orders are %+v", racks, w.rollout("r").Orders)
	}

	// Fewer at one time: those in flight end, and no more are offered until then.
	w.adjust("r", func(p *fleet.Plan) { p.Limits = fleet.Limits{MaxParallel: 2} })
	for _, h := range w.hosts {
		h.slow = false
	}
	w.until("r", 10*time.Minute, func(r fleet.Rollout) bool {
		if done := r.Counts.Succeeded; done > 0 && r.Counts.InFlight() > max(2, 6-done) {
			t.Errorf("%d are upgraded at one time after %d have succeeded", r.Counts.InFlight(), done)
		}
		return over(r)
	})
	if r := w.rollout("r"); r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 8 {
		t.Errorf("it is %s with %+v", r.State, r.Counts)
	}
}

// The reconciler looks at them in the next round, although no event is about them and it had
// planned to look later.
func TestAdjustedHealthRuleJudgesTargetsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubble(t, 2)
		_, stop := r.run(fleettest.NewMortal(r.store, 0, false))
		defer r.running.Wait()
		defer stop()
		r.now = time.Now().UTC()
		r.start("r", rolling(func(p *fleet.Plan) { p.Health.Wait = fleet.Duration(time.Hour) }))
		r.offeredWithin("r", 2, 5*time.Second)
		for _, id := range r.order {
			now := time.Now().UTC()
			_, err := store.UpdateAgent(t.Context(), r.store.Agents(), id, func(a *fleet.Agent) bool {
				a.Version, a.VersionSince, a.UpgradedAt, a.UpgradeStartedAt = "1.1.0", &now, &now, nil
				return true
			})
			r.must(err)
			time.Sleep(10 * time.Millisecond)
			r.must(r.store.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: id, At: time.Now().UTC(), Status: "online"}}))
		}
		within := func(limit time.Duration, what string, ok func(fleet.Counts) bool) {
			t.Helper()
			for began := time.Now(); !ok(r.rollout("r").Counts); time.Sleep(50 * time.Millisecond) {
				if time.Since(began) > limit {
					t.Fatalf("%s: after %s they are %+v", what, limit, r.rollout("r").Counts)
				}
			}
		}
		within(time.Minute, "both run the version", func(c fleet.Counts) bool { return c.Verifying == 2 })
		r.adjust("r", func(p *fleet.Plan) { p.Health.Wait = fleet.Duration(time.Second) })
		within(2*reconcile.RoundInterval, "the shorter wait is over", func(c fleet.Counts) bool { return c.Succeeded == 2 })
	})
}

func TestAdjustedFailureRuleStopsAtFailuresOfBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.hosts["agent-000"].bad, w.hosts["agent-001"].bad = "download", "download"
	w.hosts["agent-002"].slow, w.hosts["agent-003"].slow = true, true
	w.start("r", rolling(nil))
	w.until("r", 5*time.Minute, func(r fleet.Rollout) bool { return r.Counts.Failed == 2 })
	two := 2
	w.adjust("r", func(p *fleet.Plan) { p.Failure.Count = &two })
	w.must(w.turn())
	r := w.rollout("r")
	if !stopped(r) || r.Stop.Kind != fleet.StopThreshold {
		t.Fatalf("it is %s, stopped by %+v", r.State, r.Stop)
	}
	// A rollout that has stopped does not resume because the rule tolerates more now.
	nine := 9
	w.adjust("r", func(p *fleet.Plan) { p.Failure.Count = &nine })
	w.pass(time.Minute)
	if r := w.rollout("r"); !stopped(r) {
		t.Errorf("it is %s", r.State)
	}
}

func TestAdjustedTimeOfOffersHoldsForThoseThatAreHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.hosts["agent-001"].away = true
	w.pass(10 * time.Minute) // so that the server takes it for one that is away
	w.start("r", rolling(func(p *fleet.Plan) { p.Pace.OfferFor = fleet.Duration(24 * time.Hour) }))
	w.until("r", 5*time.Minute, func(r fleet.Rollout) bool { return r.Counts.Held == 1 })
	held := w.now
	w.pass(10 * time.Minute)
	w.adjust("r", func(p *fleet.Plan) { p.Pace.OfferFor = fleet.Duration(30 * time.Minute) })
	w.must(w.turn())
	if until := w.target("r", "agent-001").ExpiresAt; until == nil || !until.Equal(held.Add(30*time.Minute)) {
		t.Errorf("its offer expires at %v, want half an hour after %v", until, held)
	}
	w.adjust("r", func(p *fleet.Plan) { p.Pace.OfferFor = fleet.Duration(5 * time.Minute) })
	r := w.until("r", time.Minute, over)
	if r.Counts.Expired != 1 || r.Counts.Succeeded != 1 {
		t.Errorf("it is %s with %+v", r.State, r.Counts)
	}
}

// meddled is a store in which somebody else writes right after a rollout is written.
type meddled struct {
	store.Store
	after func()
}

func (m *meddled) Rollouts() store.Rollouts { return meddledRollouts{m.Store.Rollouts(), m} }

type meddledRollouts struct {
	store.Rollouts
	m *meddled
}

func (s meddledRollouts) Update(ctx context.Context, r fleet.Rollout) (int64, error) {
	rev, err := s.Rollouts.Update(ctx, r)
	if after := s.m.after; err == nil && after != nil {
		s.m.after = nil
		after()
	}
	return rev, err
}

// The limits of a plan are never compared with values of other labels.
func TestLimitsAdjustedAmidARoundHoldOnceTheValuesAreKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	m := &meddled{Store: w.store}
	w.server.loop = w.process(m).loop
	w.start("r", rolling(func(p *fleet.Plan) { p.Limits.Per = []fleet.LabelLimit{{Label: "site", Max: 1}} }))
	w.change("r", func(r *fleet.Rollout) { r.Orders = []fleet.Order{{ID: "o", Kind: fleet.OrderReturn}} })
	fired := false
	m.after = func() { // when the order is carried out, and before anything is decided
		fired = true
		w.adjust("r", func(p *fleet.Plan) { p.Limits.Per = []fleet.LabelLimit{{Label: "os", Max: 1}} })
	}
	r := w.until("r", 20*time.Minute, func(r fleet.Rollout) bool {
		if r.Counts.InFlight() > 1 {
			t.Fatalf("%d agents with one os are upgraded at one time", r.Counts.InFlight())
		}
		return over(r)
	})
	if !fired || r.Counts.Succeeded != 4 {
		t.Errorf("the other write is %t, it is %s with %+v", fired, r.State, r.Counts)
	}
}
