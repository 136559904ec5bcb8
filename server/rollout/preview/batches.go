package preview

import (
	"cmp"
	"math"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
)

// batchCut is a batch of targets, in order.
type batchCut struct {
	kind  fleet.BatchKind
	ring  int
	picks []*pick
}

// cut divides ordered targets into batches.
func cut(p *fleet.Plan, picks []*pick) []batchCut {
	if len(picks) == 0 {
		return nil
	}
	st := &p.Strategy
	size := batchSize(st, len(picks))
	switch st.Kind {
	case fleet.AllAtOnce, fleet.LockstepStrategy:
		return []batchCut{{kind: fleet.BatchRegular, picks: picks}}
	case fleet.Canary:
		canaries, rest := chooseCanaries(st.Canary, picks)
		return append([]batchCut{{kind: fleet.BatchCanary, picks: canaries}}, chunks(rest, size, 0)...)
	case fleet.Rings:
		return cutRings(st, picks, size)
	}
	return chunks(picks, size, 0)
}

func chunks(picks []*pick, size, ring int) []batchCut {
	var cuts []batchCut
	for part := range slices.Chunk(picks, size) {
		cuts = append(cuts, batchCut{kind: fleet.BatchRegular, ring: ring, picks: part})
	}
	return cuts
}

// cutRings makes batches ring by ring, the lowest first. Canaries come before the
// first.
func cutRings(st *fleet.Strategy, picks []*pick, size int) []batchCut {
	inRing := map[int][]*pick{}
	var rings []int
	for _, pk := range picks {
		if inRing[pk.target.Ring] == nil {
			rings = append(rings, pk.target.Ring)
		}
		inRing[pk.target.Ring] = append(inRing[pk.target.Ring], pk)
	}
	slices.SortFunc(rings, cmp.Compare[int])
	var cuts []batchCut
	for i, ring := range rings {
		members := inRing[ring]
		if i == 0 && st.Canary != nil {
			var canaries []*pick
			canaries, members = chooseCanaries(st.Canary, members)
			cuts = append(cuts, batchCut{kind: fleet.BatchCanary, ring: ring, picks: canaries})
		}
		cuts = append(cuts, chunks(members, size, ring)...)
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
