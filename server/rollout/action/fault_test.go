package action_test

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// deletesOnConflict deletes the agents between a write with a conflict and the next read.
type deletesOnConflict struct {
	*faultyStore
	delete func()
}

func (s *deletesOnConflict) Agents() store.Agents { return deletingAgents{s.faultyStore.Agents(), s} }

type deletingAgents struct {
	store.Agents
	s *deletesOnConflict
}

func (a deletingAgents) UpdateMany(ctx context.Context, agents []fleet.Agent) ([]error, error) {
	errs, err := a.Agents.UpdateMany(ctx, agents)
	a.s.delete()
	return errs, err
}
