package action

import (
	"cmp"
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// UpgradeOrder is an upgrade of some agents, or of a component of them.
type UpgradeOrder struct {
	// ID is that of the action, so that one which was created is not created again; empty: any.
	ID string `json:",omitempty"`
	// Component is the name of the component, empty for the agents themselves.
	Component string
	fleet.UpgradeRequest
	// Rollback goes back to a version of the component that the hosts have kept. Neither
	// packages nor guard rails matter to it. Agents themselves go back by Rollback.
	Rollback bool
	AgentIDs []string `json:"-"`
	// Selected means that a query has selected the agents, so there may be MaxSelected.
	Selected bool
	// Single makes Upgrade fail with a Refused if an agent is refused. Otherwise, and always
	// if only a package is missing, the refusal becomes an error result of the action.
	Single         bool
	StartTime      *time.Time
	RolloutSeconds int
	// OverrideFreeze and OverrideExposure say that the order is meant in spite of a freeze
	// or of the exposure budget. They need Why.
	OverrideFreeze, OverrideExposure bool
	Why                              string
	// TakeOver is the declared fleet whose agents are meant, as in Claim.
	TakeOver string
	// Actor is the name of the admin key.
	Actor string
	// Stages has the agents install the version beside the one that runs. That changes nothing that
	// runs, so neither freezes nor the exposure budget nor running rollouts stop it, and agents are
	// not marked: they report what they have staged.
	Stages bool `json:",omitempty"`
}

// Upgrade creates one UPGRADE action, or a STAGE. Agents that cannot be upgraded become
// error results of it, unless the order is Single. A running rollout of the same subject,
// the agents or the component, stops it.
//
// The agents are marked before the action exists. Otherwise a fast agent could finish
// before its mark is written, and look "updating" for ever. An order of several agents is
// stored before the marks (accept), so it ends with an action. After a crash in the order of a
// Single agent, ReconcileUpgrades clears the mark.
func (s *Service) Upgrade(ctx context.Context, o UpgradeOrder) (fleet.Action, error) {
	now, asked := s.Now.UTC(), o
	key, earlier, err := s.ordered(ctx, o.Single, upgradeKind, &o, nil, o.Actor, o.AgentIDs)
	if err != nil || earlier != nil {
		return deref(earlier), err
	}
	if o.RolloutSeconds > 0 && o.StartTime == nil {
		o.StartTime = &now
	}
	if err := o.checkWhy(); err != nil {
		return fleet.Action{}, err
	}
	do, catalog, err := s.upgradeStep(ctx, o)
	if err != nil {
		return fleet.Action{}, err
	}
	expires, owned, checks, err := s.guard(ctx, &o)
	if err != nil {
		return fleet.Action{}, err
	}
	if err := s.judgeAll(ctx, o.AgentIDs, do, checks, nil); err != nil {
		return fleet.Action{}, err
	}
	if err := s.takeOver(ctx, owned); err != nil {
		return fleet.Action{}, err
	}
	a := fleet.Action{
		ID: cmp.Or(o.ID, fleet.NewID()), Type: agentapi.ActionUpgrade, CreatedAt: now, CreatedBy: o.Actor,
		StartTime: o.StartTime, RolloutSeconds: o.RolloutSeconds, Expiration: &expires, OverrideFreeze: o.OverrideFreeze,
	}
	if o.Stages {
		a.Type = agentapi.ActionStage
	}
	a.Data = event.Data(agentapi.UpgradeData{
		Version: o.Version, SourceURI: o.SourceURI, Force: (o.Force || o.Retry) && !o.Rollback, Rollback: o.Rollback,
		Component: o.ComponentData(o.Component, a.ID, catalog),
	})
	o.marks(&do, &a)
	return s.order(ctx, a, o.AgentIDs, do, key, upgradeKind, &asked)
}

// marks adds to a step how the order marks an agent.
func (o *UpgradeOrder) marks(do *step, a *fleet.Action) {
	if o.Stages {
		return
	}
	id, now, start, by := a.ID, a.CreatedAt, a.CreatedAt, fleet.Requester{By: o.Actor, Why: o.Why}
	if a.StartTime != nil && a.StartTime.After(now) {
		start = *a.StartTime
	}
	do.begun = func(agent *fleet.Agent) bool { return marked(agent, id) }
	do.begin = func(agent *fleet.Agent) {
		agent.BeginOf(o.Component, id, o.Version, start)
		agent.RequestedBy(o.Component, by, now)
	}
}

func (o *UpgradeOrder) step(ctx context.Context, s *Service, a *fleet.Action, agentIDs []string) (step, error) {
	o.AgentIDs = agentIDs
	do, _, err := s.upgradeStep(ctx, *o)
	o.marks(&do, a)
	return do, err
}
