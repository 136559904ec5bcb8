package action

import (
	"cmp"
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// StageOrder asks agents to install a version beside the one that runs.
type StageOrder struct {
	// ID is that of the action, so that one which was created is not created again; empty: any.
	ID string
	// Component is the name of the component, empty for the agents themselves.
	Component string
	fleet.UpgradeRequest
	AgentIDs []string `json:"-"`
	Selected bool     // as in UpgradeOrder
	// Actor is the name of the admin key.
	Actor string
}

// EachStageVerdict calls f with the verdict of each agent; see EachVerdict.
func (s *Service) EachStageVerdict(ctx context.Context, o StageOrder, f func(Verdict)) error {
	do, _, err := s.stageStep(ctx, o)
	if err != nil {
		return err
	}
	return s.eachVerdict(ctx, o.AgentIDs, do, f)
}

// Stage creates one STAGE action. Agents that cannot follow it become error results of it. It
// changes nothing that runs, so neither freezes nor the exposure budget nor running rollouts
// hold it, and agents are not marked: they report what they have staged.
func (s *Service) Stage(ctx context.Context, o StageOrder) (fleet.Action, error) {
	key, earlier, err := s.ordered(ctx, false, "stage", &o, nil, o.Actor, o.AgentIDs)
	if err != nil || earlier != nil {
		return deref(earlier), err
	}
	do, catalog, err := s.stageStep(ctx, o)
	if err != nil {
		return fleet.Action{}, err
	}
	now := s.Now.UTC()
	expires := now.Add(fleet.DefaultExpiration)
	id, data := cmp.Or(o.ID, fleet.NewID()), agentapi.UpgradeData{Version: o.Version, SourceURI: o.SourceURI, Force: o.Force || o.Retry}
	if o.Component != "" {
		data.Component = fleet.ComponentRequest{Name: o.Component, UpgradeRequest: o.UpgradeRequest}.Data(id, catalog)
	}
	return s.order(ctx, fleet.Action{
		ID: id, Type: agentapi.ActionStage, CreatedAt: now, CreatedBy: o.Actor, Expiration: &expires, Data: event.Data(data),
	}, o.AgentIDs, do, key, "stage", &o)
}

func (o *StageOrder) step(ctx context.Context, s *Service, _ *fleet.Action, agentIDs []string) (step, error) {
	o.AgentIDs = agentIDs
	do, _, err := s.stageStep(ctx, *o)
	return do, err
}

// stageStep returns what a stage checks of each agent: what an upgrade does, and whether the
// agent can stage versions.
func (s *Service) stageStep(ctx context.Context, o StageOrder) (step, fleet.Catalog, error) {
	do, catalog, err := s.upgradeStep(ctx, UpgradeOrder{
		Component: o.Component, UpgradeRequest: o.UpgradeRequest, AgentIDs: o.AgentIDs, Selected: o.Selected, Actor: o.Actor, stages: true,
	})
	if err != nil {
		return step{}, nil, err
	}
	upgrade := do.check
	do.locked = true
	do.check = func(a *fleet.Agent) error {
		if err := a.CheckStage(o.Component, o.Version); err != nil {
			return err
		}
		return upgrade(a)
	}
	return do, catalog, nil
}
