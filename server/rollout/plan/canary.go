package plan

import (
	"cmp"
	"container/heap"
	"slices"
	"strconv"

	"github.com/muster-fleet/muster/server/fleet"
)

// canary begins with a batch that is observed, and may have to be approved, before the others follow.
type canary struct{ Rolling }

func (canary) Traits() Traits {
	return Traits{Kind: fleet.Canary, Fields: []string{"batch_size", "batch_percent", "canary"}}
}

func (canary) Complete(p *fleet.Plan) {
	if p.Strategy.Canary == nil {
		p.Strategy.Canary = &fleet.CanaryRule{}
	}
	Rolling{}.Complete(p)
}

func (canary) Check(p *fleet.Plan) error {
	if p.Strategy.Canary == nil {
		return fleet.FieldError(field("strategy.canary"), "is missing: say how many canaries go first")
	}
	return checkCanary(p.Strategy.Canary)
}

func (canary) CheckBreaking(*fleet.Plan) error { return nil }

func (canary) Batches(p *fleet.Plan, members []Member) []Cut {
	st := &p.Strategy
	canaries, rest := chooseCanaries(st.Canary, members, indices(len(members)))
	return append([]Cut{{Kind: fleet.BatchCanary, Members: canaries}}, chunks(rest, batchSize(st, len(members)), 0)...)
}

// maxOver bounds the labels that canaries are spread over: with more, hardly two agents
// share all values.
const maxOver = 8

func checkCanary(c *fleet.CanaryRule) error {
	switch {
	case c.Size < 0:
		return fleet.FieldError(field("strategy.canary.size"), "is %d, want 1 or more", c.Size)
	case !isPercent(c.Percent):
		return fleet.FieldError(field("strategy.canary.percent"), "is %v, want more than 0 and at most 100", c.Percent)
	case c.Size > 0 && c.Percent > 0:
		return fleet.FieldError(field("strategy.canary.percent"), "conflicts with size: give only one of them")
	case !slices.Contains([]fleet.CanaryPick{"", fleet.PickRandom, fleet.PickStratified}, c.Pick):
		return fleet.FieldError(field("strategy.canary.pick"), "is %q, want random or stratified", c.Pick)
	case len(c.Over) > maxOver:
		return fleet.FieldError(field("strategy.canary.over"), "has %d labels, want at most %d: each multiplies the combinations", len(c.Over), maxOver)
	}
	return checkNames("strategy.canary.over", c.Over)
}

// canaryLabels are the labels that canaries are spread over by default: what upgrades
// usually break on.
var canaryLabels = []string{"os", "arch", "version"}

// completeCanaries returns a rule with what it omits. Breaking migrations imply the approval.
func completeCanaries(c fleet.CanaryRule, migration fleet.MigrationType) *fleet.CanaryRule {
	c.Pick = cmp.Or(c.Pick, fleet.PickRandom)
	if c.Pick == fleet.PickRandom && c.Size == 0 && c.Percent == 0 {
		c.Size = fleet.DefaultCanarySize
	}
	if len(c.Over) == 0 {
		c.Over = canaryLabels
	}
	c.Over = slices.Clone(c.Over)
	c.Approval = c.Approval || migration == fleet.MigrationBreaking
	return &c
}

// chooseCanaries divides ordered targets into canaries and the rest, both in order. If
// there are fewer targets than canaries, all are canaries.
func chooseCanaries(rule *fleet.CanaryRule, members []Member, of []int) (canaries, rest []int) {
	size := rule.Size
	if rule.Percent > 0 {
		size = partOf(rule.Percent, len(of))
	}
	if rule.Pick != fleet.PickStratified {
		if size <= 0 {
			size = fleet.DefaultCanarySize
		}
		size = min(size, len(of))
		return of[:size:size], of[size:]
	}
	cells := cellsOf(members, of)
	if size <= 0 {
		size = len(cells) // the fewest that cover them all
	}
	chosen := coverCells(cells, min(size, len(of)))
	for _, i := range of {
		if chosen[i] {
			canaries = append(canaries, i)
		} else {
			rest = append(rest, i)
		}
	}
	return canaries, rest
}

// cell has the targets with the same values of all labels.
type cell struct {
	key     string
	members []int
	chosen  int
}

// cellsOf returns the cells of targets, the largest first.
func cellsOf(members []Member, of []int) []*cell {
	byKey := map[string]*cell{}
	var cells []*cell
	for _, i := range of {
		key := members[i].Cell
		c := byKey[key]
		if c == nil {
			c = &cell{key: key}
			byKey[key] = c
			cells = append(cells, c)
		}
		c.members = append(c.members, i)
	}
	slices.SortFunc(cells, func(a, b *cell) int {
		return cmp.Or(cmp.Compare(len(b.members), len(a.members)), cmp.Compare(a.key, b.key))
	})
	return cells
}

// coverCells chooses size targets: one of each cell, the largest first; then,
// repeatedly, one of the cell in which each canary represents the most agents. An agent
// is in one cell only, so this greedy cover is the smallest.
func coverCells(cells []*cell, size int) map[int]bool {
	chosen := map[int]bool{}
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
func cellOf(s *Candidate, over []string) string {
	var b []byte
	for _, label := range over {
		b = strconv.AppendQuote(b, s.Label(label))
	}
	return string(b)
}

// MaxUncovered bounds Coverage.Uncovered to what a person reads.
const MaxUncovered = 20

// CoverageOf computes how many of the combinations of labels the canaries cover. label returns a
// member's value of a label.
func CoverageOf(members []Member, cuts []Cut, over []string, label func(member int, label string) string) *fleet.Coverage {
	c := fleet.Coverage{Over: over, Uncovered: []fleet.Cell{}}
	has := map[string]bool{}
	for _, cut := range cuts {
		if cut.Kind != fleet.BatchCanary {
			continue
		}
		for _, i := range cut.Members {
			has[members[i].Cell] = true
		}
	}
	stood := 0
	for _, cell := range cellsOf(members, indices(len(members))) {
		c.Cells++
		if has[cell.key] {
			c.Covered++
			stood += len(cell.members)
			continue
		}
		if len(c.Uncovered) < MaxUncovered {
			values := make([]string, len(over))
			for i := range over {
				values[i] = label(cell.members[0], over[i])
			}
			c.Uncovered = append(c.Uncovered, fleet.Cell{Values: values, Agents: len(cell.members)})
		}
	}
	if len(members) > 0 {
		c.Agents = float64(stood) / float64(len(members))
	}
	return &c
}
