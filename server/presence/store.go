package presence

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Store is a store that tells the registry of every agent it changes.
type Store struct {
	store.Store
	Registry *Registry
}

// Agents keeps agents as the store does.
func (s Store) Agents() store.Agents { return agents{s.Store.Agents(), s.Registry} }

// agents tells of changes after they were made: a reader that came before has a
// ticket that is no longer good.
type agents struct {
	store.Agents
	registry *Registry
}

func (a agents) Create(ctx context.Context, agent fleet.Agent) error {
	defer a.registry.Changed(agent.ID)
	return a.Agents.Create(ctx, agent)
}

func (a agents) Update(ctx context.Context, agent fleet.Agent) (int64, error) {
	defer a.registry.Changed(agent.ID)
	return a.Agents.Update(ctx, agent)
}

func (a agents) UpdateMany(ctx context.Context, list []fleet.Agent) ([]error, error) {
	defer func() {
		for i := range list {
			a.registry.Changed(list[i].ID)
		}
	}()
	return a.Agents.UpdateMany(ctx, list)
}

func (a agents) Report(ctx context.Context, r store.Report) (int64, error) {
	if r.Agent != nil {
		defer a.registry.Changed(r.Agent.ID)
	}
	if r.Seen != nil && r.Seen.Status != "" {
		defer a.registry.Changed(r.Seen.AgentID)
	}
	return a.Agents.Report(ctx, r)
}

func (a agents) Delete(ctx context.Context, id string) error {
	defer a.registry.Changed(id)
	return a.Agents.Delete(ctx, id)
}
