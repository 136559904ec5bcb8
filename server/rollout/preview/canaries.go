package preview

import (
	"cmp"
	"container/heap"
	"slices"
	"strconv"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// chooseCanaries divides ordered targets into canaries and the rest, both in order. If
// there are fewer targets than canaries, all are canaries.
func chooseCanaries(rule *fleet.CanaryRule, picks []*pick) (canaries, rest []*pick) {
	size := rule.Size
	if rule.Percent > 0 {
		size = partOf(rule.Percent, len(picks))
	}
	if rule.Pick != fleet.PickStratified {
		if size <= 0 {
			size = fleet.DefaultCanarySize
		}
		size = min(size, len(picks))
		return picks[:size:size], picks[size:]
	}
	cells := cellsOf(picks)
	if size <= 0 {
		size = len(cells) // the fewest that cover them all
	}
	chosen := coverCells(cells, min(size, len(picks)))
	for _, pk := range picks {
		if chosen[pk] {
			canaries = append(canaries, pk)
		} else {
			rest = append(rest, pk)
		}
	}
	return canaries, rest
}

// cell has the targets with the same values of all labels.
type cell struct {
	key     string
	members []*pick
	chosen  int
}

// cellsOf returns the cells of targets, the largest first.
func cellsOf(picks []*pick) []*cell {
	byKey := map[string]*cell{}
	var cells []*cell
	for _, pk := range picks {
		c := byKey[pk.cell]
		if c == nil {
			c = &cell{key: pk.cell}
			byKey[pk.cell] = c
			cells = append(cells, c)
		}
		c.members = append(c.members, pk)
	}
	slices.SortFunc(cells, func(a, b *cell) int {
		return cmp.Or(cmp.Compare(len(b.members), len(a.members)), cmp.Compare(a.key, b.key))
	})
	return cells
}

// coverCells chooses size targets: one of each cell, the largest first; then,
// repeatedly, one of the cell in which each canary represents the most agents. An agent
// is in one cell only, so this greedy cover is the smallest.
func coverCells(cells []*cell, size int) map[*pick]bool {
	chosen := map[*pick]bool{}
	open := cellHeap{}
	for _, c := range cells[:min(size, len(cells))] {
		chosen[c.members[0]] = true
		if c.chosen = 1; len(c.members) > 1 {
			open = append(open, c)
		}
	}
	heap.Init(&open)
	for len(chosen) < size && len(open) > 0 {
		c := open[0]
		chosen[c.members[c.chosen]] = true
		if c.chosen++; c.chosen == len(c.members) {
			heap.Pop(&open)
		} else {
			heap.Fix(&open, 0)
		}
	}
	return chosen
}

// cellHeap has at its top the cell whose canaries represent the most agents each.
type cellHeap []*cell

func (h cellHeap) Len() int { return len(h) }

func (h cellHeap) Less(i, j int) bool {
	a, b := len(h[i].members)*h[j].chosen, len(h[j].members)*h[i].chosen
	return a > b || (a == b && h[i].key < h[j].key)
}

func (h cellHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *cellHeap) Push(x any) { *h = append(*h, x.(*cell)) }

func (h *cellHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	*h = (*h)[:last]
	return c
}

// cellOf returns the name of an agent's cell. Values are quoted, so that different
// cells have different names.
func cellOf(s *plan.Candidate, over []string) string {
	var b []byte
	for _, label := range over {
		b = strconv.AppendQuote(b, s.Label(label))
	}
	return string(b)
}

// maxUncovered bounds Coverage.Uncovered to what a person reads.
const maxUncovered = 20

// coverage computes how many of the combinations of labels the canaries cover.
func coverage(picks []*pick, cuts []batchCut, over []string) *fleet.Coverage {
	c := fleet.Coverage{Over: over, Uncovered: []fleet.Cell{}}
	has := map[string]bool{}
	for _, b := range cuts {
		if b.kind != fleet.BatchCanary {
			continue
		}
		for _, pk := range b.picks {
			has[pk.cell] = true
		}
	}
	stood := 0
	for _, cell := range cellsOf(picks) {
		c.Cells++
		if has[cell.key] {
			c.Covered++
			stood += len(cell.members)
			continue
		}
		if len(c.Uncovered) < maxUncovered {
			values := make([]string, 0, len(over))
			for _, label := range over {
				values = append(values, cell.members[0].Label(label))
			}
			c.Uncovered = append(c.Uncovered, fleet.Cell{Values: values, Agents: len(cell.members)})
		}
	}
	if len(picks) > 0 {
		c.Agents = float64(stood) / float64(len(picks))
	}
	return &c
}
