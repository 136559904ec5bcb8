package action

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
)

// ComponentOrder is an upgrade of a component, or its first installation, on some agents.
type ComponentOrder struct {
	fleet.ComponentRequest
	AgentIDs []string
	// Selected means that a query has selected the agents, so there may be MaxSelected.
	Selected       bool
	StartTime      *time.Time
	RolloutSeconds int
	// OverrideFreeze says that the order is meant in spite of a freeze. It needs Why.
	OverrideFreeze bool
	Why            string
	// Actor is the name of the admin key.
	Actor string
}

func (o *ComponentOrder) guarded() UpgradeOrder {
	return UpgradeOrder{StartTime: o.StartTime, RolloutSeconds: o.RolloutSeconds, OverrideFreeze: o.OverrideFreeze, OverrideExposure: true}
}

// CheckComponentGuards returns an error that names the freeze which forbids the order, and
// otherwise when the order expires. The exposure budget bounds versions of agents only.
func (s *Service) CheckComponentGuards(ctx context.Context, o ComponentOrder) (expires time.Time, err error) {
	return s.CheckGuards(ctx, o.guarded())
}

// EachComponentVerdict is EachVerdict for an upgrade of a component.
func (s *Service) EachComponentVerdict(ctx context.Context, o ComponentOrder, f func(Verdict)) error {
	do, _, err := s.componentStep(ctx, o)
	if err != nil {
		return err
	}
	return s.eachVerdict(ctx, o.AgentIDs, do, f)
}

// UpgradeComponent creates one UPGRADE action, as Upgrade does for agents. A rollout of the
// same component holds it; one of agents, or of another component, does not.
func (s *Service) UpgradeComponent(ctx context.Context, o ComponentOrder) (fleet.Action, error) {
	now := s.Now.UTC()
	if o.RolloutSeconds > 0 && o.StartTime == nil {
		o.StartTime = &now
	}
	guarded := UpgradeOrder{OverrideFreeze: o.OverrideFreeze, Why: o.Why}
	if err := guarded.checkWhy(); err != nil {
		return fleet.Action{}, err
	}
	do, packages, err := s.componentStep(ctx, o)
	if err != nil {
		return fleet.Action{}, err
	}
	expires, err := s.CheckComponentGuards(ctx, o)
	if err != nil {
		return fleet.Action{}, err
	}
	id := fleet.NewID()
	data := agentapi.UpgradeData{
		Version: o.Version, SourceURI: o.SourceURI, Force: o.Force,
		Component: o.Data(id, packages),
	}
	start := now
	if o.StartTime != nil && o.StartTime.After(now) {
		start = *o.StartTime
	}
	do.begin = func(a *fleet.Agent) { a.BeginComponentUpgrade(o.Name, id, o.Version, start) }
	do.why, do.override = o.Why, guarded.overrides()
	return s.order(ctx, fleet.Action{
		ID: id, Type: agentapi.ActionUpgrade, CreatedAt: now, CreatedBy: o.Actor,
		StartTime: o.StartTime, RolloutSeconds: o.RolloutSeconds, Expiration: &expires, OverrideFreeze: o.OverrideFreeze, Data: event.Data(data),
	}, o.AgentIDs, nil, do)
}

// componentStep returns what an order does to each agent, and the packages of its version.
func (s *Service) componentStep(ctx context.Context, o ComponentOrder) (step, fleet.Catalog, error) {
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return step{}, nil, err
	}
	catalog, err := s.ComponentCatalog(ctx, o.Name)
	if err != nil {
		return step{}, nil, err
	}
	if err := o.ComponentRequest.Check(catalog); err != nil {
		return step{}, nil, err
	}
	check := func(a *fleet.Agent) error { return a.CheckComponentUpgrade(o.ComponentRequest, catalog) }
	return step{check: check, component: o.Name}, catalog.Of(o.Version), nil
}
