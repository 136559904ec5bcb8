package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Rolling offers the version batch by batch. The next batch begins when the one before has ended and
// what lies between the two is over. Other strategies embed it.
type Rolling struct{}

// Traits implements Strategy.
func (Rolling) Traits() Traits {
	return Traits{Kind: fleet.Rolling, Fields: []string{"batch_size", "batch_percent"}}
}

// Complete implements Strategy.
func (Rolling) Complete(p *fleet.Plan) {
	completeBatches(p)
	if st := &p.Strategy; st.BatchSize == 0 && st.BatchPercent == 0 {
		st.BatchPercent = fleet.DefaultBatchPercent
	}
}

// completeBatches sets what every strategy needs that goes batch by batch.
func completeBatches(p *fleet.Plan) {
	if p.Limits.MaxParallel == 0 {
		p.Limits.MaxParallel = fleet.DefaultMaxParallel
	}
	if p.Pace.OfferFor == 0 {
		p.Pace.OfferFor = fleet.Duration(fleet.DefaultOfferFor)
	}
	if p.Pace.WaitFor == 0 {
		p.Pace.WaitFor = fleet.Duration(fleet.DefaultWaitFor)
	}
}

// Check implements Strategy.
func (Rolling) Check(*fleet.Plan) error { return nil }

// CheckBreaking implements Strategy.
func (Rolling) CheckBreaking(p *fleet.Plan) error {
	return ruled(ErrCanaryRequired, field("strategy.kind"), "is %q: a breaking migration needs canaries, so make it canary, or rings with canary", p.Strategy.Kind)
}

// Place implements Strategy.
func (Rolling) Place(*fleet.Plan, *Candidate) Place { return Place{} }

// Batches implements Strategy.
func (Rolling) Batches(p *fleet.Plan, members []Member) []Cut {
	return chunks(indices(len(members)), batchSize(&p.Strategy, len(members)), 0)
}

// Behind implements Strategy.
func (Rolling) Behind(*fleet.Plan, []fleet.Agent, map[string]time.Duration, time.Time) ([]fleet.StartRefusal, error) {
	return nil, nil
}

// Refusal implements Strategy.
func (Rolling) Refusal(string, *fleet.Rollout) *fleet.Refusal { return nil }

// BatchText implements Strategy.
func (Rolling) BatchText(b *fleet.Batch) string {
	if b.Kind == fleet.BatchCanary {
		return ", of the canaries"
	}
	return ""
}

// Warnings implements Strategy.
func (Rolling) Warnings(p *fleet.Plan, pre *fleet.Preview, _ []Member) []string {
	if pre.Offline == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d targets are offline: each of their offers waits for %s, and none of them counts", pre.Offline, len(pre.Targets), Span(p.Pace.OfferFor))}
}

func (Rolling) wouldStop(r *fleet.Rollout) string { return batchesWouldStop(r) }

func (Rolling) decide(d *decision) {
	switch d.given.State {
	case fleet.RolloutRunning:
		d.run()
	case fleet.RolloutPaused:
		d.stayPaused()
	case fleet.RolloutCancelling:
		d.cancel()
	}
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func chunks(members []int, size, ring int) []Cut {
	var cuts []Cut
	for part := range slices.Chunk(members, size) {
		cuts = append(cuts, Cut{Kind: fleet.BatchRegular, Ring: ring, Members: part})
	}
	return cuts
}

// batchSize returns how many of n targets form a batch, at least one.
func batchSize(st *fleet.Strategy, n int) int {
	size := st.BatchSize
	if size <= 0 {
		percent := st.BatchPercent
		if percent <= 0 {
			percent = fleet.DefaultBatchPercent
		}
		size = partOf(percent, n)
	}
	return max(1, min(size, n))
}

// partOf returns a percentage of n, rounded up. The tolerance is for percentages that
// binary fractions overshoot: 7 % of 100 is 7.
func partOf(percent float64, n int) int {
	return int(math.Ceil(percent*float64(n)/100 - 1e-9))
}
