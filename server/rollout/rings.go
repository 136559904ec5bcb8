package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// maxRing bounds ring numbers: nobody has more stages, and a seat keeps two bytes
// for it.
const maxRing = 1_000

// ringLabel is the label that says an agent's ring unless the plan names another.
const ringLabel = "ring"

// ringRule is the plan's, nil for other strategies.
func ringRule(p *fleet.Plan) *fleet.RingRule {
	if p.Strategy.Kind != fleet.Rings {
		return nil
	}
	if p.Strategy.Rings == nil {
		return &fleet.RingRule{By: ringLabel}
	}
	return p.Strategy.Rings
}

// ringOf is the ring of an agent; said is false where it carries no number and
// is in the default ring.
func ringOf(rule *fleet.RingRule, a *subject) (ring int, said bool) {
	n, err := strconv.Atoi(a.label(cmp.Or(rule.By, ringLabel)))
	if err != nil || n < 0 || n > maxRing {
		return rule.Default, false
	}
	return n, true
}

// CheckRings says which agents below the rings of the plan do not yet run its
// version: nil when the rings may go, or are forced. An agent that is still being
// upgraded to it does not run it.
func CheckRings(p *fleet.Plan, f Fleet, now time.Time) ([]fleet.SkippedAgent, error) {
	rule := ringRule(p)
	if rule == nil || rule.Force || len(rule.Only) == 0 {
		return nil, nil
	}
	highest := slices.Max(rule.Only)
	chosen, err := newChooser(&p.Select, askedAt{now, f.Timeouts})
	if err != nil {
		return nil, err
	}
	var behind []fleet.SkippedAgent
	for i := range f.Agents {
		a := subject{Agent: &f.Agents[i]}
		if !a.Active || (a.Version == p.Version && !a.Upgrading()) || !chosen.has(&a) {
			continue
		}
		ring, _ := ringOf(rule, &a)
		if ring >= highest || slices.Contains(rule.Only, ring) {
			continue // what is part of the plan goes in the order of the rings
		}
		behind = append(behind, fleet.SkippedAgent{
			AgentID: a.ID, Hostname: a.Hostname(), Version: a.Version, Code: fleet.WhyRing,
			Text: fmt.Sprintf("is in ring %d and runs %s, not %s", ring, orNone(a.Version), p.Version),
		})
	}
	slices.SortFunc(behind, func(a, b fleet.SkippedAgent) int { return cmp.Compare(a.AgentID, b.AgentID) })
	return behind, nil
}

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
