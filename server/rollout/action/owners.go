package action

import (
	"cmp"
	"context"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
)

// Owners knows the declared fleets, which bring their agents to versions by themselves. Orders and
// rollouts of operators ask it, so that the two do not undo each other's work.
type Owners interface {
	// Of returns a function that names the declared fleet which decides about a component of an
	// agent, or about the agent itself if no component is named; empty: none does. The function is
	// nil if there is no such fleet at all.
	Of(ctx context.Context, component string) (func(*fleet.Agent) string, error)
	// TakeOver suspends a declared fleet, because an operator gives another order to its agents.
	TakeOver(ctx context.Context, name, actor, why string) error
}

// errOwned is the code of the error about an order for agents that belong to a declared fleet.
const errOwned = "fleet_owned"

// Claim is an order for agents that may belong to declared fleets.
type Claim struct {
	Component string
	// TakeOver is the name of the declared fleet whose agents the order takes over; it is what the
	// operator has typed to confirm that.
	TakeOver   string
	Actor, Why string
}

// CheckOwned refuses a claim on agents that belong to another declared fleet than claim.TakeOver.
// agents calls its argument with each agent concerned. If any belongs to claim.TakeOver, suspend is
// its name, to be passed to TakeOver when everything else about the order was checked.
func CheckOwned(ctx context.Context, owners Owners, claim Claim, agents func(func(*fleet.Agent)) error) (suspend string, err error) {
	of, err := ownerOf(ctx, owners, claim.Component)
	if err != nil || of == nil {
		return "", err
	}
	owned := map[string]int{}
	err = agents(func(a *fleet.Agent) {
		if name := of(a); name != "" {
			owned[name]++
		}
	})
	if err != nil {
		return "", err
	}
	if owned[claim.TakeOver] > 0 {
		suspend = claim.TakeOver
		delete(owned, claim.TakeOver)
	}
	first := ""
	for name := range owned {
		if first == "" || strings.Compare(name, first) < 0 {
			first = name
		}
	}
	if first == "" {
		return suspend, nil
	}
	e := fleet.Errorf(fleet.Conflict, "%d of the agents belong to the fleet %s, which decides about their %s: change that object, or say take_over: %s to suspend it and give the order nevertheless",
		owned[first], first, cmp.Or(claim.Component, "version"), first)
	e.Code = errOwned
	if claim.TakeOver != "" {
		e.Message += "; it is not " + claim.TakeOver
	}
	return "", e
}

// OwnerOf is Owners.Of for agents that report the component. The function is nil if no agent has an
// owner.
func (s *Service) OwnerOf(ctx context.Context, component string) (func(*fleet.Agent) string, error) {
	return ownerOf(ctx, s.Owners, component)
}

func ownerOf(ctx context.Context, owners Owners, component string) (func(*fleet.Agent) string, error) {
	if owners == nil {
		return nil, nil //nolint:nilnil // nobody owns anything
	}
	of, err := owners.Of(ctx, component)
	if err != nil || of == nil {
		return nil, err
	}
	return func(a *fleet.Agent) string {
		if !a.Of(component).Reported {
			return ""
		}
		return of(a)
	}, nil
}

func (o *UpgradeOrder) claim() Claim {
	return Claim{Component: o.Component, TakeOver: o.TakeOver, Actor: o.Actor, Why: o.Why}
}

// takeOver suspends the declared fleet that CheckOwned has named.
func (s *Service) takeOver(ctx context.Context, suspend string, c Claim) error {
	if suspend == "" {
		return nil
	}
	return s.Owners.TakeOver(ctx, suspend, c.Actor, c.Why)
}
