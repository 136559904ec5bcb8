package spec

import (
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/rollout/plan"
)

// Has reports whether the object desires a version of a component, or of the agents themselves if
// none is named.
func (s *Spec) Has(component string) bool {
	return slices.ContainsFunc(s.Parts(), func(p Part) bool { return p.Component == component })
}

// Older orders objects by age: of two that select the same agent the older one has it.
func Older(a, b *Fleet) int {
	at, bt := a.Metadata.CreationTimestamp, b.Metadata.CreationTimestamp
	if at != nil && bt != nil && !at.Equal(*bt) {
		return at.Compare(*bt)
	}
	return strings.Compare(a.Metadata.Name, b.Metadata.Name)
}

// Owners says which object an agent, or a component of it, belongs to.
type Owners struct{ claims []claim }

type claim struct {
	fleet    *Fleet
	selector plan.Selector
}

// NewOwners returns the owners of a component of agents, or of the agents themselves if none is
// named, at a time. An object whose selector this server cannot evaluate owns nothing.
func NewOwners(all []Fleet, component string, at plan.QueryTime) Owners {
	var o Owners
	for i := range all {
		f := &all[i]
		if !f.Spec.Has(component) {
			continue
		}
		if s, err := plan.NewSelector(&f.Spec.Selector, at); err == nil {
			o.claims = append(o.claims, claim{f, s})
		}
	}
	slices.SortFunc(o.claims, func(a, b claim) int { return Older(a.fleet, b.fleet) })
	return o
}

// None reports whether no object has a claim.
func (o Owners) None() bool { return len(o.claims) == 0 }

// Of returns the object that an agent belongs to, nil if to none.
func (o Owners) Of(a *plan.Candidate) *Fleet {
	for _, c := range o.claims {
		if c.selector.Matches(a) {
			return c.fleet
		}
	}
	return nil
}
