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
	was := a.registry.changing(agent.ID)
	revision, err := a.Agents.Update(ctx, agent)
	a.registry.changed(&agent, was, err == nil)
	return revision, err
}

func (a agents) UpdateMany(ctx context.Context, list []fleet.Agent) ([]error, error) {
	was := make([]*entry, len(list))
	for i := range list {
		was[i] = a.registry.changing(list[i].ID)
	}
	errs, err := a.Agents.UpdateMany(ctx, list)
	for i := range list {
		a.registry.changed(&list[i], was[i], err == nil && errs[i] == nil)
	}
	return errs, err
}

func (a agents) Report(ctx context.Context, r store.Report) (int64, error) {
	switch {
	case r.Agent != nil:
		was := a.registry.changing(r.Agent.ID)
		revision, err := a.Agents.Report(ctx, r)
		// Another status is another thing to say than before.
		a.registry.changed(r.Agent, was, err == nil && (r.Seen == nil || r.Seen.Status == ""))
		return revision, err
	case r.Seen != nil && r.Seen.Status != "":
		was := a.registry.changing(r.Seen.AgentID)
		defer a.registry.written(r.Seen.AgentID, was, false)
	}
	return a.Agents.Report(ctx, r)
}

func (a agents) Delete(ctx context.Context, id string) error {
	defer a.registry.Changed(id)
	return a.Agents.Delete(ctx, id)
}
