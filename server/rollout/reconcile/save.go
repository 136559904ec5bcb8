package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// save writes the rollout, its audit entry and its events. Changes of counts alone
// are written once in a progressInterval.
func (r *Reconciler) save(ctx context.Context, run *runState, next fleet.Rollout, now time.Time) error {
	if !urgent(&run.rollout, &next) && now.Sub(run.written) < progressInterval {
		run.countsPending = true
		return nil
	}
	if err := r.renewLease(ctx, run); err != nil {
		return err
	}
	was := run.rollout
	next.Revision = was.Revision
	if next.State == fleet.RolloutCompleted && next.RollbackOf != "" {
		if err := r.closeOriginal(ctx, run, next, now); err != nil {
			return err
		}
	}
	if i, ok := stopIncident(&was, &next); ok && r.incidents != nil {
		if err := r.incidents.Open(ctx, i); err != nil {
			return err
		}
	}
	switch _, err := r.store.Rollouts().Update(ctx, next); {
	case err != nil && fleet.KindOf(err) == fleet.Conflict:
		return errChanged
	case err != nil:
		return err
	}
	run.written, run.countsPending = now, false
	if err := r.reread(ctx, run); err != nil {
		return err
	}
	if err := r.record(ctx, run, was.Revision, next, now); err != nil {
		return err
	}
	run.announce(was.State, &next, now)
	if next.State.Ended() {
		return r.end(ctx, run, next, now)
	}
	return nil
}

// record writes the step to the audit trail, from which the past is explained.
func (r *Reconciler) record(ctx context.Context, run *runState, revision int64, next fleet.Rollout, now time.Time) error {
	trail := plan.TrailOf(&next)
	if trail.Same(run.trail) {
		return nil
	}
	data, err := json.Marshal(trail)
	if err != nil {
		return err // cannot happen: everything in it can be encoded
	}
	e := fleet.AuditEntry{
		ID: fmt.Sprintf("%s:step:%d", next.ID, revision), At: now, Actor: Muster, Verb: "rollout.step", Subject: next.ID, Text: stepText(&next), Data: data,
	}
	if err := r.store.Audit().Append(ctx, []fleet.AuditEntry{e}); err != nil {
		return err
	}
	run.trail = trail
	return nil
}

// stepText describes the state of a rollout in a sentence.
func stepText(r *fleet.Rollout) string {
	text := string(r.State)
	if r.State.Ended() { // the trail of all subjects shows it by itself
		text = fmt.Sprintf("%s has ended: %s", plan.Name(r), strings.ReplaceAll(text, "_", " "))
	}
	if r.State == fleet.RolloutRunning && len(r.Batches) > 0 {
		text = fmt.Sprintf("running, batch %d of %d", plan.CurrentBatch(r)+1, len(r.Batches))
	}
	if l := r.Lockstep; l != nil && r.State == fleet.RolloutRunning {
		text = fmt.Sprintf("running, phase %s", strings.ReplaceAll(string(l.Phase), "_", " "))
	}
	switch {
	case r.Stop != nil && r.State == fleet.RolloutPaused:
		text += ": " + r.Stop.Text
	case len(r.Waiting) > 0 && !r.State.Ended():
		text += ": " + r.Waiting[0].Text
	}
	return text
}

// announce adds the events of a step.
func (run *runState) announce(was fleet.RolloutState, next *fleet.Rollout, now time.Time) {
	typ := map[fleet.RolloutState]string{
		fleet.RolloutPaused: fleet.EventRolloutPaused, fleet.RolloutCompleted: fleet.EventRolloutCompleted,
		fleet.RolloutFailed: fleet.EventRolloutFailed, fleet.RolloutCancelled: fleet.EventRolloutCancelled,
		fleet.RolloutRolledBack: fleet.EventRollbackDone,
	}[next.State]
	if was != next.State && typ != "" {
		run.events = append(run.events, fleet.RolloutEvent(typ, next, now))
	}
	if next.Counts != run.published && now.Sub(run.progress) >= progressInterval || was != next.State {
		run.events = append(run.events, fleet.RolloutEvent(fleet.EventRolloutProgress, next, now))
		run.published, run.progress = next.Counts, now
	}
}
