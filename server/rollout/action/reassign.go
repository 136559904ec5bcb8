package action

import (
	"context"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// ReassignOrder gives agents another policy.
type ReassignOrder struct {
	PolicyID string
	AgentIDs []string `json:"-"`
	Selected bool     // as in UpgradeOrder
	Single   bool     // as in UpgradeOrder
	Removal
	// Actor is the name of the admin key.
	Actor string
}

// Reassign gives the agents the policy and creates one POLICY_REASSIGN action, which is
// delivered to them. They have no revision of the policy until they report one. Agents that have the
// policy already become error results of the action, unless the order is Single.
func (s *Service) Reassign(ctx context.Context, o ReassignOrder) (fleet.Action, error) {
	if err := o.checkWhy(ctx); err != nil {
		return fleet.Action{}, err
	}
	key, earlier, err := s.ordered(ctx, o.Single, "reassign", &o, nil, o.Actor, o.AgentIDs)
	if err != nil || earlier != nil {
		return deref(earlier), err
	}
	do, err := s.reassignStep(ctx, o)
	if err != nil {
		return fleet.Action{}, err
	}
	checks, err := s.removalChecks(ctx, o.Removal, o.AgentIDs)
	if err != nil {
		return fleet.Action{}, err
	}
	if !o.Single {
		can := false
		checks = slices.Insert(checks, 0, Check{func(*Verdict) { can = true }, func(context.Context) error {
			if can {
				return nil
			}
			return fleet.Errorf(fleet.Invalid, "No agents to reassign, already assigned or hosted agents")
		}})
	}
	if err := s.judgeAll(ctx, o.AgentIDs, do, checks, nil); err != nil {
		return fleet.Action{}, err
	}
	a := newAction(agentapi.ActionPolicyReassign, o.Actor, s.Now.UTC())
	a.Data = event.Data(agentapi.PolicyReassignData{PolicyID: o.PolicyID})
	return s.order(ctx, a, o.AgentIDs, do, key, "reassign", &o)
}

// CheckReassignLimit returns the error with which Reassign refuses the order because of the removal
// limit, nil if it would not.
func (s *Service) CheckReassignLimit(ctx context.Context, o ReassignOrder) error {
	do, err := s.reassignStep(ctx, o)
	if err != nil {
		return err
	}
	return s.checkRemoval(ctx, o.Removal, o.AgentIDs, do)
}

// An agent that has the policy already, when the order is resumed, has it from this order: those
// that had it before are few, and get an action that changes nothing.
func (o *ReassignOrder) step(ctx context.Context, s *Service, _ *fleet.Action, agentIDs []string) (step, error) {
	o.AgentIDs = agentIDs
	do, err := s.reassignStep(ctx, *o)
	do.begun = func(a *fleet.Agent) bool { return a.Active && a.PolicyID == o.PolicyID }
	return do, err
}

// CheckPolicy returns an error unless the policy exists and is not managed.
func (s *Service) CheckPolicy(ctx context.Context, id string) error {
	if id == "" {
		return fleet.FieldError("body.policy_id", "is missing: name the policy that the agents get")
	}
	p, err := s.Store.Policies().Get(ctx, id)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return fleet.Errorf(fleet.NotFound, "Agent policy not found: %s", id)
	case err == nil && p.Managed:
		return fleet.Errorf(fleet.Invalid, "Cannot reassign agents to hosted agent policy %s: it is managed (is_managed)", id)
	}
	return err
}

// reassignStep permits agents of a running rollout, because a rollout locks its agents by
// their ids, whatever their policy is.
func (s *Service) reassignStep(ctx context.Context, o ReassignOrder) (step, error) {
	if err := s.CheckPolicy(ctx, o.PolicyID); err != nil {
		return step{}, err
	}
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return step{}, err
	}
	check, err := s.unlessManaged(ctx, func(a *fleet.Agent) error {
		if !o.Single && a.PolicyID == o.PolicyID {
			return fleet.Errorf(fleet.Invalid, "Agent %s is already assigned to agent policy %s", a.ID, o.PolicyID)
		}
		return a.CheckEnrolled()
	}, "Cannot reassign an agent from hosted agent policy %[2]s: it is managed (is_managed)")
	return step{
		check:  check,
		begin:  func(a *fleet.Agent) { a.PolicyID, a.PolicyRev = o.PolicyID, 0 },
		locked: true,
		single: o.Single,
		why:    o.Why, override: o.overrides(),
	}, err
}
