package rollout

import (
	"context"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/fleet"
)

// checkOwned refuses a rollout of agents that belong to a declared fleet, unless the request takes
// them over, which suspends the fleet. The rollouts of declared fleets themselves are never
// refused: their owner decides what they select. Neither are rollbacks, which undo harm.
func (s *Service) checkOwned(ctx context.Context, r *fleet.Rollout, req Request) error {
	if r.Fleet != "" || r.RollbackOf != "" || s.Owners == nil {
		return nil
	}
	claim := action.Claim{Component: r.Plan.Component, TakeOver: req.TakeOver, Actor: req.Actor, Why: req.Why}
	suspend, err := action.CheckOwned(ctx, s.Owners, claim, func(f func(*fleet.Agent)) error {
		chosen, err := s.selector(ctx, &r.Plan.Select, s.Now.UTC())
		if err != nil {
			return err
		}
		return s.eachAgent(ctx, r.Plan.Component, func(a *fleet.Agent) {
			if chosen.MatchesAgent(a) {
				f(a)
			}
		})
	})
	if err != nil || suspend == "" {
		return err
	}
	return s.Owners.TakeOver(ctx, suspend, req.Actor, req.Why)
}
