package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// BenchmarkFirstRound does the first round of a rollout over 10,000 agents: it reads
// the rollout, counts the fleet, decides, marks 500 agents, and creates the action.
func BenchmarkFirstRound(b *testing.B) {
	w := newWorld(b, 10_000)
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		id := fmt.Sprintf("r%d", i)
		if i > 0 {
			w.must(w.store.PolicyLocks().Delete(b.Context(), "default"))
		}
		w.start(id, rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = 1_000 }))
		b.StartTimer()
		w.must(w.server.loop.Round(b.Context()))
		b.StopTimer()
		if c := w.rollout(id).Counts; c.Offered != fleet.DefaultMaxParallel {
			b.Fatalf("offered are %+v", c)
		}
		w.change(id, func(r *fleet.Rollout) { r.State = fleet.RolloutCancelling })
		w.must(w.server.loop.Round(b.Context()))
		w.must(w.server.loop.Round(b.Context()))
		b.StartTimer()
	}
}

// BenchmarkIdleRound does a round without any change, with 500 of 10,000 agents in
// flight and nothing due.
func BenchmarkIdleRound(b *testing.B) {
	w := newWorld(b, 10_000)
	w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = 1_000 }))
	w.must(w.server.loop.Round(b.Context()))
	for b.Loop() {
		w.now = w.now.Add(time.Second)
		w.must(w.server.loop.Round(b.Context()))
	}
}
