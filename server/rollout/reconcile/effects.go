package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// Every effect is written before it is made: a target names the action that offers
// it the version before that action exists, and a stop is in the rollout's document
// before the first offer is withdrawn. So a replica that dies anywhere leaves behind
// what the next one has to do again, and doing it again changes nothing.

// errChanged says that somebody else wrote the rollout's document during the round.
var errChanged = errors.New("the rollout was changed during the round")

// update is a target as it is to be written.
type update struct {
	index  int32
	target fleet.Target
}

// carryOut does what was decided: it moves targets, stops, offers, withdraws, and
// writes the rollout.
func (r *Reconciler) carryOut(ctx context.Context, run *runState, step plan.Step, now time.Time) error {
	if err := r.makeMoves(ctx, run, step.Moves, now); err != nil {
		return err
	}
	next, changed := step.Rollout, step.Changed
	if len(step.Withdraw) > 0 && next.Stop != nil && !plan.SameStop(next.Stop, run.rollout.Stop) {
		if err := r.commit(ctx, run, next, now); err != nil {
			return err
		}
		changed = false
	}
	if err := r.offer(ctx, run, step.Offer, now); err != nil {
		return err
	}
	back := withdrawal{why: "the rollout is being cancelled", state: fleet.TargetWithdrawn, code: fleet.WhyOperator}
	if next.State == fleet.RolloutPaused && next.Stop != nil {
		back.why, back.code = next.Stop.Text, plan.StopReason(next.Stop)
	}
	if err := r.withdraw(ctx, run, step.Withdraw, back); err != nil {
		return err
	}
	if !changed {
		run.countsPending = false
		return nil
	}
	return r.commit(ctx, run, next, now)
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
	list, err := r.Store.Targets().GetMany(ctx, run.rollout.ID, missing)
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
		revisions, errs, err := r.Store.Targets().UpdateMany(ctx, list)
		if err != nil {
			return err
		}
		for k, c := range part {
			if errs[k] != nil {
				return errs[k]
			}
			c.target.Revision = revisions[k]
			run.note(c, r.Now.UTC())
			run.apply(c.index, c.target)
		}
	}
	return nil
}

// note adds the event of an update, if it is worth one.
func (run *runState) note(c update, now time.Time) {
	was := run.targets[c.index].State.Name()
	typ := fleet.EventTargetPhase
	switch s := c.target.State; {
	case s == was && !s.InFlight(), !s.InFlight() && !was.InFlight() && !was.Over():
		return
	case s == fleet.TargetOffered && was != s:
		typ = fleet.EventTargetStarted
	case s == fleet.TargetSucceeded || s == fleet.TargetFailed || s == fleet.TargetRolledBack:
		typ = fleet.EventTargetCompleted
	}
	run.events = append(run.events, fleet.TargetEvent(typ, &run.rollout, &c.target, now))
}

// makeMoves writes changes of state that concern no agent.
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

// move brings a target into a state, with what belongs to the state.
func (run *runState) move(t *fleet.Target, s fleet.TargetState, code fleet.ReasonCode, text string, now time.Time) {
	switch s {
	case fleet.TargetHeld:
		run.hold(t, now)
	case fleet.TargetPending:
		t.ExpiresAt = nil
	}
	plan.ChangeState(t, s, code, text, now)
}

// hold says how long an offer waits for its agent. An agent that comes and goes
// does not make it longer.
func (run *runState) hold(t *fleet.Target, now time.Time) {
	if t.ExpiresAt == nil {
		until := now.Add(plan.OfferFor(&run.rollout.Plan))
		t.ExpiresAt = &until
	}
}

// offerID names the action of an offer. Numbers are not used again, so an action
// belongs to one offer.
func offerID(rolloutID string, generation int64, n int) string {
	return fmt.Sprintf("%s-g%d-%d", rolloutID, generation, n)
}

// rolloutOf is the rollout that an action belongs to, empty if it is of none.
func rolloutOf(actionID string) string {
	head := actionID[:max(0, strings.LastIndexByte(actionID, '-'))]
	return head[:max(0, strings.LastIndex(head, "-g"))]
}

// offer offers the version to targets: it writes in their documents which action
// offers it, then makes the action.
func (r *Reconciler) offer(ctx context.Context, run *runState, which []int32, now time.Time) error {
	if len(which) == 0 {
		return nil
	}
	changes, err := r.documents(ctx, run, which)
	if err != nil {
		return err
	}
	type kind struct {
		to       string
		rollback bool
	}
	var kinds []kind
	groups := map[kind][]update{}
	for _, c := range changes {
		k := kind{c.target.To, c.target.Rollback}
		if groups[k] == nil {
			kinds = append(kinds, k)
		}
		groups[k] = append(groups[k], c)
	}
	for _, k := range kinds {
		for part := range slices.Chunk(groups[k], action.MaxAgents) {
			run.lastOffer++
			id := offerID(run.rollout.ID, run.rollout.Generation, run.lastOffer)
			for i := range part {
				t := &part[i].target
				if t.ActionID != "" {
					t.ActionIDs = append(slices.Clip(t.ActionIDs), t.ActionID)
				}
				t.ActionID, t.Phase, t.OfferedAt, t.ReachedAt, t.SignAt = id, "", &now, nil, nil
				t.Attempts++
				plan.ChangeState(t, fleet.TargetOffered, "", "", now)
				run.pendingOffers[id] = append(run.pendingOffers[id], part[i].index)
			}
			if err := r.write(ctx, run, part); err != nil {
				return err
			}
		}
	}
	return r.makeOffers(ctx, run)
}

// makeOffers makes the actions of offers that are written.
func (r *Reconciler) makeOffers(ctx context.Context, run *runState) error {
	for _, id := range slices.Sorted(maps.Keys(run.pendingOffers)) {
		var which []int32
		var ids []string
		var t *fleet.Target
		for _, i := range run.pendingOffers[id] {
			if f := run.tracked[i]; f != nil && f.target.State == fleet.TargetOffered && f.target.ActionID == id {
				which, ids, t = append(which, i), append(ids, run.targets[i].AgentID), &f.target
			}
		}
		if len(which) > 0 {
			p := &run.rollout.Plan
			refused, err := r.Actions.Offer(ctx, action.Offer{
				ID: id, Rollback: t.Rollback, AgentIDs: ids, Expiration: t.OfferedAt.Add(plan.OfferFor(p)), Actor: "rollout " + p.Name,
				UpgradeWish: fleet.UpgradeWish{Version: t.To, SourceURI: p.SourceURI, Force: p.Force || run.rollout.RollbackOf != "" && !t.Rollback},
			})
			if err != nil {
				return err
			}
			if err := r.refused(ctx, run, which, refused); err != nil {
				return err
			}
		}
		delete(run.pendingOffers, id)
	}
	return nil
}

// refused writes what becomes of targets whose agents could not take the offer.
func (r *Reconciler) refused(ctx context.Context, run *runState, which []int32, refused map[string]error) error {
	which = slices.DeleteFunc(which, func(i int32) bool { return refused[run.targets[i].AgentID] == nil })
	if len(which) == 0 {
		return nil
	}
	now := r.Now.UTC()
	changes, err := r.documents(ctx, run, which)
	if err != nil {
		return err
	}
	agents, err := r.agents(ctx, run, which)
	if err != nil {
		return err
	}
	for k := range changes {
		t, i := &changes[k].target, changes[k].index
		a, why := agents[run.targets[i].AgentID], refused[run.targets[i].AgentID]
		run.updatePresence(i, a, now)
		switch {
		case a == nil || !a.Active:
			plan.ChangeState(t, fleet.TargetCancelled, fleet.WhyGone, why.Error(), now)
		case a.Version == t.To:
			plan.ChangeState(t, fleet.TargetSkipped, fleet.WhySame, why.Error(), now)
		case plan.Busy(a), errors.Is(why, action.ErrOtherOffer), fleet.KindOf(why) == fleet.Conflict, fleet.KindOf(why) == fleet.Unavailable:
			// The agent was not asked, so the attempt does not count.
			t.ActionID, t.OfferedAt, t.Attempts = "", nil, t.Attempts-1
			if n := len(t.ActionIDs); n > 0 {
				t.ActionID, t.ActionIDs = t.ActionIDs[n-1], t.ActionIDs[:n-1]
			}
			code := fleet.ReasonCode("")
			if plan.Busy(a) {
				code = fleet.WhyBusy
			}
			plan.ChangeState(t, fleet.TargetPending, code, "", now)
		default:
			plan.ChangeState(t, fleet.TargetSkipped, fleet.WhyRefused, why.Error(), now)
		}
	}
	r.Signal() // other targets may be offered instead
	return r.write(ctx, run, changes)
}

// withdrawal is why offers are withdrawn, and what becomes of their targets.
type withdrawal struct {
	why   string
	state fleet.TargetState
	code  fleet.ReasonCode
}

// withdraw withdraws offers, then writes that they are. If the write is lost, they
// are still offered and are withdrawn again.
func (r *Reconciler) withdraw(ctx context.Context, run *runState, which []int32, w withdrawal) error {
	if len(which) == 0 {
		return nil
	}
	changes, err := r.documents(ctx, run, which)
	if err != nil {
		return err
	}
	if err := r.withdrawOffers(ctx, run, changes, w.why); err != nil {
		return err
	}
	now := r.Now.UTC()
	for k := range changes {
		plan.ChangeState(&changes[k].target, w.state, w.code, w.why, now)
	}
	return r.write(ctx, run, changes)
}

// withdrawOffers withdraws the offers of targets from their agents.
func (r *Reconciler) withdrawOffers(ctx context.Context, run *runState, changes []update, why string) error {
	byAction := map[string][]string{}
	for _, c := range changes {
		byAction[c.target.ActionID] = append(byAction[c.target.ActionID], c.target.AgentID)
	}
	for _, id := range slices.Sorted(maps.Keys(byAction)) {
		if err := r.Actions.Withdraw(ctx, action.Withdrawal{
			ID: action.WithdrawalID(id, byAction[id]), ActionID: id, AgentIDs: byAction[id], Why: why, Actor: "rollout " + run.rollout.Plan.Name,
		}); err != nil {
			return err
		}
	}
	return nil
}

// writeAssessed writes targets that assess moved, with what follows from that:
// withdrawals and incidents.
func (r *Reconciler) writeAssessed(ctx context.Context, run *runState, moved []update) error {
	if len(moved) == 0 {
		return nil
	}
	now := r.Now.UTC()
	var away, stale []update
	for k := range moved {
		t := &moved[k].target
		switch {
		case !run.targets[moved[k].index].State.InFlight():
		case t.State == fleet.TargetHeld:
			run.hold(t, now)
			away = append(away, moved[k])
		case t.State == fleet.TargetFailed && t.Code == fleet.WhyStale:
			stale = append(stale, moved[k])
		}
	}
	if err := r.withdrawOffers(ctx, run, away, "the agent is away"); err != nil {
		return err
	}
	if err := r.withdrawOffers(ctx, run, stale, "the agent gave no sign"); err != nil {
		return err
	}
	for _, c := range moved {
		if err := r.openIncident(ctx, run, &c.target, now); err != nil {
			return err
		}
	}
	return r.write(ctx, run, moved)
}

// openIncident opens an incident for a target that needs a person. It comes before
// the target is written: what is written is not assessed again.
func (r *Reconciler) openIncident(ctx context.Context, run *runState, t *fleet.Target, now time.Time) error {
	if r.Incidents == nil || t.State != fleet.TargetFailed {
		return nil
	}
	i := fleet.Incident{
		Severity: "critical", RolloutID: run.rollout.ID, AgentID: t.AgentID, Hostname: t.Hostname, OpenedAt: now,
		State: fleet.IncidentOpen, RecoveryPlan: run.rollout.Plan.Migration.RecoveryPlan, Text: t.Error,
	}
	switch {
	case run.rollout.RollbackOf != "":
		i.Category, i.Title = fleet.IncidentRollbackFailed, fmt.Sprintf("%s could not be rolled back to %s", t.Hostname, t.To)
	case t.Code == fleet.WhyStuck:
		i.Category, i.Title = fleet.IncidentUpgradeFailed, fmt.Sprintf("%s failed to upgrade to %s, and could not go back", t.Hostname, t.To)
	case t.Code == fleet.WhyStalled:
		i.Category, i.Severity, i.Title = fleet.IncidentStalled, "warning", fmt.Sprintf("%s runs %s, and does not become healthy", t.Hostname, t.To)
		i.RecoveryPlan = ""
	default:
		return nil
	}
	i.ID = fmt.Sprintf("%s:%s:%s", i.Category, i.RolloutID, i.AgentID)
	return r.Incidents.Open(ctx, i)
}

// commit writes the rollout, its audit entry and its events. Changes of counts
// alone are written once a progressInterval.
func (r *Reconciler) commit(ctx context.Context, run *runState, next fleet.Rollout, now time.Time) error {
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
	switch err := r.Store.Rollouts().Update(ctx, next); {
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
	if next.State.Over() {
		return r.end(ctx, run, next, now)
	}
	return nil
}

// record writes the step into the audit trail, from which explanations of the past
// are made.
func (r *Reconciler) record(ctx context.Context, run *runState, revision int64, next fleet.Rollout, now time.Time) error {
	trail := plan.TrailOf(&next)
	if trail.Same(run.trail) {
		return nil
	}
	data, err := json.Marshal(trail)
	if err != nil {
		return err // cannot happen: it has nothing that cannot be encoded
	}
	e := fleet.AuditEntry{
		ID: fmt.Sprintf("%s:step:%d", next.ID, revision), At: now, Actor: Muster, Verb: "rollout.step", Subject: next.ID, Text: stepText(&next), Data: data,
	}
	if err := r.Store.Audit().Append(ctx, []fleet.AuditEntry{e}); err != nil {
		return err
	}
	run.trail = trail
	return nil
}

// stepText is the state of a rollout in a sentence.
func stepText(r *fleet.Rollout) string {
	text := string(r.State)
	if r.State == fleet.RolloutRunning && len(r.Batches) > 0 {
		text = fmt.Sprintf("running, batch %d of %d", plan.CurrentBatch(r)+1, len(r.Batches))
	}
	switch {
	case r.Stop != nil && r.State == fleet.RolloutPaused:
		text += ": " + r.Stop.Text
	case len(r.Waiting) > 0 && !r.State.Over():
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

// end releases what a rollout held. A lock that a crash leaves behind is free all
// the same: locks of rollouts that are over do not count.
func (r *Reconciler) end(ctx context.Context, run *runState, over fleet.Rollout, now time.Time) error {
	delete(r.runs, over.ID)
	var original *fleet.Rollout
	if over.RollbackOf != "" {
		o, err := r.Store.Rollouts().Get(ctx, over.RollbackOf)
		if err != nil && fleet.KindOf(err) != fleet.NotFound {
			return err
		}
		if err == nil {
			original = &o
		}
	}
	for _, policy := range over.Policies {
		lock, err := r.Store.PolicyLocks().Get(ctx, policy)
		switch {
		case err != nil && fleet.KindOf(err) != fleet.NotFound:
			return err
		case err != nil || lock.RolloutID != over.ID:
			continue
		case original != nil && original.State.Active():
			lock.RolloutID, lock.At = original.ID, now // it was taken over from there
			err = r.Store.PolicyLocks().Update(ctx, lock)
		default:
			err = r.Store.PolicyLocks().Delete(ctx, policy)
		}
		if err != nil && fleet.KindOf(err) != fleet.Conflict {
			return err
		}
	}
	if original != nil && over.State == fleet.RolloutCompleted && over.ID != rollbackID(original.ID) {
		// A rollback of the failed targets alone: the original may go on.
		run.events = append(run.events, fleet.RolloutEvent(fleet.EventRollbackDone, original, now))
	}
	r.Signal() // the original may end too
	return r.leases.End(ctx, leaseID(over.ID))
}

// closeOriginal marks a rollout that had ended before it was rolled back as rolled
// back. It comes before its rollback ends, since afterwards neither is active.
// An original that is still active ends in endRolledBack.
func (r *Reconciler) closeOriginal(ctx context.Context, run *runState, rollback fleet.Rollout, now time.Time) error {
	o, err := r.Store.Rollouts().Get(ctx, rollback.RollbackOf)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	if err != nil || !o.State.Over() || o.State == fleet.RolloutRolledBack || rollback.ID != rollbackID(o.ID) {
		return nil
	}
	o.State, o.EndedAt, o.Waiting = fleet.RolloutRolledBack, &now, nil
	if err := r.Store.Rollouts().Update(ctx, o); err != nil {
		return err
	}
	run.events = append(run.events, fleet.RolloutEvent(fleet.EventRollbackDone, &o, now))
	return nil
}

// rollbackID names the rollback of all targets of a rollout; that of the failed
// ones alone, after which the rollout may go on, has another name.
func rollbackID(rolloutID string) string { return rolloutID + "-rollback" }

// endRolledBack ends a rollout whose targets are all rolled back.
func (r *Reconciler) endRolledBack(ctx context.Context, run *runState, active map[string]bool) (over bool, err error) {
	by := run.rollout.RolledBackBy
	if by == "" || by != rollbackID(run.rollout.ID) || active[by] {
		return false, nil
	}
	rollback, err := r.Store.Rollouts().Get(ctx, by)
	if err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			err = nil
		}
		return false, err
	}
	if rollback.State != fleet.RolloutCompleted {
		return false, nil // still being started, or it failed: an operator decides
	}
	now := r.Now.UTC()
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
	return true, r.commit(ctx, run, next, now)
}
