package presence

import (
	"context"
	"time"

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

// CountStatuses is of store.StatusCounter: it answers from memory, where that is known
// to be what the store has.
func (a agents) CountStatuses(
	ctx context.Context, filter store.AgentFilter, timeouts map[string]time.Duration, now time.Time,
) (counts map[fleet.Status]int, ok bool) {
	r := a.roster()
	if r == nil || a.registry.blind.Load() || !isPlain(filter) {
		return nil, false
	}
	return r.countStatuses(ctx, a.Agents, filter, timeouts, now)
}

// InOrder is of store.Ordered.
func (a agents) InOrder(ctx context.Context, ids []string) ([]string, error) {
	return store.InOrder(ctx, a.Agents, ids)
}

func (a agents) Create(ctx context.Context, agent fleet.Agent) error {
	defer a.registry.Changed(agent.ID)
	c := creation(&agent)
	a.roster().begin(&c)
	err := a.Agents.Create(ctx, agent)
	a.roster().end(&c, err)
	return err
}

func (a agents) Update(ctx context.Context, agent fleet.Agent) (int64, error) {
	was := a.registry.changing(agent.ID)
	c := update(&agent)
	a.roster().begin(&c)
	revision, err := a.Agents.Update(ctx, agent)
	a.roster().end(&c, err)
	a.registry.changed(&agent, was, err == nil)
	return revision, err
}

func (a agents) UpdateMany(ctx context.Context, list []fleet.Agent) ([]error, error) {
	was := make([]*entry, len(list))
	changes := make([]change, len(list))
	for i := range list {
		was[i] = a.registry.changing(list[i].ID)
		changes[i] = update(&list[i])
		a.roster().begin(&changes[i])
	}
	errs, err := a.Agents.UpdateMany(ctx, list)
	for i := range list {
		failed := err
		if err == nil {
			failed = errs[i]
		}
		a.roster().end(&changes[i], failed)
		a.registry.changed(&list[i], was[i], failed == nil)
	}
	return errs, err
}

func (a agents) Report(ctx context.Context, r store.Report) (int64, error) {
	switch {
	case r.Agent != nil:
		was := a.registry.changing(r.Agent.ID)
		revision, err := a.report(ctx, r)
		// Another status is another thing to say than before.
		a.registry.changed(r.Agent, was, err == nil && (r.Seen == nil || r.Seen.Status == ""))
		return revision, err
	case r.Seen != nil && r.Seen.Status != "":
		was := a.registry.changing(r.Seen.AgentID)
		defer a.registry.written(r.Seen.AgentID, was, false)
	}
	return a.report(ctx, r)
}

// report tells the roster of a report.
func (a agents) report(ctx context.Context, r store.Report) (int64, error) {
	var changes []change
	if r.Agent != nil {
		changes = append(changes, update(r.Agent))
	}
	if r.Seen != nil {
		changes = append(changes, touch(r.Seen))
	}
	for i := range changes {
		a.roster().begin(&changes[i])
	}
	revision, err := a.Agents.Report(ctx, r)
	for i := range changes {
		a.roster().end(&changes[i], err)
	}
	return revision, err
}

func (a agents) Delete(ctx context.Context, id string) error {
	defer a.registry.Changed(id)
	c := deletion(id)
	a.roster().begin(&c)
	err := a.Agents.Delete(ctx, id)
	a.roster().end(&c, err)
	return err
}

// Touch changes nothing that check-ins are compared with: that a status is new, Report
// says.
func (a agents) Touch(ctx context.Context, touches []fleet.Touch) error {
	changes := make([]change, len(touches))
	for i := range touches {
		changes[i] = touch(&touches[i])
		a.roster().begin(&changes[i])
	}
	err := a.Agents.Touch(ctx, touches)
	for i := range changes {
		a.roster().end(&changes[i], err)
	}
	return err
}

// roster is nil where nothing may be known by heart.
func (a agents) roster() *roster {
	if a.registry == nil {
		return nil
	}
	return a.registry.roster
}
