package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
)

// A rollout that has ended has no lease and no run state, and its hosts may still report: one that
// was silent has installed the version after all, or was rolled back. Every server corrects the
// targets and the counts by such reports, as soon as an event names an action of the rollout.
// Revisions protect the documents, so a correction that two servers make is made once.

// endedPage is how many rollouts one read of the search has: some 5 KB each.
const endedPage = 100

// late are the agents of rollouts that have ended which are to be assessed, by rollout, with the time
// at which that is due.
type late map[string]map[string]time.Time

func (l late) add(rolloutID, agentID string, due time.Time) {
	if l[rolloutID] == nil {
		l[rolloutID] = map[string]time.Time{}
	}
	l[rolloutID][agentID] = due
}

// due returns the agents of a rollout whose time has come, at most a chunk.
func (l late) due(rolloutID string, now time.Time) []string {
	var ids []string
	for id, at := range l[rolloutID] {
		if !now.Before(at) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), chunk)]
}

// drop removes agents of a rollout.
func (l late) drop(rolloutID string, agentIDs []string) {
	for _, id := range agentIDs {
		delete(l[rolloutID], id)
	}
	if len(l[rolloutID]) == 0 {
		delete(l, rolloutID)
	}
}

// correctEnded assesses the agents of rollouts that have ended which have reported since.
func (r *Reconciler) correctEnded(ctx context.Context, in input) error {
	now := r.now.UTC()
	for id := range r.wasActive {
		if !in.active[id] { // it has just ended, and what was reported meanwhile was perhaps not assessed
			for agent := range in.reported {
				r.late.add(id, agent, now)
			}
		}
	}
	r.wasActive = in.active
	if in.lateAll {
		if err := r.searchEnded(ctx, now); err != nil {
			return err
		}
	}
	for id, agents := range in.late {
		for agent := range agents {
			r.late.add(id, agent, now)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.late)) {
		due := r.late.due(id, now)
		switch {
		case in.active[id] || r.newer[id]:
			r.late.drop(id, slices.Collect(maps.Keys(r.late[id])))
			continue
		case len(due) == 0:
			continue
		}
		again, err := r.correct(ctx, id, due, now)
		if err != nil {
			return fmt.Errorf("rollout %s, which has ended: %w", id, err)
		}
		r.late.drop(id, due)
		for agent, at := range again {
			r.late.add(id, agent, at)
		}
		if len(r.late.due(id, now)) > 0 {
			r.Signal()
		}
	}
	return nil
}

// searchEnded finds the rollouts that ended within the LateReportWindow, and those whose hosts are
// still under way, since no events are known of the time before.
func (r *Reconciler) searchEnded(ctx context.Context, now time.Time) error {
	for offset := 0; ; offset += endedPage {
		list, total, err := r.store.Rollouts().List(ctx, offset, endedPage)
		if err != nil {
			return err
		}
		for i := range list {
			o := &list[i]
			if !o.State.Ended() || o.EndedAt == nil || now.Sub(*o.EndedAt) > plan.LateReportWindow && o.Counts.InFlight() == 0 {
				continue
			}
			err := r.store.Targets().Each(ctx, o.ID, func(t fleet.Target) {
				if t.ActionID != "" {
					r.late.add(o.ID, t.AgentID, now)
				}
			})
			if err != nil {
				return err
			}
		}
		if offset+len(list) >= total || len(list) == 0 {
			return nil
		}
	}
}

// correct assesses agents of a rollout that has ended, and writes what differs. It returns when those
// whose state may still change by time alone are to be assessed again.
func (r *Reconciler) correct(ctx context.Context, id string, agentIDs []string, now time.Time) (again map[string]time.Time, err error) {
	o, err := r.store.Rollouts().Get(ctx, id)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return nil, nil
	}
	if err != nil || !o.State.Ended() || plan.CheckKnown(&o) != nil {
		return nil, err
	}
	targets, err := r.store.Targets().GetMany(ctx, id, agentIDs)
	if err != nil {
		return nil, err
	}
	agents, err := r.store.Agents().GetMany(ctx, agentIDs)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*fleet.Agent, len(agents))
	for i := range agents {
		byID[agents[i].ID] = &agents[i]
	}
	again = map[string]time.Time{}
	run := &runState{rollout: o} // for incidents and events
	var moved []fleet.Target
	recount := o.Counts.InFlight() > 0
	for _, t := range targets {
		if plan.Final(&t, now) {
			continue
		}
		is, changed, next := plan.Assess(t, byID[t.AgentID], &o, now)
		if is.State.InFlight() {
			if soon := now.Add(reassessInterval); next.IsZero() || soon.Before(next) {
				next = soon
			}
			again[t.AgentID] = next
		}
		if !changed {
			continue
		}
		r.inRollback(run, &is, byID[t.AgentID])
		run.letGo(&is)
		if err := r.openIncident(ctx, run, &is, now); err != nil {
			return nil, err
		}
		recount = recount || is.State != t.State
		moved = append(moved, is)
	}
	if len(moved) > 0 {
		_, errs, err := r.store.Targets().UpdateMany(ctx, moved)
		if err != nil {
			return nil, err
		}
		for k, err := range errs {
			switch {
			case err == nil:
				run.events = append(run.events, fleet.TargetEvent(eventOf(moved[k].State), &o, &moved[k], now))
			case fleet.KindOf(err) == fleet.Conflict: // another server corrects it too
				again[moved[k].AgentID] = now
			default:
				return nil, err
			}
		}
	}
	if recount {
		err = r.recount(ctx, run, now)
	}
	r.publish(ctx, run)
	return again, err
}

// eventOf returns the type of the event of a target that has come into a state.
func eventOf(s fleet.TargetState) string {
	if s.InFlight() {
		return fleet.EventTargetPhase
	}
	return fleet.EventTargetCompleted
}

// recount corrects the counts and the state of a rollout that has ended by its targets.
func (r *Reconciler) recount(ctx context.Context, run *runState, now time.Time) error {
	var was fleet.Rollout
	next, written, err := store.Change(ctx, r.store.Rollouts(), run.rollout.ID, func(next fleet.Rollout) (fleet.Rollout, error) {
		was = next
		if !was.State.Ended() {
			return was, nil
		}
		next.Counts, next.Batches = fleet.Counts{}, slices.Clone(was.Batches)
		for i := range next.Batches {
			next.Batches[i].Counts = fleet.Counts{}
		}
		err := r.store.Targets().Each(ctx, was.ID, func(t fleet.Target) {
			plan.AddTo(&next.Counts, &t)
			if t.Batch < len(next.Batches) {
				plan.AddTo(&next.Batches[t.Batch].Counts, &t)
			}
		})
		if err != nil || next.Counts == was.Counts {
			return was, err
		}
		next.State = plan.EndState(&next)
		if i, ok := stopIncident(&was, &next); ok && r.incidents != nil {
			return next, r.incidents.Open(ctx, i)
		}
		return next, nil
	})
	if err != nil || !written {
		return err
	}
	run.announce(was.State, &next, now)
	return r.recordCorrection(ctx, &was, &next, now)
}

func (r *Reconciler) recordCorrection(ctx context.Context, was, next *fleet.Rollout, now time.Time) error {
	data, err := json.Marshal(plan.TrailOf(next))
	if err != nil {
		return err // cannot happen: everything in it can be encoded
	}
	text := fmt.Sprintf("reports after its end corrected it: %d of %d succeeded, %d failed", next.Counts.Succeeded, next.Counts.Total, next.Counts.Bad())
	if was.State != next.State {
		text = stepText(next) + "; " + text
	}
	return r.store.Audit().Append(ctx, []fleet.AuditEntry{{
		ID: fmt.Sprintf("%s:step:%d", next.ID, was.Revision), At: now, Actor: Muster, Verb: plan.VerbStep, Subject: next.ID, Text: text, Data: data,
	}})
}
