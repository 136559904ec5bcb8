package reconcile

import (
	"context"
	"fmt"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
)

// stageID returns the id of the action by which the nth part of the targets stages the version.
func stageID(rolloutID string, n int) string { return fmt.Sprintf("%s-gstage-%d", rolloutID, n) }

// parts calls f with the index of the first target of each part that is asked by an action of its
// own, and of the first one behind it.
func parts(s *fleet.Staging, targets int, f func(n, from, to int) error) error {
	targets = min(s.Targets, targets)
	for n := 0; n*action.MaxAgents < targets; n++ {
		if err := f(n, n*action.MaxAgents, min((n+1)*action.MaxAgents, targets)); err != nil {
			return err
		}
	}
	return nil
}

// stageAhead asks the targets to stage the version, once the rollout's document says that they
// are asked, and finds those that have answered.
func (r *Reconciler) stageAhead(ctx context.Context, run *runState) error {
	s, now := run.rollout.Staging, r.now.UTC()
	if s == nil || s.EndedAt != nil || run.rollout.State != fleet.RolloutRunning || now.Before(run.answersDue) {
		return nil
	}
	err := parts(s, len(run.targets), func(n, from, to int) error {
		if !run.asked {
			switch err := r.askToStage(ctx, run, n, from, to); {
			case fleet.KindOf(err) == fleet.Invalid:
				// Such as a package that is no longer published. The offers say so of each target.
				r.log.Warn("targets of a rollout are not asked to stage its version", "rollout", run.rollout.ID, "error", err)
				for i := from; i < to; i++ {
					run.targets[i].Answered, run.dirty = true, true
				}
			case err != nil:
				return err
			}
		}
		var ids []string
		for i := from; i < to; i++ {
			if !run.targets[i].Answered {
				ids = append(ids, run.targets[i].AgentID)
			}
		}
		if len(ids) == 0 {
			return nil
		}
		answered, err := r.store.Results().Answered(ctx, stageID(run.rollout.ID, n), ids)
		if err != nil {
			return err
		}
		for i := from; i < to; i++ {
			if t := &run.targets[i]; answered[t.AgentID] && !t.Answered {
				t.Answered, run.dirty = true, true
			}
		}
		return r.renewLease(ctx, run)
	})
	if err != nil {
		return err
	}
	run.asked = true
	took := r.now.UTC().Sub(now)
	run.answersDue = now.Add(max(snapshotInterval, snapshotRest*took))
	return nil
}

func (r *Reconciler) askToStage(ctx context.Context, run *runState, n, from, to int) error {
	p := &run.rollout.Plan
	var ids []string
	for i := from; i < to; i++ {
		if run.targets[i].State.Waits() {
			ids = append(ids, run.targets[i].AgentID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	id := stageID(run.rollout.ID, n)
	if _, err := r.store.Actions().Get(ctx, id); err == nil || fleet.KindOf(err) != fleet.NotFound {
		return err // an earlier round has created it
	}
	_, err := r.actions.Upgrade(ctx, action.UpgradeOrder{
		ID: id, Stages: true, Component: p.Component, UpgradeRequest: fleet.UpgradeRequest{Version: p.Version, SourceURI: p.SourceURI, Force: p.Force, Retry: p.RetryFailed},
		AgentIDs: ids, Actor: "rollout " + p.Name,
	})
	if fleet.KindOf(err) == fleet.Conflict { // another server came first
		return nil
	}
	return err
}

// cancelStages cancels what targets of a rollout that has ended have not staged yet.
func (r *Reconciler) cancelStages(ctx context.Context, run *runState, over *fleet.Rollout) error {
	if over.Staging == nil {
		return nil
	}
	return parts(over.Staging, len(run.targets), func(n, _, _ int) error {
		_, err := r.actions.Cancel(ctx, stageID(over.ID, n), "rollout "+over.Plan.Name)
		if kind := fleet.KindOf(err); kind == fleet.NotFound || kind == fleet.Conflict { // there is none, or it is over
			return nil
		}
		return err
	})
}
