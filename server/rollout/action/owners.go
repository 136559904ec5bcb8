package action

import (
	"cmp"
	"context"

	"github.com/muster-fleet/muster/server/fleet"
)

// Owners knows the declared fleets, which bring their agents to versions by themselves. Orders and
// rollouts of operators ask it, so that the two do not undo each other's work.
type Owners interface {
	// Of returns a function that names the declared fleet which decides about a component of an
	// agent, or about the agent itself if no component is named; empty: none does. The function is
	// nil if there is no declared fleet at all.
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
	o, err := ownedBy(ctx, owners, claim)
	if err != nil || o.of == nil {
		return "", err
	}
	if err := agents(func(a *fleet.Agent) { o.add(a) }); err != nil {
		return "", err
	}
	return o.suspend(), o.refuses()
}

// owned counts the agents of a claim by the declared fleets that they belong to.
type owned struct {
	claim Claim
	of    func(*fleet.Agent) string // see Owners
	n     map[string]int
}

func ownedBy(ctx context.Context, owners Owners, claim Claim) (*owned, error) {
	o := &owned{claim: claim, n: map[string]int{}}
	if owners == nil {
		return o, nil
	}
	var err error
	o.of, err = owners.Of(ctx, claim.Component)
	return o, err
}

// add counts an agent, and returns the declared fleet that it belongs to. One that does not report the
// component belongs to none.
func (o *owned) add(a *fleet.Agent) (name string) {
	if o.of != nil && a.Of(o.claim.Component).Reported {
		name = o.of(a)
	}
	if name != "" {
		o.n[name]++
	}
	return name
}

// suspend returns the declared fleet that is to be suspended before the order is given, empty if there is none.
func (o *owned) suspend() string {
	if o.n[o.claim.TakeOver] == 0 {
		return ""
	}
	return o.claim.TakeOver
}

// refuses returns the error about the agents that belong to another declared fleet than the claim names.
func (o *owned) refuses() error {
	first := ""
	for name := range o.n {
		if name != o.claim.TakeOver && (first == "" || name < first) {
			first = name
		}
	}
	if first == "" {
		return nil
	}
	e := fleet.Errorf(fleet.Conflict, "%d of the agents belong to the fleet %s, which decides about their %s: change that object, or say take_over: %s to suspend it and give the order nevertheless",
		o.n[first], first, cmp.Or(o.claim.Component, "version"), first)
	e.Code = errOwned
	if o.claim.TakeOver != "" {
		e.Message += "; it is not " + o.claim.TakeOver
	}
	return e
}

// checks returns the check of an order that has the claim.
func (o *owned) checks() []Check {
	if o.of == nil {
		return nil
	}
	return []Check{{See: func(v *Verdict) { v.Owner = o.add(&v.Agent) }, Refuses: func(context.Context) error { return o.refuses() }}}
}

func (o *UpgradeOrder) claim() Claim {
	return Claim{Component: o.Component, TakeOver: o.TakeOver, Actor: o.Actor, Why: o.Why}
}

// takeOver suspends the declared fleet whose agents the order takes over.
func (s *Service) takeOver(ctx context.Context, o *owned) error {
	if name := o.suspend(); name != "" {
		return s.Owners.TakeOver(ctx, name, o.claim.Actor, o.claim.Why)
	}
	return nil
}
