package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// Every effect is written before it is executed: a target names the action that offers
// it the version before that action exists, and a stop is in the rollout's document
// before the first offer is withdrawn. So a server that dies at any point leaves behind
// what the next one has to repeat, and repeating it changes nothing.

// errChanged reports that another writer changed the rollout's document during the
// round.
var errChanged = errors.New("the rollout was changed during the round")

// update is a changed target that is to be written.
type update struct {
	index  int32
	target fleet.Target
	quiet  bool // nothing about it is worth an event
}

// carryOut executes a step: it moves targets, stops, offers, withdraws, and writes the
// rollout.
func (r *Reconciler) carryOut(ctx context.Context, run *runState, step plan.Step, now time.Time) error {
	if err := r.makeMoves(ctx, run, step.Moves, now); err != nil {
		return err
	}
	next, changed := step.Rollout, step.Changed
	if len(step.Withdraw) > 0 && next.Stop != nil && !plan.SameStop(next.Stop, run.rollout.Stop) {
		if err := r.save(ctx, run, next, now); err != nil {
			return err
		}
		changed = false
	}
	if err := r.offer(ctx, run, step.Offer, now); err != nil {
		return err
	}
	code, why := plan.TakesBack(&next)
	if err := r.withdraw(ctx, run, step.Withdraw, withdrawal{why: why, state: fleet.TargetWithdrawn, code: code}); err != nil {
		return err
	}
	if !changed {
		run.countsPending = false
		return nil
	}
	return r.save(ctx, run, next, now)
}

// documents reads the documents of targets.
func (r *Reconciler) documents(ctx context.Context, run *runState, which []int32) ([]update, error) {
	changes := make([]update, len(which))
	var missing []string
	for k, i := range which {
		changes[k].index = i
		if f := run.tracked[i]; f != nil {
			changes[k].target = f.target
		} else {
			missing = append(missing, run.targets[i].AgentID)
		}
	}
	if len(missing) == 0 {
		return changes, nil
	}
	list, err := r.store.Targets().GetMany(ctx, run.rollout.ID, missing)
	if err != nil {
		return nil, err
	}
	if len(list) != len(missing) {
		return nil, fleet.Errorf(fleet.Conflict, "%d targets are gone", len(missing)-len(list))
	}
	for k := range changes {
		if changes[k].target.AgentID == "" {
			changes[k].target, list = list[0], list[1:]
		}
	}
	return changes, nil
}

// write stores the documents of targets and updates the run state from them.
func (r *Reconciler) write(ctx context.Context, run *runState, changes []update) error {
	for part := range slices.Chunk(changes, chunk) {
		if err := r.renewLease(ctx, run); err != nil {
			return err
		}
		list := make([]fleet.Target, len(part))
		for k := range part {
			list[k] = part[k].target
		}
		revisions, errs, err := r.store.Targets().UpdateMany(ctx, list)
		if err != nil {
			return err
		}
		for k, c := range part {
			if errs[k] != nil {
				return errs[k]
			}
			c.target.Revision = revisions[k]
			run.note(c, r.now.UTC())
			run.apply(c.index, c.target)
		}
	}
	return nil
}

// note adds the event of an update, if it has one.
func (run *runState) note(c update, now time.Time) {
	if c.quiet {
		return
	}
	was := run.targets[c.index].State.Name()
	typ := fleet.EventTargetPhase
	switch s := c.target.State; {
	case s == was && !s.InFlight(), !s.InFlight() && !was.InFlight() && !was.Ended():
		return
	case s == fleet.TargetOffered && was != s:
		typ = fleet.EventTargetStarted
	case s == fleet.TargetSucceeded || s == fleet.TargetFailed || s == fleet.TargetRolledBack:
		typ = fleet.EventTargetCompleted
	}
	run.events = append(run.events, fleet.TargetEvent(typ, &run.rollout, &c.target, now))
}

// makeMoves writes changes of state that do not involve the agents.
func (r *Reconciler) makeMoves(ctx context.Context, run *runState, moves []plan.Move, now time.Time) error {
	for part := range slices.Chunk(moves, chunk) {
		which := make([]int32, len(part))
		for k, m := range part {
			which[k] = m.Target
		}
		changes, err := r.documents(ctx, run, which)
		if err != nil {
			return err
		}
		for k, m := range part {
			run.move(&changes[k].target, m.To.Name(), m.Code.Name(), "", now)
		}
		if err := r.write(ctx, run, changes); err != nil {
			return err
		}
	}
	return nil
}

// move sets the state of a target and the fields that depend on it.
func (run *runState) move(t *fleet.Target, s fleet.TargetState, code fleet.ReasonCode, text string, now time.Time) {
	switch s {
	case fleet.TargetHeld:
		run.hold(t, now)
	case fleet.TargetPending:
		t.ExpiresAt = nil
	}
	plan.ChangeState(t, s, code, text, now)
}

// hold sets how long an offer waits for its agent. An agent that comes and goes does
// not prolong it.
func (run *runState) hold(t *fleet.Target, now time.Time) {
	if t.ExpiresAt == nil {
		until := now.Add(plan.OfferFor(&run.rollout.Plan))
		t.ExpiresAt = &until
	}
}

// writeAssessed writes targets that assess moved, and executes what follows:
// withdrawals and incidents.
func (r *Reconciler) writeAssessed(ctx context.Context, run *runState, moved []update) error {
	if len(moved) == 0 {
		return nil
	}
	now := r.now.UTC()
	var away, stale, stalled []update
	for k := range moved {
		t := &moved[k].target
		switch {
		case !run.targets[moved[k].index].State.InFlight():
		case t.State == fleet.TargetHeld:
			run.hold(t, now)
			away = append(away, moved[k])
		case t.State == fleet.TargetFailed && t.Code == fleet.WhyStale:
			stale = append(stale, moved[k])
		case t.State == fleet.TargetFailed && t.Code == fleet.WhyNoProgress:
			stalled = append(stalled, moved[k])
		}
	}
	if err := r.withdrawOffers(ctx, run, away, "the agent is away"); err != nil {
		return err
	}
	if err := r.withdrawOffers(ctx, run, stale, "the agent was silent"); err != nil {
		return err
	}
	if err := r.withdrawOffers(ctx, run, stalled, "the upgrade made no progress"); err != nil {
		return err
	}
	for _, c := range moved {
		if err := r.openIncident(ctx, run, &c.target, now); err != nil {
			return err
		}
	}
	return r.write(ctx, run, moved)
}
