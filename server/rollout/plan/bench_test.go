package plan

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// BenchmarkDecideMillion does a round over a million targets in a thousand batches, the
// most a rollout may have. It should take no more than 100 ms.
func BenchmarkDecideMillion(b *testing.B) {
	now := time.Date(2026, 11, 24, 14, 0, 0, 0, time.UTC)
	earlier := now.Add(-time.Hour)
	million := func(batches int) (*fleet.Rollout, []Target) {
		r := &fleet.Rollout{State: fleet.RolloutRunning, StartedAt: &earlier, RunningSince: &earlier, Batches: make([]fleet.Batch, batches)}
		r.Plan = fleet.Plan{
			Strategy: fleet.Strategy{Kind: fleet.Rolling},
			Limits:   fleet.Limits{MaxParallel: 500, Per: []fleet.LabelLimit{{Label: "site", Max: 10}, {Label: "rack", Max: 1}}},
		}
		targets := make([]Target, fleet.MaxTargets)
		for i := range targets {
			targets[i] = Target{
				Online: i%10 != 0, Batch: int32(i * batches / len(targets)),
				Groups: [fleet.MaxLabelLimits]int32{int32(i % 300), int32(i % 20_000), -1, -1},
				Sites:  [fleet.MaxLabelLimits]int32{int32(i % 300), -1, -1, -1},
			}
		}
		for i := range r.Batches {
			r.Batches[i] = fleet.Batch{Index: i, Kind: fleet.BatchRegular}
		}
		return r, targets
	}
	room := func() *Room {
		m := &Room{Exposure: fleet.Exposure{Version: "1.2.0", Fleet: fleet.MaxTargets, Limit: fleet.MaxTargets / 2, NeededHours: 100}}
		for range 300 {
			m.Sites = append(m.Sites, fleet.ExposureValue{Label: "site", Fleet: 3_334, Limit: 1_667})
		}
		return m
	}
	run := func(name string, r *fleet.Rollout, targets []Target, check func(Step) bool) {
		b.Run(name, func(b *testing.B) {
			w := World{Exposure: room()}
			var step Step
			for b.Loop() {
				step = Decide(r, targets, w, now)
			}
			if !check(step) {
				b.Fatalf("offers %d, moves %d, waits %+v, %+v", len(step.Offer), len(step.Moves), step.Rollout.Waiting, step.Rollout.Counts)
			}
		})
	}

	r, targets := million(1_000)
	run("fresh", r, targets, func(s Step) bool { return len(s.Offer) == 500 })

	r, targets = million(1_000)
	for i := range 500_000 {
		targets[i].State = Succeeded
		if i%10 == 0 {
			targets[i].State, targets[i].Expires = Held, now.Add(time.Hour).UnixNano()
		}
	}
	for b := range 500 {
		r.Batches[b].StartedAt, r.Batches[b].EndedAt, r.Batches[b].ClearedAt = &earlier, &earlier, &earlier
	}
	for i := 500_000; i < 500_400; i++ {
		targets[i].State = Upgrading
	}
	run("half way", r, targets, func(s Step) bool { return len(s.Offer) == 100 })

	r, targets = million(1)
	for i := range 500 {
		targets[i].State = Upgrading
	}
	run("one batch, all slots taken", r, targets, func(s Step) bool { return len(s.Offer) == 0 && len(s.Moves) == MaxMoves })

	r, targets = million(1_000)
	r.State, r.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopThreshold, At: earlier}
	run("paused", r, targets, func(s Step) bool {
		return s.Rollout.Counts.Pending == fleet.MaxTargets && s.Reasons[0] == codeThreshold
	})
}
