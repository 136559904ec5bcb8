package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestRolloutThatStopsOpensAnIncident(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	for _, id := range w.order {
		w.hosts[id].bad = "crash"
	}
	w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize, p.Failure.Count = 2, new(1) }))
	w.until("r", time.Hour, func(r fleet.Rollout) bool { return r.State == fleet.RolloutPaused || r.State.Ended() })
	w.pass(time.Minute)
	if got := w.reports; len(got) != 1 || got[0].Category != fleet.IncidentRolloutStopped || got[0].RolloutID != "r" ||
		!strings.Contains(got[0].Title, "is paused by itself") || !strings.Contains(got[0].Text, "failed") {
		t.Fatalf("incidents are %+v", got)
	}
}

func TestOperatorsPauseIsNoIncident(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = 2 }))
	w.change("r", func(r *fleet.Rollout) {
		r.State, r.RunningSince = fleet.RolloutPaused, nil
		r.Stop = &fleet.Stop{Kind: fleet.StopOperator, Text: "ann paused it", By: "ann", At: w.now}
	})
	w.pass(10 * time.Minute)
	if r := w.rollout("r"); r.State != fleet.RolloutPaused || len(w.reports) > 0 {
		t.Errorf("the rollout is %s, incidents are %+v", r.State, w.reports)
	}
}
