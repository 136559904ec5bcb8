package plan

import (
	"cmp"
	"fmt"
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

// RingRule returns the plan's rule; nil for other strategies.
func RingRule(p *fleet.Plan) *fleet.RingRule {
	if p.Strategy.Kind != fleet.Rings {
		return nil
	}
	if p.Strategy.Rings == nil {
		return &fleet.RingRule{By: ringLabel}
	}
	return p.Strategy.Rings
}

// RingOf returns the ring of an agent. said is false if its label is not a number, so
// that it is in the default ring.
func RingOf(rule *fleet.RingRule, a *Candidate) (ring int, said bool) {
	n, err := strconv.Atoi(a.Label(cmp.Or(rule.By, ringLabel)))
	if err != nil || n < 0 || n > MaxRing {
		return rule.Default, false
	}
	return n, true
}

// CheckRings returns the agents of lower rings that do not run the plan's version yet;
// none if the rings may proceed, or are forced. An agent that is still being upgraded
// does not run the version.
func CheckRings(p *fleet.Plan, agents []fleet.Agent, timeouts map[string]time.Duration, now time.Time) ([]fleet.SkippedAgent, error) {
	rule := RingRule(p)
	if rule == nil || rule.Force || len(rule.Only) == 0 {
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
		ring, _ := RingOf(rule, &a)
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

// RingNames lists rings for a sentence.
func RingNames(rings []int) string {
	names := make([]string, 0, len(rings))
	for _, r := range rings {
		names = append(names, strconv.Itoa(r))
	}
	if len(names) == 1 {
		return "ring " + names[0]
	}
	return "rings " + strings.Join(names, ", ")
}

// RingOfAgent returns the ring of an agent in a plan with rings, else 0.
func RingOfAgent(p *fleet.Plan, a *fleet.Agent) int {
	rule := RingRule(p)
	if rule == nil {
		return 0
	}
	ring, _ := RingOf(rule, &Candidate{Agent: a})
	return ring
}

// InRings reports whether an agent is in one of the rings of the plan.
func InRings(p *fleet.Plan, a *fleet.Agent) bool {
	rule := RingRule(p)
	return rule == nil || len(rule.Only) == 0 || slices.Contains(rule.Only, RingOfAgent(p, a))
}
