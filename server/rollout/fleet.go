package rollout

import (
	"context"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// previewTime bounds a preview, of which templates may take nearly all: a usual one takes 10 s for
// 100,000 hosts, the longest that is accepted 50 ms for each.
const previewTime = 2 * time.Minute

// preview computes what the rollout would do to the fleet now, and why a start by this request
// would be refused. Start calls it too, so what refuses a start is in the preview of that instant.
func (s *Service) preview(ctx context.Context, r *fleet.Rollout, req Request) (fleet.Preview, error) {
	now := s.Now.UTC()
	inTime, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	f, err := s.fleetNow(inTime, r, now)
	if err != nil {
		return fleet.Preview{}, err
	}
	pre, err := preview.Compute(r, f, now)
	pre.RolloutID = r.ID
	switch {
	case ctx.Err() != nil:
		return pre, ctx.Err()
	case inTime.Err() != nil && f.Config != nil: // the hosts that are left have no files
		return pre, fleet.Errorf(fleet.Invalid, "the templates of the upgrade manifest %s/%s take more than %s for all hosts: make their loops shorter, or select fewer hosts", r.Plan.Profile, r.Plan.UpgradeID, previewTime)
	case err != nil:
		return pre, err
	}
	_, err = s.claim(ctx, r, req)
	if err := pre.Refuse(err); err != nil {
		return pre, err
	}
	return pre, s.refuseStarting(ctx, r, &pre, now)
}

// refuseStarting adds that a policy of the targets is locked by a draft that is being started.
// Agents of policies that active rollouts lock are no targets.
func (s *Service) refuseStarting(ctx context.Context, r *fleet.Rollout, pre *fleet.Preview, now time.Time) error {
	locks, _, err := s.Store.PolicyLocks().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, lock := range locks {
		if lock.Component != r.Plan.Component || lock.RolloutID == r.ID || !slices.ContainsFunc(pre.Targets, func(t fleet.PreviewTarget) bool { return t.Policy == lock.PolicyID }) {
			continue
		}
		if err := pre.Refuse(s.checkLockFree(ctx, lock, now)); err != nil {
			return err
		}
	}
	return nil
}

// fleetNow reads the input of a preview. Policies that are locked by the rollout
// itself, or by the one that it rolls back, count as free.
func (s *Service) fleetNow(ctx context.Context, r *fleet.Rollout, now time.Time) (f preview.Fleet, err error) {
	component := r.Plan.Component
	f.Connections = s.Connections
	if f.Catalog, err = s.Actions.CatalogOf(ctx, component); err != nil {
		return f, err
	}
	if f.Locked, err = s.locks().locked(ctx, component, r.ID, r.RollbackOf); err != nil {
		return f, err
	}
	if component != "" {
		if err := s.readComponents(ctx, r, &f); err != nil {
			return f, err
		}
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
	if f.Durations, err = s.took(ctx, component); err != nil {
		return f, err
	}
	err = s.Store.Agents().Each(ctx, store.AgentFilter{ActiveOnly: true}, func(a fleet.Agent) { f.Agents = append(f.Agents, a) })
	return f, err
}

// readComponents reads which policies list the component of a rollout, and how its
// configuration is rendered.
func (s *Service) readComponents(ctx context.Context, r *fleet.Rollout, f *preview.Fleet) error {
	policies, err := store.PoliciesWith(ctx, s.Store.Policies(), r.Plan.Component)
	if err != nil {
		return err
	}
	f.Components = map[string]agentapi.PolicyComponent{}
	for id, p := range policies {
		f.Components[id] = *p.Component(r.Plan.Component)
	}
	if s.Renderer == nil || r.RollbackOf != "" { // a rollback restores the configuration too
		return nil
	}
	f.Config = func(a *fleet.Agent) (string, error) {
		files, err := s.Renderer.RenderFor(ctx, r.Plan, policies[a.PolicyID], a)
		if err != nil || len(files) == 0 {
			return "", err
		}
		return s.Renderer.Digest(files), nil
	}
	return nil
}

// room returns how far the rollout's version may spread; nil without an exposure rule,
// and for rollbacks, whose versions were healthy before.
func (s *Service) room(ctx context.Context, r *fleet.Rollout, now time.Time) (*plan.Room, error) {
	tally, err := s.tally(ctx, r, now)
	if err != nil || tally == nil {
		return nil, err
	}
	offered, err := s.offered(ctx, &r.Plan, r.ID)
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
	return tallyOf(ctx, s.Store, rule, r.Plan.Component, now)
}

// tallyOf counts the fleet's versions of a component, or of the agents if none is named.
func tallyOf(ctx context.Context, db store.Store, rule fleet.ExposureRule, component string, now time.Time) (*plan.Tally, error) {
	tally := plan.NewTally(rule, now)
	return tally, store.CensusOf(ctx, db.Agents(), component, func(c fleet.Census, _ *fleet.Agent) { tally.Add(c) })
}

// offered returns the agents to which other active rollouts have offered the version, and
// those for which it was ordered without a rollout.
func (s *Service) offered(ctx context.Context, p *fleet.Plan, except string) (map[string]bool, error) {
	return offeredBy(ctx, s.Store, p.Component, p.Version, except)
}

func offeredBy(ctx context.Context, db store.Store, component, version, except string) (map[string]bool, error) {
	heads, err := db.Rollouts().Active(ctx)
	if err != nil {
		return nil, err
	}
	offered, err := store.UpgradingTo(ctx, db.Agents(), component, version)
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
		if other.Plan.Component != component || other.Plan.Version != version || other.Counts.InFlight() == 0 {
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

// took returns how long upgrades of the component, or of agents, have taken, from the offer
// until the version ran.
func (s *Service) took(ctx context.Context, component string) ([]time.Duration, error) {
	latest, _, err := s.Store.Rollouts().List(ctx, 0, tookRollouts)
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for _, r := range latest {
		if r.Counts.Succeeded == 0 || r.Plan.Component != component {
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
