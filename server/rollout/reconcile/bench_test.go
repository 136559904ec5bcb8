//go:build unix

package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/processor"
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

// BenchmarkRollout brings 1,000 agents to a version in ten batches, with every check-in and every
// round until the rollout has ended. It reports the processor time, which other load on the machine
// changes little.
func BenchmarkRollout(b *testing.B) {
	var spent float64
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b, 1_000)
		w.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = 100 }))
		begin := processor.Spent(b)
		b.StartTimer()
		r := w.until("r", 2*time.Hour, over)
		spent += float64(processor.Spent(b) - begin)
		if r.State != fleet.RolloutCompleted || r.Counts.Succeeded != 1_000 {
			b.Fatalf("the rollout is %s with %+v", r.State, r.Counts)
		}
	}
	b.ReportMetric(spent/1e6/float64(b.N), "cpu-ms/op")
}
