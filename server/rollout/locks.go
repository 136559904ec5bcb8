package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/store"
)

// lockGrace is how long a policy stays locked to a draft. A start takes a second or
// two, and starting again completes one that a crash interrupted.
const lockGrace = time.Minute

// Locks finds the active rollouts that lock policies and agents. It only reads.
type Locks struct{ Store store.Store }

func (s *Service) locks() Locks { return Locks{Store: s.Store} }

// locked returns the rollout that locks each policy, by policy, without the
// rollouts in except. A rollout of a component locks only that of the policy's agents, and
// one of agents (component is empty) no components.
func (l Locks) locked(ctx context.Context, component string, except ...string) (map[string]preview.LockOwner, error) {
	locking, err := l.rollouts(ctx, component, except...)
	if err != nil {
		return nil, err
	}
	locked := make(map[string]preview.LockOwner, len(locking))
	for policy, r := range locking {
		if plan.LocksPolicies(r) {
			locked[policy] = lockOwnerOf(r)
		}
	}
	return locked, nil
}

// Components returns the names of the components that locks are on.
func (l Locks) Components(ctx context.Context) ([]string, error) {
	locks, _, err := l.Store.PolicyLocks().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, lock := range locks {
		if lock.Component != "" && !slices.Contains(names, lock.Component) {
			names = append(names, lock.Component)
		}
	}
	slices.Sort(names)
	return names, nil
}

// OfPolicies returns the active rollout that holds the agents of each policy, or a component
// of them, by policy.
func (l Locks) OfPolicies(ctx context.Context, component string) (map[string]preview.LockOwner, error) {
	return l.locked(ctx, component)
}

func lockOwnerOf(r *fleet.Rollout) preview.LockOwner {
	return preview.LockOwner{ID: r.ID, Name: r.Plan.Name, Cancelling: !plan.LocksPolicies(r)}
}

// rollouts returns the active rollouts that lock policies, by policy, without those in
// except.
func (l Locks) rollouts(ctx context.Context, component string, except ...string) (map[string]*fleet.Rollout, error) {
	locks, _, err := l.Store.PolicyLocks().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	locking := map[string]*fleet.Rollout{}
	seen := map[string]*fleet.Rollout{}
	for _, lock := range locks {
		if lock.Component != component || slices.Contains(except, lock.RolloutID) {
			continue
		}
		r, ok := seen[lock.RolloutID]
		if !ok {
			got, err := l.Store.Rollouts().Get(ctx, lock.RolloutID)
			switch {
			case err == nil:
				r = &got
			case fleet.KindOf(err) != fleet.NotFound:
				return nil, err
			}
			seen[lock.RolloutID] = r
		}
		if r != nil && r.State.Active() {
			locking[lock.PolicyID] = r
		}
	}
	return locking, nil
}

// OfAgents returns the rollout that each agent, or its component, belongs to, for agents that
// are targets, and neither skipped nor cancelled, of the active rollout of their policy; of one that is
// being cancelled, only those in flight, and none if that was to be at once. While a rollback locks a
// policy, so does the rollout that it rolls back.
func (l Locks) OfAgents(ctx context.Context, component string, agents []fleet.Agent) (map[string]preview.LockOwner, error) {
	locking, err := l.rollouts(ctx, component)
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
	locked := map[string]preview.LockOwner{}
	for _, id := range slices.Sorted(maps.Keys(byRollout)) {
		r, ids := rollouts[id], byRollout[id]
		if r.RollbackOf != "" {
			original, err := l.Store.Rollouts().Get(ctx, r.RollbackOf)
			switch {
			case err != nil && fleet.KindOf(err) != fleet.NotFound:
				return nil, err
			case err == nil && original.State.Active():
				if err := l.addTargets(ctx, &original, ids, locked); err != nil {
					return nil, err
				}
			}
		}
		if err := l.addTargets(ctx, r, ids, locked); err != nil {
			return nil, err
		}
	}
	return locked, nil
}

// Notices says which of the agents are targets of active rollouts, a sentence for each rollout. What
// changes an agent, such as another policy or other tags, does not take it out of them.
func (s *Service) Notices(ctx context.Context, ids []string) ([]string, error) {
	components, err := s.locks().Components(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[preview.LockOwner]int{}
	for _, component := range append([]string{""}, components...) {
		locked, err := s.locks().locked(ctx, component)
		if err != nil || len(locked) == 0 {
			if err != nil {
				return nil, err
			}
			continue
		}
		for part := range slices.Chunk(ids, targetChunk) {
			agents, err := s.Store.Agents().GetMany(ctx, part)
			if err != nil {
				return nil, err
			}
			owners, err := s.locks().OfAgents(ctx, component, agents)
			if err != nil {
				return nil, err
			}
			for _, h := range owners {
				counts[h]++
			}
		}
	}
	var out []string
	for h, n := range counts {
		out = append(out, fmt.Sprintf("%s of the active rollout “%s” (%s), whose targets were fixed when it was started: it goes on with them; skip them there if it should not",
			plan.Count(n, "agent is a target", "agents are targets"), h.Name, h.ID))
	}
	slices.Sort(out)
	return out, nil
}

// addTargets adds those of the agents that belong to the rollout.
func (l Locks) addTargets(ctx context.Context, r *fleet.Rollout, ids []string, locked map[string]preview.LockOwner) error {
	if r.CancelledNow != nil && !plan.LocksPolicies(r) {
		return nil
	}
	targets, err := l.Store.Targets().GetMany(ctx, r.ID, ids)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if t.State.InFlight() || plan.LocksPolicies(r) && t.State != fleet.TargetSkipped && t.State != fleet.TargetCancelled {
			locked[t.AgentID] = lockOwnerOf(r)
		}
	}
	return nil
}

// Locked is Holders in the form that package action needs: a sentence for each agent
// that belongs to a rollout.
func (l Locks) Locked(ctx context.Context, component string, agents []fleet.Agent) (map[string]string, error) {
	locked, err := l.OfAgents(ctx, component, agents)
	if err != nil || len(locked) == 0 {
		return nil, err
	}
	sentences := make(map[string]string, len(locked))
	for id, h := range locked {
		subject := fleet.PartOf(component, "agent "+id)
		if h.Cancelling {
			sentences[id] = subject + " is still being upgraded by the rollout “" + h.Name + "” (" + h.ID + "), which is being cancelled: wait until that has ended, or let go of its hosts with `muster rollouts cancel " + h.ID + " --now`"
			continue
		}
		sentences[id] = subject + " belongs to the active rollout “" + h.Name + "” (" + h.ID + "): wait until it has ended, skip the agent there, or cancel the rollout"
	}
	return sentences, nil
}

// takeLocks locks all policies to the rollout, or none. It does so in their order, so
// that of two rollouts that want the same policies one gets all of them. It takes over
// the locks of the rollout from.
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

// takeLock locks one policy. took is false if the rollout already had it.
func (s *Service) takeLock(ctx context.Context, r *fleet.Rollout, policy, from string, now time.Time) (took bool, err error) {
	_, _, err = store.Put(ctx, s.Store.PolicyLocks(), fleet.LockKey(policy, r.Plan.Component), func(lock *fleet.PolicyLock) (fleet.PolicyLock, error) {
		took = lock == nil || lock.RolloutID != r.ID
		if took && lock != nil && lock.RolloutID != from {
			if err := s.checkLockFree(ctx, *lock, now); err != nil {
				return *lock, err
			}
		}
		return fleet.PolicyLock{PolicyID: policy, Component: r.Plan.Component, RolloutID: r.ID, At: now}, nil
	})
	return took && err == nil, err
}

// checkLockFree returns nil if the rollout that a lock names no longer needs it.
func (s *Service) checkLockFree(ctx context.Context, l fleet.PolicyLock, now time.Time) error {
	r, err := s.Store.Rollouts().Get(ctx, l.RolloutID)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return nil
	case err != nil:
		return err
	case plan.LocksPolicies(&r):
		return lockedError(l.Component, l.PolicyID, lockOwnerOf(&r))
	case r.State == fleet.RolloutDraft && now.Sub(l.At) <= lockGrace:
		e := fleet.Errorf(fleet.Conflict, "%s is being started on policy %s: wait until it has ended, or try again in a minute if its start died", plan.Title(&r), l.PolicyID)
		e.Code = errActiveRollout
		return e
	}
	return nil
}

func (s *Service) giveLock(ctx context.Context, r *fleet.Rollout, policy string) error {
	key := fleet.LockKey(policy, r.Plan.Component)
	lock, err := s.Store.PolicyLocks().Get(ctx, key)
	if err != nil || lock.RolloutID != r.ID {
		return err
	}
	return s.Store.PolicyLocks().Delete(ctx, key)
}
