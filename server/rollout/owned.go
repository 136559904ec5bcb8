package rollout

import (
	"context"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
)

// checkOwned refuses a rollout of agents that belong to a declared fleet, unless the request takes
// them over, which suspends the object. The rollouts of declared fleets themselves are never
// refused: their owner decides what they select.
func (s *Service) checkOwned(ctx context.Context, r *fleet.Rollout, req Request) error {
	suspend, err := s.claim(ctx, r, req)
	if err != nil || suspend == "" {
		return err
	}
	return s.Owners.TakeOver(ctx, suspend, req.Actor, req.Why)
}

// claim is checkOwned without the effect: it returns the declared fleet that is to be suspended.
func (s *Service) claim(ctx context.Context, r *fleet.Rollout, req Request) (suspend string, err error) {
	if r.Fleet != "" || r.RollbackOf != "" || s.Owners == nil { // see checkOwnedTargets
		return "", nil
	}
	return action.CheckOwned(ctx, s.Owners, claimOf(r.Plan.Component, req), func(f func(*fleet.Agent)) error {
		chosen, err := s.selector(ctx, &r.Plan.Select, s.Now.UTC())
		if err != nil {
			return err
		}
		return store.EachOf(ctx, s.Store.Agents(), r.Plan.Component, func(a *fleet.Agent) {
			if chosen.MatchesAgent(a) {
				f(a)
			}
		})
	})
}

// checkOwnedTargets is checkOwned for a rollback, whose targets its preview has. Also that of a
// declared fleet's own rollout is an operator's order: the object would bring its agents forward
// again.
func (s *Service) checkOwnedTargets(ctx context.Context, back *fleet.Rollout, pre *fleet.Preview, req Request) error {
	return s.checkClaim(ctx, back.Plan.Component, req, func(f func(*fleet.Agent)) error {
		ids := make([]string, len(pre.Targets))
		for i := range pre.Targets {
			ids[i] = pre.Targets[i].AgentID
		}
		for chunk := range slices.Chunk(ids, targetChunk) {
			agents, err := s.Store.Agents().GetMany(ctx, chunk)
			if err != nil {
				return err
			}
			for i := range agents {
				f(&agents[i])
			}
		}
		return nil
	})
}

func (s *Service) checkClaim(ctx context.Context, component string, req Request, agents func(func(*fleet.Agent)) error) error {
	if s.Owners == nil {
		return nil
	}
	suspend, err := action.CheckOwned(ctx, s.Owners, claimOf(component, req), agents)
	if err != nil || suspend == "" {
		return err
	}
	return s.Owners.TakeOver(ctx, suspend, req.Actor, req.Why)
}

func claimOf(component string, req Request) action.Claim {
	return action.Claim{Component: component, TakeOver: req.TakeOver, Actor: req.Actor, Why: req.Why}
}
