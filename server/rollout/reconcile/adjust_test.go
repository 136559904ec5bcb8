package reconcile_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
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

// No event about the agents precedes the round.
func TestAdjustedHealthRuleJudgesTargetsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.start("r", rolling(func(p *fleet.Plan) { p.Health.Wait = fleet.Duration(time.Hour) }))
	w.until("r", 5*time.Minute, func(r fleet.Rollout) bool { return r.Counts.Verifying == 2 })
	w.pass(5 * time.Minute)
	if r := w.rollout("r"); r.Counts.Verifying != 2 {
		t.Fatalf("within the hour they are %+v", r.Counts)
	}
	w.adjust("r", func(p *fleet.Plan) { p.Health.Wait = fleet.Duration(2 * time.Minute) })
	w.tick = time.Millisecond
	w.must(w.turn())
	if r := w.rollout("r"); r.Counts.Succeeded != 2 {
		t.Errorf("after the next round they are %+v", r.Counts)
	}
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
