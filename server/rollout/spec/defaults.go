package spec

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// The defaults of v1alpha2 in fields that start rollouts. They belong to the version of the API
// and never change, whatever a later server does by default: an object has the same hash, and
// means the same, on every server.
const (
	defaultKind         = fleet.Rolling
	defaultBatchPercent = 10
	defaultCanarySize   = 10
	defaultPick         = fleet.PickRandom
	defaultRingLabel    = "ring"
	defaultAway         = fleet.AwayRefuse
	defaultPatience     = fleet.Duration(10 * time.Minute)
)

var defaultOver = []string{"os", "arch", "version"}

// withDefaults returns the strategy with every default of v1alpha2.
func withDefaults(st fleet.Strategy) fleet.Strategy {
	st.Kind = cmp.Or(st.Kind, defaultKind)
	if plan.Has(st.Kind, "strategy.away") {
		st.Away, st.Patience = cmp.Or(st.Away, defaultAway), cmp.Or(st.Patience, defaultPatience)
	}
	if plan.Has(st.Kind, "strategy.batch_percent") && st.BatchSize == 0 {
		st.BatchPercent = cmp.Or(st.BatchPercent, defaultBatchPercent)
	}
	if st.Canary == nil && st.Kind == fleet.Canary {
		st.Canary = &fleet.CanaryRule{}
	}
	if st.Canary != nil {
		c := *st.Canary
		c.Pick = cmp.Or(c.Pick, defaultPick)
		if c.Pick == defaultPick && c.Percent == 0 {
			c.Size = cmp.Or(c.Size, defaultCanarySize)
		}
		if len(c.Over) == 0 {
			c.Over = defaultOver
		}
		c.Over = slices.Clone(c.Over)
		st.Canary = &c
	}
	if st.Kind == fleet.Rings {
		r := fleet.RingRule{}
		if st.Rings != nil {
			r = *st.Rings
		}
		r.By, r.Only = cmp.Or(r.By, defaultRingLabel), slices.Clone(r.Only)
		st.Rings = &r
	}
	return st
}

// withoutDefaults returns the strategy without the values that mean the same as none. Where a
// value has no meaning, as the size of batches has in lockstep, the object is refused.
func withoutDefaults(st fleet.Strategy) fleet.Strategy {
	kind := cmp.Or(st.Kind, defaultKind)
	st.Kind = unless(st.Kind, defaultKind)
	st.Away, st.Patience = unless(st.Away, defaultAway), unless(st.Patience, defaultPatience)
	if st.BatchSize == 0 {
		st.BatchPercent = unless(st.BatchPercent, defaultBatchPercent)
	}
	if st.Canary != nil {
		c := *st.Canary
		if c.Pick == "" || c.Pick == defaultPick {
			c.Pick = ""
			if c.Percent == 0 {
				c.Size = unless(c.Size, defaultCanarySize)
			}
			if kind != fleet.Canary {
				// A rule without values is not the same as none: with it there are canaries.
				c.Pick = defaultPick
			}
		}
		if slices.Equal(c.Over, defaultOver) {
			c.Over = nil
		}
		st.Canary = &c
	}
	if st.Rings != nil {
		r := *st.Rings
		r.By = unless(r.By, defaultRingLabel)
		st.Rings = &r
	}
	return st
}

// unless returns v, or nothing if v is the default.
func unless[T comparable](v, def T) T {
	if v == def {
		var nothing T
		return nothing
	}
	return v
}
