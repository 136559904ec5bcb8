package action

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// UnenrollOrder asks agents to leave the fleet.
type UnenrollOrder struct {
	AgentIDs []string `json:"-"`
	Selected bool     // as in UpgradeOrder
	Single   bool     // as in UpgradeOrder
	// Revoke unenrols the agents at once, without asking them, and revokes their keys.
	Revoke bool
	// Force also unenrols agents of managed policies, and those of an active rollout, which
	// continues without them.
	Force bool
	Removal
	// Actor is the name of the admin key.
	Actor string
}

// EachUnenrollVerdict calls f with the verdict of an unenrolment of each agent; see
// EachVerdict. Then it returns the error with which Unenroll refuses the order because of the removal
// limit.
func (s *Service) EachUnenrollVerdict(ctx context.Context, o UnenrollOrder, f func(Verdict)) error {
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return err
	}
	do, err := s.unenrollStep(ctx, o, s.Now.UTC())
	if err != nil {
		return err
	}
	checks, err := s.removalChecks(ctx, o.Removal, o.AgentIDs)
	if err != nil {
		return err
	}
	return s.judgeAll(ctx, o.AgentIDs, do, checks, f)
}

// Unenroll creates one UNENROLL action, or with Revoke a FORCE_UNENROLL action, which is
// complete at once and records that the agents were unenrolled. Agents that cannot be
// unenrolled become error results of it.
//
// An agent that is already being unenrolled is asked again: its action may have expired,
// or a server may have died between the marks and the action.
func (s *Service) Unenroll(ctx context.Context, o UnenrollOrder) (fleet.Action, error) {
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return fleet.Action{}, err
	}
	if err := o.checkWhy(ctx); err != nil {
		return fleet.Action{}, err
	}
	key, earlier, err := s.ordered(ctx, o.Single, "unenrol", &o, nil, o.Actor, o.AgentIDs)
	if err != nil || earlier != nil {
		return deref(earlier), err
	}
	now := s.Now.UTC()
	do, err := s.unenrollStep(ctx, o, now)
	if err != nil {
		return fleet.Action{}, err
	}
	if err := s.checkRemoval(ctx, o.Removal, o.AgentIDs, do); err != nil {
		return fleet.Action{}, err
	}
	a := newAction(agentapi.ActionUnenroll, o.Actor, now)
	if o.Revoke {
		a.Type = agentapi.ActionForceUnenroll
	}
	return s.order(ctx, a, o.AgentIDs, do, key, "unenrol", &o)
}

func (o *UnenrollOrder) step(ctx context.Context, s *Service, a *fleet.Action, _ []string) (step, error) {
	return s.unenrollStep(ctx, *o, a.CreatedAt)
}

func (s *Service) unenrollStep(ctx context.Context, o UnenrollOrder, now time.Time) (do step, err error) {
	do = step{
		check:  (*fleet.Agent).CheckUnenroll,
		locked: o.Force,
		single: o.Single,
		hint:   "; or unenrol it with force",
		why:    o.Why, override: o.overrides(),
		begin: func(a *fleet.Agent) {
			if a.UnenrollmentStartedAt == nil {
				a.UnenrollmentStartedAt = &now
			}
		},
	}
	if o.Revoke {
		do.check = (*fleet.Agent).CheckRevoke
		do.begin = func(a *fleet.Agent) { a.Unenroll("revoked", now) }
		do.done = "its keys were revoked"
		do.begun = func(a *fleet.Agent) bool { return !a.Active && a.UnenrolledAt != nil && a.UnenrolledAt.Equal(now) }
	}
	if !o.Force {
		do.check, err = s.unlessManaged(ctx, do.check, "Cannot unenroll %s from a hosted agent policy %s: it is managed (is_managed), so send force to unenrol it")
		do.check = managedForceable(do.check)
	}
	return do, err
}
