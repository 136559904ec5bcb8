package policy

import (
	"context"
	"fmt"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// SetInForce changes which version of a component is in force for the hosts of a policy. decide
// gets the component as the store has it, and returns the new record; it may be called several
// times. Nobody has changed the policy between the call of decide and the write. A policy that is
// gone, or does not list the component with lockstep, has no such record, and stays as it is.
func (s *Service) SetInForce(ctx context.Context, id, component, actor string, decide func(agentapi.PolicyComponent) (*agentapi.ComponentInForce, error)) error {
	p, err := s.Store.Policies().Get(ctx, id)
	if err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			return nil
		}
		return err
	}
	p, changed, err := store.Change(ctx, s.Store.Policies(), id, func(p fleet.Policy) (fleet.Policy, error) {
		c := p.Component(component)
		if c == nil || !c.Lockstep {
			return p, nil
		}
		next, err := decide(*c)
		if err != nil || sameInForce(next, c.InForce) {
			return p, err
		}
		p.Components = slices.Clone(p.Components)
		p.Component(component).InForce = next
		p.NextRevision(actor, s.Now.UTC())
		return p, nil
	}, func(_, p fleet.Policy) error {
		return s.record(ctx, &p, "policy.in_force", inForceText(&p, component, p.Component(component).InForce), nil)
	})
	if changed {
		s.publish(ctx, fleet.EventPolicyUpdated, &p)
	}
	return err
}

func sameInForce(a, b *agentapi.ComponentInForce) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func inForceText(p *fleet.Policy, component string, f *agentapi.ComponentInForce) string {
	switch {
	case f == nil:
		return fmt.Sprintf("no version of component %s is in force for the policy %s", component, p.Name)
	case f.Changing && f.Version == "":
		return fmt.Sprintf("a rollout in lockstep brings component %s to the hosts of the policy %s: none starts it meanwhile", component, p.Name)
	case f.Changing:
		return fmt.Sprintf("a rollout in lockstep changes component %s of the policy %s from %s: no host that is not part of it starts it meanwhile", component, p.Name, f.Version)
	}
	return fmt.Sprintf("%s %s is in force for the policy %s", component, f.Version, p.Name)
}
