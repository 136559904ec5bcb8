package spec

import (
	"cmp"
	"maps"

	"github.com/muster-fleet/muster/server/fleet"
)

// AgentPart is the name of the agents themselves among the parts of an object.
const AgentPart = "agent"

// Part is one thing that an object brings to a version, by a rollout of its own.
type Part struct {
	// Component is its name; empty: the agents themselves.
	Component string
	Desired
}

// Name returns the part's name in statuses and texts: agent, or the name of the component.
func (p Part) Name() string { return cmp.Or(p.Component, AgentPart) }

// Parts returns what the spec desires, in the order in which it is rolled out.
func (s *Spec) Parts() []Part {
	var parts []Part
	if s.Agent != nil {
		parts = append(parts, Part{Desired: *s.Agent})
	}
	for _, c := range s.Components {
		parts = append(parts, Part{c.Name, c.Desired})
	}
	return parts
}

// Plan returns the plan of the rollout that brings the agents of the object to a part. It has the
// defaults of this version of the API in its strategy, and is not resolved.
func (f *Fleet) Plan(p Part) fleet.Plan {
	s := &f.Spec
	plan := fleet.Plan{
		Name: "fleet " + f.Metadata.Name, Component: p.Component, Version: p.Version, Variables: maps.Clone(s.Configuration.Variables[p.Component]),
		Select: s.Selector, Strategy: withDefaults(s.Strategy), Limits: s.Limits, Failure: s.Failure, Health: s.Health, Pace: s.Pace,
	}
	if p.UpgradeManifest != nil {
		plan.Profile, plan.UpgradeID = p.UpgradeManifest.Profile, p.UpgradeManifest.ID
	}
	return plan
}
