package rollout

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
)

// lockGrace is how long a policy stays locked to a draft: a start takes a second or
// two, and one that a crash interrupted is finished by starting again.
const lockGrace = time.Minute

// holders names the active rollout that has a policy, by policy, without those
// excepted.
func (s *Service) holders(ctx context.Context, except ...string) (map[string]preview.Holder, error) {
	locking, err := s.lockingRollouts(ctx, except...)
	if err != nil {
		return nil, err
	}
	held := make(map[string]preview.Holder, len(locking))
	for policy, r := range locking {
		held[policy] = holderOf(r)
	}
	return held, nil
}

func holderOf(r *fleet.Rollout) preview.Holder { return preview.Holder{ID: r.ID, Name: r.Plan.Name} }

// lockingRollouts are the active rollouts that have a policy, by policy.
func (s *Service) lockingRollouts(ctx context.Context, except ...string) (map[string]*fleet.Rollout, error) {
	locks, _, err := s.Store.PolicyLocks().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	locking := map[string]*fleet.Rollout{}
	seen := map[string]*fleet.Rollout{}
	for _, l := range locks {
		if slices.Contains(except, l.RolloutID) {
			continue
		}
		r, ok := seen[l.RolloutID]
		if !ok {
			got, err := s.Store.Rollouts().Get(ctx, l.RolloutID)
			switch {
			case err == nil:
				r = &got
			case fleet.KindOf(err) != fleet.NotFound:
				return nil, err
			}
			seen[l.RolloutID] = r
		}
		if r != nil && r.State.Active() {
			locking[l.PolicyID] = r
		}
	}
	return locking, nil
}

// takeLocks locks the policies to the rollout, all or none. They are taken in
// order, so that of two rollouts that want the same one gets them all. Locks of
// the rollout from are taken over.
func (s *Service) takeLocks(ctx context.Context, r *fleet.Rollout, policies []string, from string, now time.Time) error {
	policies = slices.Clone(policies)
	slices.Sort(policies)
	var taken []string
	for _, policy := range slices.Compact(policies) {
		took, err := s.takeLock(ctx, r, policy, from, now)
		if err != nil {
			for _, id := range taken {
				if err := s.giveLock(ctx, r, id); err != nil {
					s.Log.Warn("a policy stays locked until its time is over", "policy", id, "rollout", r.ID, "error", err)
				}
			}
			return err
		}
		if took {
			taken = append(taken, policy)
		}
	}
	return nil
}

// takeLock locks one policy. took is false if the rollout had it before.
func (s *Service) takeLock(ctx context.Context, r *fleet.Rollout, policy, from string, now time.Time) (took bool, err error) {
	locks := s.Store.PolicyLocks()
	for try := 1; ; try++ {
		lock, err := locks.Get(ctx, policy)
		switch {
		case err != nil && fleet.KindOf(err) == fleet.NotFound:
			took = true
			err = locks.Create(ctx, fleet.PolicyLock{PolicyID: policy, RolloutID: r.ID, At: now})
		case err != nil:
			return false, err
		default:
			took = lock.RolloutID != r.ID
			if took && lock.RolloutID != from {
				if err := s.checkLockFree(ctx, lock, now); err != nil {
					return false, err
				}
			}
			lock.RolloutID, lock.At = r.ID, now
			err = locks.Update(ctx, lock)
		}
		if err == nil {
			return took, nil
		}
		if kind := fleet.KindOf(err); (kind != fleet.Conflict && kind != fleet.NotFound) || try == changeTries {
			return false, err
		}
	}
}

// checkLockFree returns nil if the rollout that a lock names does not need it any
// more.
func (s *Service) checkLockFree(ctx context.Context, l fleet.PolicyLock, now time.Time) error {
	r, err := s.Store.Rollouts().Get(ctx, l.RolloutID)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return nil
	case err != nil:
		return err
	case r.State.Active():
		return lockedError(l.PolicyID, holderOf(&r))
	case r.State == fleet.RolloutDraft && now.Sub(l.At) <= lockGrace:
		e := fleet.Errorf(fleet.Conflict, "%s is being started on policy %s: wait until it has ended, or try again in a minute if its start died", plan.Title(&r), l.PolicyID)
		e.Code = errActiveRollout
		return e
	}
	return nil
}

func (s *Service) giveLock(ctx context.Context, r *fleet.Rollout, policy string) error {
	lock, err := s.Store.PolicyLocks().Get(ctx, policy)
	if err != nil || lock.RolloutID != r.ID {
		return err
	}
	return s.Store.PolicyLocks().Delete(ctx, policy)
}

// Lock names the rollout that has each of the agents, for those that are targets,
// and not skipped, of the active rollout of their policy. While a rollback has a
// policy, the rollout that it rolls back has it too.
func (s *Service) Lock(ctx context.Context, agents []fleet.Agent) (map[string]preview.Holder, error) {
	locking, err := s.lockingRollouts(ctx)
	if err != nil || len(locking) == 0 {
		return nil, err
	}
	byRollout := map[string][]string{}
	rollouts := map[string]*fleet.Rollout{}
	for _, a := range agents {
		if r, ok := locking[a.PolicyID]; ok {
			byRollout[r.ID], rollouts[r.ID] = append(byRollout[r.ID], a.ID), r
		}
	}
	locked := map[string]preview.Holder{}
	for _, id := range slices.Sorted(maps.Keys(byRollout)) {
		r, ids := rollouts[id], byRollout[id]
		if r.RollbackOf != "" {
			original, err := s.Store.Rollouts().Get(ctx, r.RollbackOf)
			switch {
			case err != nil && fleet.KindOf(err) != fleet.NotFound:
				return nil, err
			case err == nil && original.State.Active():
				if err := s.lockTargets(ctx, &original, ids, locked); err != nil {
					return nil, err
				}
			}
		}
		if err := s.lockTargets(ctx, r, ids, locked); err != nil {
			return nil, err
		}
	}
	return locked, nil
}

// lockTargets adds those of the agents that the rollout has.
func (s *Service) lockTargets(ctx context.Context, r *fleet.Rollout, ids []string, locked map[string]preview.Holder) error {
	targets, err := s.Store.Targets().GetMany(ctx, r.ID, ids)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if t.State != fleet.TargetSkipped && t.State != fleet.TargetCancelled {
			locked[t.AgentID] = holderOf(r)
		}
	}
	return nil
}

// Locked is Lock as package action asks for it: a sentence for each agent that a
// rollout has.
func (s *Service) Locked(ctx context.Context, agents []fleet.Agent) (map[string]string, error) {
	locked, err := s.Lock(ctx, agents)
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	sentences := make(map[string]string, len(locked))
	for id, h := range locked {
		sentences[id] = "agent " + id + " belongs to the active rollout “" + h.Name + "” (" + h.ID + "): wait until it has ended, skip the agent there, or cancel the rollout"
	}
	return sentences, nil
}
