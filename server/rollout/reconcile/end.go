package reconcile

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// end releases what a rollout held. A lock that a crash leaves behind blocks nothing,
// since locks of ended rollouts do not count.
func (r *Reconciler) end(ctx context.Context, run *runState, over fleet.Rollout, now time.Time) error {
	delete(r.runs, over.ID)
	if err := r.cancelStages(ctx, run, &over); err != nil {
		return err
	}
	var original *fleet.Rollout
	if over.RollbackOf != "" {
		o, err := r.store.Rollouts().Get(ctx, over.RollbackOf)
		if err != nil && fleet.KindOf(err) != fleet.NotFound {
			return err
		}
		if err == nil {
			original = &o
		}
	}
	for _, policy := range over.Policies {
		key := fleet.LockKey(policy, over.Plan.Component)
		lock, err := r.store.PolicyLocks().Get(ctx, key)
		switch {
		case err != nil && fleet.KindOf(err) != fleet.NotFound:
			return err
		case err != nil || lock.RolloutID != over.ID:
			continue
		case original != nil && original.State.Active():
			lock.RolloutID, lock.At = original.ID, now // it was taken over from the original
			_, err = r.store.PolicyLocks().Update(ctx, lock)
		default:
			err = r.store.PolicyLocks().Delete(ctx, key)
		}
		if err != nil && fleet.KindOf(err) != fleet.Conflict {
			return err
		}
	}
	if original != nil && over.State == fleet.RolloutCompleted && over.ID != plan.RollbackID(original.ID) {
		// A rollback of the failed targets alone: the original may continue.
		run.events = append(run.events, fleet.RolloutEvent(fleet.EventRollbackDone, original, now))
	}
	r.Signal() // the original may end too
	return r.leases.End(ctx, leaseID(over.ID))
}

// closeOriginal marks a rollout that had ended before it was rolled back as rolled
// back. It runs before its rollback ends, since afterwards neither is active. An
// original that is still active ends in endRolledBack.
func (r *Reconciler) closeOriginal(ctx context.Context, run *runState, rollback fleet.Rollout, now time.Time) error {
	o, err := r.store.Rollouts().Get(ctx, rollback.RollbackOf)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	if err != nil || !o.State.Ended() || o.State == fleet.RolloutRolledBack || rollback.ID != plan.RollbackID(o.ID) || plan.CheckKnown(&o) != nil {
		return nil
	}
	o.State, o.EndedAt, o.Waiting = fleet.RolloutRolledBack, &now, nil
	if _, err := r.store.Rollouts().Update(ctx, o); err != nil {
		return err
	}
	run.events = append(run.events, fleet.RolloutEvent(fleet.EventRollbackDone, &o, now))
	return nil
}

// endRolledBack ends a rollout whose targets are all rolled back.
func (r *Reconciler) endRolledBack(ctx context.Context, run *runState, active map[string]bool) (over bool, err error) {
	by := run.rollout.RolledBackBy
	if by == "" || by != plan.RollbackID(run.rollout.ID) || active[by] {
		return false, nil
	}
	rollback, err := r.store.Rollouts().Get(ctx, by)
	if err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			err = nil
		}
		return false, err
	}
	if rollback.State != fleet.RolloutCompleted {
		return false, nil // still being started, or it failed: an operator decides
	}
	now := r.now.UTC()
	var moves []plan.Move
	for i := range run.targets {
		switch s := run.targets[i].State; {
		case s.Waits():
			moves = append(moves, plan.Move{Target: int32(i), To: plan.Cancelled, Code: plan.CodeOf(fleet.WhyRollingBack)})
		case s.InFlight():
			return false, nil // its agent is still upgrading
		}
	}
	if err := r.makeMoves(ctx, run, moves, now); err != nil {
		return false, err
	}
	next := run.rollout
	next.State, next.EndedAt, next.Waiting, next.Orders = fleet.RolloutRolledBack, &now, nil, nil
	next.Counts = run.counts()
	return true, r.save(ctx, run, next, now)
}
