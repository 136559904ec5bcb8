package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// MaxRing bounds ring numbers: no fleet has more stages, and a target stores two bytes
// for it.
const MaxRing = 1_000

// ringLabel is the label whose value is an agent's ring, unless the plan names another.
const ringLabel = "ring"

// rings upgrades agents in the order of a number that they carry, in batches that never mix two rings.
type rings struct{ Rolling }

func (rings) Traits() Traits {
	return Traits{Kind: fleet.Rings, Fields: []string{"batch_size", "batch_percent", "canary", "rings"}}
}

func (rings) Complete(p *fleet.Plan) {
	Rolling{}.Complete(p)
	rule := *ringRule(p)
	rule.By, rule.Only = cmp.Or(rule.By, ringLabel), slices.Clone(rule.Only)
	p.Strategy.Rings = &rule
}

func (rings) Check(p *fleet.Plan) error {
	if c := p.Strategy.Canary; c != nil {
		if err := checkCanary(c); err != nil {
			return err
		}
	}
	rule := ringRule(p)
	if rule.Default < 0 || rule.Default > MaxRing {
		return fleet.FieldError(field("strategy.rings.default"), "is %d, want 0 to %d", rule.Default, MaxRing)
	}
	for i, ring := range rule.Only {
		if ring < 0 || ring > MaxRing {
			return fleet.FieldError(field("strategy.rings.only[%d]", i), "is %d, want 0 to %d", ring, MaxRing)
		}
		if slices.Contains(rule.Only[:i], ring) {
			return fleet.FieldError(field("strategy.rings.only[%d]", i), "is ring %d again", ring)
		}
	}
	return nil
}

func (rings) CheckBreaking(p *fleet.Plan) error {
	if p.Strategy.Canary == nil {
		return Rolling{}.CheckBreaking(p)
	}
	return nil
}

// Place returns the ring of an agent. One whose label is not a number is in the default ring.
func (rings) Place(p *fleet.Plan, a *Candidate) Place {
	rule := ringRule(p)
	label := a.Label(cmp.Or(rule.By, ringLabel))
	n, err := strconv.Atoi(label)
	if err != nil || n < 0 || n > MaxRing {
		n = rule.Default
		err = strconv.ErrSyntax
	}
	place := Place{Ring: n, Unreadable: err != nil && label != ""}
	if len(rule.Only) > 0 && !slices.Contains(rule.Only, n) {
		place.Out = fmt.Sprintf("is in ring %d, the plan is for %s", n, ringNames(rule.Only))
	}
	return place
}

// Batches makes batches ring by ring, the lowest first. Canaries come before the first.
func (rings) Batches(p *fleet.Plan, members []Member) []Cut {
	st, size := &p.Strategy, batchSize(&p.Strategy, len(members))
	inRing := map[int][]int{}
	for i := range members {
		inRing[members[i].Ring] = append(inRing[members[i].Ring], i)
	}
	var cuts []Cut
	for i, ring := range slices.Sorted(maps.Keys(inRing)) {
		of := inRing[ring]
		if i == 0 && st.Canary != nil {
			var canaries []int
			canaries, of = chooseCanaries(st.Canary, members, of)
			cuts = append(cuts, Cut{Kind: fleet.BatchCanary, Ring: ring, Members: canaries})
		}
		cuts = append(cuts, chunks(of, size, ring)...)
	}
	return cuts
}

// behindNamed bounds the agents that a refusal names.
const behindNamed = 20

// Behind refuses to start rings while agents of lower ones do not run the version.
func (rings) Behind(p *fleet.Plan, agents []fleet.Agent, timeouts map[string]time.Duration, now time.Time) ([]fleet.StartRefusal, error) {
	behind, err := lowerRings(p, agents, timeouts, now)
	if err != nil || len(behind) == 0 {
		return nil, err
	}
	names := make([]string, 0, behindNamed)
	for _, a := range behind[:min(behindNamed, len(behind))] {
		names = append(names, fmt.Sprintf("%s (%s)", a.Hostname, a.Version))
	}
	more := ""
	if n := len(behind) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return []fleet.StartRefusal{{Code: "rollout_lower_rings", Text: fmt.Sprintf("%d agents of lower rings do not run %s yet: %s%s; roll it out to them first, or set strategy.rings.force",
		len(behind), p.Version, strings.Join(names, ", "), more)}}, nil
}

func (rings) BatchText(b *fleet.Batch) string {
	return Rolling{}.BatchText(b) + fmt.Sprintf(", ring %d", b.Ring)
}

func (rings) Warnings(p *fleet.Plan, pre *fleet.Preview, members []Member) []string {
	unreadable := 0
	for i := range members {
		if members[i].Unreadable {
			unreadable++
		}
	}
	var out []string
	if unreadable > 0 {
		out = append(out, fmt.Sprintf("%s a ring that is no number from 0 to %d: taken as ring %d", Count(unreadable, "target has", "targets have"), MaxRing, p.Strategy.Rings.Default))
	}
	return append(out, Rolling{}.Warnings(p, pre, members)...)
}

// ringRule returns the plan's rule.
func ringRule(p *fleet.Plan) *fleet.RingRule {
	if p.Strategy.Rings == nil {
		return &fleet.RingRule{By: ringLabel}
	}
	return p.Strategy.Rings
}

// lowerRings returns the agents of lower rings that do not run the plan's version yet;
// none if the rings may proceed, or are forced. An agent that is still being upgraded
// does not run the version.
func lowerRings(p *fleet.Plan, agents []fleet.Agent, timeouts map[string]time.Duration, now time.Time) ([]fleet.SkippedAgent, error) {
	rule := ringRule(p)
	if rule.Force || len(rule.Only) == 0 {
		return nil, nil
	}
	highest := slices.Max(rule.Only)
	chosen, err := NewSelector(&p.Select, QueryTime{now, timeouts})
	if err != nil {
		return nil, err
	}
	var behind []fleet.SkippedAgent
	for i := range agents {
		a := Candidate{Agent: &agents[i]}
		runs := a.Of(p.Component)
		if a.HasLeft() || !runs.Reported || (runs.Version == p.Version && !runs.Upgrading()) || !chosen.Matches(&a) {
			continue
		}
		ring := rings{}.Place(p, &a).Ring
		if ring >= highest || slices.Contains(rule.Only, ring) {
			continue // rings of one plan are upgraded in order
		}
		behind = append(behind, fleet.SkippedAgent{
			AgentID: a.ID, Hostname: a.Hostname(), Version: runs.Version, Code: fleet.WhyRing,
			Text: fmt.Sprintf("is in ring %d and runs %s, not %s", ring, VersionText(runs.Version), p.What(p.Version)),
		})
	}
	slices.SortFunc(behind, func(a, b fleet.SkippedAgent) int { return cmp.Compare(a.AgentID, b.AgentID) })
	return behind, nil
}

// ringNames lists rings for a sentence.
func ringNames(rings []int) string {
	names := make([]string, 0, len(rings))
	for _, r := range rings {
		names = append(names, strconv.Itoa(r))
	}
	if len(names) == 1 {
		return "ring " + names[0]
	}
	return "rings " + strings.Join(names, ", ")
}
