package rollout_test

import (
	"fmt"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
)

// BenchmarkPreviewAndStart is what an operator waits for with 10,000 agents: each
// at most a second.
func BenchmarkPreviewAndStart(b *testing.B) {
	const agents = 10_000
	d := newHarness(b)
	for i := range agents {
		d.must(d.store.Agents().Create(b.Context(), document(fmt.Sprintf("agent-%05d", i), "1.1.0", fleet.DefaultPolicyID, d.now)))
	}
	percent := func(p *fleet.Plan) { p.Strategy = fleet.Strategy{Kind: fleet.Rolling, BatchPercent: 10} }
	b.Run("preview", func(b *testing.B) {
		r := d.create(percent)
		for b.Loop() {
			if pre := d.preview(r); len(pre.Targets) != agents {
				b.Fatal(len(pre.Targets))
			}
		}
	})
	b.Run("start", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			r := d.create(percent)
			hash := d.preview(r).Hash
			b.StartTimer()
			if _, err := d.service.Start(b.Context(), r.ID, hash, false, kim); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			d.edit(r.ID, func(r *fleet.Rollout) { r.State = fleet.RolloutCancelled })
			b.StartTimer()
		}
	})
}

// BenchmarkGrid is what the board of a rollout asks for every few seconds.
func BenchmarkGrid(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := newHarness(b)
			d.must(d.store.Rollouts().Create(b.Context(), fleet.Rollout{ID: "wide", State: fleet.RolloutRunning, Counts: fleet.Counts{Total: n}}))
			targets := make([]fleet.Target, n)
			for i := range targets {
				targets[i] = fleet.Target{RolloutID: "wide", AgentID: fmt.Sprintf("agent-%06d-0123456789abc", i), Hostname: fmt.Sprintf("web-%06d.example.com", i), Place: i, Batch: i / 1000, State: fleet.TargetPending, From: "1.1.0", To: "1.2.0"}
			}
			d.must(d.store.Targets().Create(b.Context(), targets))
			for b.Loop() {
				if g, err := d.service.Grid(b.Context(), "wide"); err != nil || len(g.States) != n {
					b.Fatal(len(g.States), err)
				}
			}
		})
	}
}
