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
