package rollout

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/store"
)

// preview computes what the rollout would do to the fleet now.
func (s *Service) preview(ctx context.Context, r *fleet.Rollout) (fleet.Preview, preview.Fleet, error) {
	now := s.Now.UTC()
	f, err := s.fleetNow(ctx, r, now)
	if err != nil {
		return fleet.Preview{}, f, err
	}
	pre, err := preview.Compute(r, f, now)
	pre.RolloutID = r.ID
	return pre, f, err
}

// fleetNow reads the input of a preview. Policies that are locked by the rollout
// itself, or by the one that it rolls back, count as free.
func (s *Service) fleetNow(ctx context.Context, r *fleet.Rollout, now time.Time) (f preview.Fleet, err error) {
	if f.Catalog, err = s.Actions.Catalog(ctx); err != nil {
		return f, err
	}
	if f.Locked, err = s.locks().holders(ctx, r.ID, r.RollbackOf); err != nil {
		return f, err
	}
	if s.Policies != nil {
		if f.Timeouts, err = s.Policies.Timeouts(ctx); err != nil {
			return f, err
		}
	}
	if f.Freezes, err = s.ListFreezes(ctx); err != nil {
		return f, err
	}
	if f.Room, err = s.room(ctx, r, now); err != nil {
		return f, err
	}
	if f.Durations, err = s.took(ctx); err != nil {
		return f, err
	}
	err = s.Store.Agents().Each(ctx, store.AgentFilter{ActiveOnly: true}, func(a fleet.Agent) { f.Agents = append(f.Agents, a) })
	return f, err
}

// room returns how far the rollout's version may spread; nil without an exposure rule,
// and for rollbacks, whose versions were healthy before.
func (s *Service) room(ctx context.Context, r *fleet.Rollout, now time.Time) (*plan.Room, error) {
	tally, err := s.tally(ctx, r, now)
	if err != nil || tally == nil {
		return nil, err
	}
	offered, err := s.offered(ctx, r.Plan.Version, r.ID)
	if err != nil {
		return nil, err
	}
	return tally.Budget(r.Plan.Version, offered), nil
}

// tally counts the fleet against the exposure rule; nil if the rule does not bound the
// rollout.
func (s *Service) tally(ctx context.Context, r *fleet.Rollout, now time.Time) (*plan.Tally, error) {
	rule, err := s.Exposure(ctx)
	if err != nil || !rule.Enabled || r.Plan.Version == "" {
		return nil, err
	}
	tally := plan.NewTally(rule, now)
	return tally, s.Store.Agents().Census(ctx, tally.Add)
}

// offered returns the agents to which other active rollouts have offered the version, and
// those for which it was ordered without a rollout.
func (s *Service) offered(ctx context.Context, version, except string) (map[string]bool, error) {
	return offeredBy(ctx, s.Store, version, except)
}

func offeredBy(ctx context.Context, db store.Store, version, except string) (map[string]bool, error) {
	heads, err := db.Rollouts().Active(ctx)
	if err != nil {
		return nil, err
	}
	offered, err := store.UpgradingTo(ctx, db.Agents(), version)
	if err != nil {
		return nil, err
	}
	for _, h := range heads {
		if h.ID == except {
			continue
		}
		other, err := db.Rollouts().Get(ctx, h.ID)
		if err != nil {
			return nil, err
		}
		if other.Plan.Version != version || other.Counts.InFlight() == 0 {
			continue
		}
		err = db.Targets().Each(ctx, h.ID, func(t fleet.Target) {
			if t.State.InFlight() {
				offered[t.AgentID] = true
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return offered, nil
}

// Past durations of upgrades are taken from the latest targets of the latest rollouts
// only, since networks and packages change.
const (
	tookRollouts = 5
	tookTargets  = 200
)

// took returns how long upgrades have taken, from the offer until the version ran.
func (s *Service) took(ctx context.Context) ([]time.Duration, error) {
	latest, _, err := s.Store.Rollouts().List(ctx, 0, tookRollouts)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for _, r := range latest {
		if r.Counts.Succeeded == 0 {
			continue
		}
		done, _, err := s.Store.Targets().List(ctx, store.TargetQuery{RolloutID: r.ID, States: []fleet.TargetState{fleet.TargetSucceeded}, Limit: tookTargets})
		if err != nil {
			return nil, err
		}
		for _, t := range done {
			if t.OfferedAt != nil && t.ReachedAt != nil && t.ReachedAt.After(*t.OfferedAt) {
				took = append(took, t.ReachedAt.Sub(*t.OfferedAt))
			}
		}
	}
	return took, nil
}
