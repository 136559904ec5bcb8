package action

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// ProceedOrder lets the hosts of one UPGRADE in lockstep go on, or has them undo it.
type ProceedOrder struct {
	// ID is chosen by the caller. Ordering the same ID again has no effect.
	ID string
	agentapi.ProceedData
	AgentIDs  []string
	Actor     string
	Automatic bool
}

// Proceed creates one PROCEED, unless it exists. It asks nothing of the agents: one that is away
// gets it when it is back, and one that has nothing to go on with answers with an error.
func (s *Service) Proceed(ctx context.Context, o ProceedOrder) error {
	if err := checkAgents(o.AgentIDs, false); err != nil {
		return err
	}
	act, err := store.Optional(s.Store.Actions().Get(ctx, o.ID))
	if err != nil || act != nil {
		return err
	}
	now := s.Now.UTC()
	expires := now.Add(fleet.LockstepOrderFor)
	a := fleet.Action{
		ID: o.ID, Type: agentapi.ActionProceed, Agents: o.AgentIDs, Actioned: len(o.AgentIDs), CreatedAt: now, CreatedBy: o.Actor,
		Expiration: &expires, Automatic: o.Automatic, Data: event.Data(o.ProceedData),
	}
	switch err := s.create(ctx, &a); {
	case err != nil && fleet.KindOf(err) == fleet.Conflict: // another executor came first
		return nil
	case err != nil:
		return err
	}
	s.publishCreated(ctx, a, 0)
	return nil
}
