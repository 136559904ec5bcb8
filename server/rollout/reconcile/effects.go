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

// Every effect is written down before it is made: a target says which action
// offers it the version before that action exists, a stop is in the rollout's
// document, with the order to withdraw, before the first offer is taken back. So
// a replica that dies anywhere leaves behind what the next one has to do again,
// and to do it again does nothing twice.

// errChanged says that an operator has changed the rollout meanwhile.
var errChanged = errors.New("the rollout has changed meanwhile")

// change is a target as it shall be.
type change struct {
	seat   int32
	target fleet.Target
}

// carryOut does what was decided.
func (r *Reconciler) carryOut(ctx context.Context, b *board, step plan.Step, now time.Time) error {
	if err := r.makeMoves(ctx, b, step.Moves, now); err != nil {
		return err
	}
	next := step.Rollout
	if stop := next.Stop; len(step.Withdraw) > 0 && stop != nil && !plan.SameStop(stop, b.rollout.Stop) {
		next.Orders = append(slices.Clone(next.Orders), fleet.Order{
			ID: fmt.Sprintf("stop-%d", next.Generation), Kind: fleet.OrderWithdraw, Decision: fleet.Decision{By: Muster, At: now, Why: stop.Text},
		})
		if err := r.commit(ctx, b, next, now); err != nil {
			return err
		}
		return r.obey(ctx, b)
	}
	if err := r.offer(ctx, b, step.Offer, now); err != nil {
		return err
	}
	back := withdrawal{why: "the rollout is being cancelled", state: fleet.TargetWithdrawn, code: fleet.WhyOperator}
	if next.State == fleet.RolloutPaused && next.Stop != nil {
		back.why, back.code = next.Stop.Text, plan.StopReason(next.Stop) // offers that were on their way when it stopped
	}
	if err := r.withdraw(ctx, b, step.Withdraw, back); err != nil {
		return err
	}
	if !step.Changed {
		b.owed = false
		return nil
	}
	return r.commit(ctx, b, next, now)
}

// targets reads the targets of seats.
func (r *Reconciler) targets(ctx context.Context, b *board, seats []int32) ([]change, error) {
	changes := make([]change, len(seats))
	var missing []string
	for k, i := range seats {
		changes[k].seat = i
		if f := b.follows[i]; f != nil {
			changes[k].target = f.target
		} else {
			missing = append(missing, b.ids[i])
		}
	}
	if len(missing) == 0 {
		return changes, nil
	}
	list, err := r.Store.Targets().GetMany(ctx, b.rollout.ID, missing)
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

// write stores targets, and takes in how they are stored.
func (r *Reconciler) write(ctx context.Context, b *board, changes []change) error {
	for part := range slices.Chunk(changes, chunk) {
		if err := r.keep(ctx, b); err != nil {
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
			b.tell(c, r.Now.UTC())
			b.put(c.seat, c.target)
		}
	}
	return nil
}

// tell notes the events of a change.
func (b *board) tell(c change, now time.Time) {
	was := b.seats[c.seat].State.Name()
	typ := fleet.EventTargetPhase
	switch s := c.target.State; {
	case s == was && !s.InFlight(), !s.InFlight() && !was.InFlight() && !was.Over():
		return
	case s == fleet.TargetOffered && was != s:
		typ = fleet.EventTargetStarted
	case s == fleet.TargetSucceeded || s == fleet.TargetFailed || s == fleet.TargetRolledBack:
		typ = fleet.EventTargetCompleted
	}
	b.events = append(b.events, fleet.TargetEvent(typ, &b.rollout, &c.target, now))
}

// makeMoves writes changes of state that need no agent.
func (r *Reconciler) makeMoves(ctx context.Context, b *board, moves []plan.Move, now time.Time) error {
	for part := range slices.Chunk(moves, chunk) {
		seats := make([]int32, len(part))
		for k, m := range part {
			seats[k] = m.Seat
		}
		changes, err := r.targets(ctx, b, seats)
		if err != nil {
			return err
		}
		for k, m := range part {
			b.move(&changes[k].target, m.To.Name(), m.Code.Name(), "", now)
		}
		if err := r.write(ctx, b, changes); err != nil {
			return err
		}
	}
	return nil
}

// move brings a target into a state, with what belongs to the state.
func (b *board) move(t *fleet.Target, s fleet.TargetState, code fleet.ReasonCode, text string, now time.Time) {
	switch s {
	case fleet.TargetHeld:
		b.hold(t, now)
	case fleet.TargetPending:
		t.ExpiresAt = nil
	}
	plan.ChangeState(t, s, code, text, now)
}

// hold says how long an offer waits for its agent. An agent that comes and goes
// does not make it longer.
func (b *board) hold(t *fleet.Target, now time.Time) {
	if t.ExpiresAt == nil {
		until := now.Add(plan.OfferFor(&b.rollout.Plan))
		t.ExpiresAt = &until
	}
}

// offerID names the action of an offer. The number never comes again, so that an
// action is of one offer only.
func offerID(rolloutID string, generation int64, n int) string {
	return fmt.Sprintf("%s-g%d-%d", rolloutID, generation, n)
}

// rolloutOf is the rollout that an action belongs to, empty if it is of none.
func rolloutOf(actionID string) string {
	head := actionID[:max(0, strings.LastIndexByte(actionID, '-'))]
	return head[:max(0, strings.LastIndex(head, "-g"))]
}

// offer offers the version to seats: first it is written down under which
// action, then the action is made.
func (r *Reconciler) offer(ctx context.Context, b *board, seats []int32, now time.Time) error {
	if len(seats) == 0 {
		return nil
	}
	changes, err := r.targets(ctx, b, seats)
	if err != nil {
		return err
	}
	type kind struct {
		to       string
		rollback bool
	}
	var kinds []kind
	groups := map[kind][]change{}
	for _, c := range changes {
		k := kind{c.target.To, c.target.Rollback}
		if groups[k] == nil {
			kinds = append(kinds, k)
		}
		groups[k] = append(groups[k], c)
	}
	for _, k := range kinds {
		for part := range slices.Chunk(groups[k], action.MaxAgents) {
			b.offers++
			id := offerID(b.rollout.ID, b.rollout.Generation, b.offers)
			for i := range part {
				t := &part[i].target
				if t.ActionID != "" {
					t.ActionIDs = append(slices.Clip(t.ActionIDs), t.ActionID)
				}
				t.ActionID, t.Phase, t.OfferedAt, t.ReachedAt, t.SignAt = id, "", &now, nil, nil
				t.Attempts++
				plan.ChangeState(t, fleet.TargetOffered, "", "", now)
				b.again[id] = append(b.again[id], part[i].seat)
			}
			if err := r.write(ctx, b, part); err != nil {
				return err
			}
		}
	}
	return r.offerAgain(ctx, b)
}

// offerAgain makes the actions of offers that are written down.
func (r *Reconciler) offerAgain(ctx context.Context, b *board) error {
	for _, id := range slices.Sorted(maps.Keys(b.again)) {
		var seats []int32
		var ids []string
		var t *fleet.Target
		for _, i := range b.again[id] {
			if f := b.follows[i]; f != nil && f.target.State == fleet.TargetOffered && f.target.ActionID == id {
				seats, ids, t = append(seats, i), append(ids, b.ids[i]), &f.target
			}
		}
		if len(seats) > 0 {
			p := &b.rollout.Plan
			refused, err := r.Actions.Offer(ctx, action.Offer{
				ID: id, Rollback: t.Rollback, AgentIDs: ids, Expiration: t.OfferedAt.Add(plan.OfferFor(p)), Actor: "rollout " + p.Name,
				UpgradeWish: fleet.UpgradeWish{Version: t.To, SourceURI: p.SourceURI, Force: p.Force || b.rollout.RollbackOf != "" && !t.Rollback},
			})
			if err != nil {
				return err
			}
			if err := r.refused(ctx, b, seats, refused); err != nil {
				return err
			}
		}
		delete(b.again, id)
	}
	return nil
}

// refused takes in which agents could not take the offer.
func (r *Reconciler) refused(ctx context.Context, b *board, seats []int32, refused map[string]error) error {
	seats = slices.DeleteFunc(seats, func(i int32) bool { return refused[b.ids[i]] == nil })
	if len(seats) == 0 {
		return nil
	}
	now := r.Now.UTC()
	changes, err := r.targets(ctx, b, seats)
	if err != nil {
		return err
	}
	agents, err := r.agents(ctx, b, seats)
	if err != nil {
		return err
	}
	for k := range changes {
		t, i := &changes[k].target, changes[k].seat
		a, why := agents[b.ids[i]], refused[b.ids[i]]
		b.sees(i, a, now)
		switch {
		case a == nil || !a.Active:
			plan.ChangeState(t, fleet.TargetCancelled, fleet.WhyGone, why.Error(), now)
		case a.Version == t.To:
			plan.ChangeState(t, fleet.TargetSkipped, fleet.WhySame, why.Error(), now)
		case plan.Busy(a), errors.Is(why, action.ErrOtherOffer), fleet.KindOf(why) == fleet.Conflict, fleet.KindOf(why) == fleet.Unavailable:
			// It was never asked: the attempt does not count.
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
	r.Signal() // others may have their places
	return r.write(ctx, b, changes)
}

// withdrawal is how offers are taken back.
type withdrawal struct {
	why   string
	state fleet.TargetState // that the targets come into
	code  fleet.ReasonCode
}

// withdraw takes offers back, and then writes it down: what is offered and
// called off is withdrawn again if that is lost.
func (r *Reconciler) withdraw(ctx context.Context, b *board, seats []int32, w withdrawal) error {
	if len(seats) == 0 {
		return nil
	}
	changes, err := r.targets(ctx, b, seats)
	if err != nil {
		return err
	}
	if err := r.takeBack(ctx, b, changes, w.why); err != nil {
		return err
	}
	now := r.Now.UTC()
	for k := range changes {
		plan.ChangeState(&changes[k].target, w.state, w.code, w.why, now)
	}
	return r.write(ctx, b, changes)
}

// takeBack takes the offers of targets back from their agents.
func (r *Reconciler) takeBack(ctx context.Context, b *board, changes []change, why string) error {
	byAction := map[string][]string{}
	for _, c := range changes {
		byAction[c.target.ActionID] = append(byAction[c.target.ActionID], c.target.AgentID)
	}
	for _, id := range slices.Sorted(maps.Keys(byAction)) {
		if err := r.Actions.Withdraw(ctx, action.Withdrawal{
			ID: action.WithdrawalID(id, byAction[id]), ActionID: id, AgentIDs: byAction[id], Why: why, Actor: "rollout " + b.rollout.Plan.Name,
		}); err != nil {
			return err
		}
	}
	return nil
}

// settle writes what was found out about agents.
func (r *Reconciler) settle(ctx context.Context, b *board, moved []change) error {
	if len(moved) == 0 {
		return nil
	}
	now := r.Now.UTC()
	var away, stale []change
	for k := range moved {
		t := &moved[k].target
		switch {
		case !b.seats[moved[k].seat].State.InFlight():
		case t.State == fleet.TargetHeld:
			b.hold(t, now)
			away = append(away, moved[k])
		case t.State == fleet.TargetFailed && t.Code == fleet.WhyStale:
			stale = append(stale, moved[k])
		}
	}
	if err := r.takeBack(ctx, b, away, "the agent is away"); err != nil {
		return err
	}
	if err := r.takeBack(ctx, b, stale, "the agent gave no sign"); err != nil {
		return err
	}
	for _, c := range moved {
		if err := r.report(ctx, b, &c.target, now); err != nil {
			return err
		}
	}
	return r.write(ctx, b, moved)
}

// report opens an incident for a target that needs a person: before the target
// is written, since what has been written is not looked at again.
func (r *Reconciler) report(ctx context.Context, b *board, t *fleet.Target, now time.Time) error {
	if r.Incidents == nil || t.State != fleet.TargetFailed {
		return nil
	}
	i := fleet.Incident{
		Severity: "critical", RolloutID: b.rollout.ID, AgentID: t.AgentID, Hostname: t.Hostname, OpenedAt: now,
		State: fleet.IncidentOpen, RecoveryPlan: b.rollout.Plan.Migration.RecoveryPlan, Text: t.Error,
	}
	switch {
	case b.rollout.RollbackOf != "":
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

// commit writes the rollout, with everything that tells of it. Mere counts wait
// for the end of their second.
func (r *Reconciler) commit(ctx context.Context, b *board, next fleet.Rollout, now time.Time) error {
	if !urgent(&b.rollout, &next) && now.Sub(b.wrote) < progressInterval {
		b.owed = true
		return nil
	}
	if err := r.keep(ctx, b); err != nil {
		return err
	}
	was := b.rollout
	next.Revision = was.Revision
	if next.State == fleet.RolloutCompleted && next.RollbackOf != "" {
		if err := r.closeOriginal(ctx, b, next, now); err != nil {
			return err
		}
	}
	switch err := r.Store.Rollouts().Update(ctx, next); {
	case err != nil && fleet.KindOf(err) == fleet.Conflict:
		return errChanged
	case err != nil:
		return err
	}
	b.wrote, b.owed = now, false
	if err := r.reread(ctx, b); err != nil {
		return err
	}
	if err := r.record(ctx, b, was.Revision, next, now); err != nil {
		return err
	}
	b.announce(was.State, &next, now)
	if next.State.Over() {
		return r.end(ctx, b, next, now)
	}
	return nil
}

// record writes the step into the audit trail, which explanations of the past
// are made of.
func (r *Reconciler) record(ctx context.Context, b *board, revision int64, next fleet.Rollout, now time.Time) error {
	trail := plan.TrailOf(&next)
	if trail.Same(b.trail) {
		return nil
	}
	data, err := json.Marshal(trail)
	if err != nil {
		return err // a type of ours
	}
	e := fleet.AuditEntry{
		ID: fmt.Sprintf("%s:step:%d", next.ID, revision), At: now, Actor: Muster, Verb: "rollout.step", Subject: next.ID, Text: stepText(&next), Data: data,
	}
	if err := r.Store.Audit().Append(ctx, []fleet.AuditEntry{e}); err != nil {
		return err
	}
	b.trail = trail
	return nil
}

// stepText says in a sentence how a rollout stands.
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

// announce notes the events of a step.
func (b *board) announce(was fleet.RolloutState, next *fleet.Rollout, now time.Time) {
	typ := map[fleet.RolloutState]string{
		fleet.RolloutPaused: fleet.EventRolloutPaused, fleet.RolloutCompleted: fleet.EventRolloutCompleted,
		fleet.RolloutFailed: fleet.EventRolloutFailed, fleet.RolloutCancelled: fleet.EventRolloutCancelled,
		fleet.RolloutRolledBack: fleet.EventRollbackDone,
	}[next.State]
	if was != next.State && typ != "" {
		b.events = append(b.events, fleet.RolloutEvent(typ, next, now))
	}
	if next.Counts != b.told && now.Sub(b.progress) >= progressInterval || was != next.State {
		b.events = append(b.events, fleet.RolloutEvent(fleet.EventRolloutProgress, next, now))
		b.told, b.progress = next.Counts, now
	}
}

// end lets go of what a rollout held. What is left behind by a crash is free all
// the same: a lock of a rollout that is over counts for nothing.
func (r *Reconciler) end(ctx context.Context, b *board, over fleet.Rollout, now time.Time) error {
	delete(r.boards, over.ID)
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
			lock.RolloutID, lock.At = original.ID, now // back to whom it was taken from
			err = r.Store.PolicyLocks().Update(ctx, lock)
		default:
			err = r.Store.PolicyLocks().Delete(ctx, policy)
		}
		if err != nil && fleet.KindOf(err) != fleet.Conflict {
			return err
		}
	}
	if original != nil && over.State == fleet.RolloutCompleted && over.ID != rollbackID(original.ID) {
		// Of the failed ones alone: the rollout itself may go on.
		b.events = append(b.events, fleet.RolloutEvent(fleet.EventRollbackDone, original, now))
	}
	r.Signal() // the rollout that it put back may end too
	return r.leases.End(ctx, leaseID(over.ID))
}

// closeOriginal turns a rollout that had ended before it was rolled back into a
// rolled back one: before its rollback ends, since afterwards nobody looks at
// either. One that is still active ends itself, see endRolledBack.
func (r *Reconciler) closeOriginal(ctx context.Context, b *board, rollback fleet.Rollout, now time.Time) error {
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
	b.events = append(b.events, fleet.RolloutEvent(fleet.EventRollbackDone, &o, now))
	return nil
}

// rollbackID names the rollback of all targets of a rollout; that of the failed
// ones alone, after which the rollout may go on, has another name.
func rollbackID(rolloutID string) string { return rolloutID + "-rollback" }

// endRolledBack ends a rollout all of whose targets have been put back.
func (r *Reconciler) endRolledBack(ctx context.Context, b *board, active map[string]bool) (over bool, err error) {
	by := b.rollout.RolledBackBy
	if by == "" || by != rollbackID(b.rollout.ID) || active[by] {
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
	for i := range b.seats {
		switch s := b.seats[i].State; {
		case s.Waits():
			moves = append(moves, plan.Move{Seat: int32(i), To: plan.Cancelled, Code: plan.CodeOf(fleet.WhyRollingBack)})
		case s.InFlight():
			return false, nil // its agent is on the way still
		}
	}
	if err := r.makeMoves(ctx, b, moves, now); err != nil {
		return false, err
	}
	next := b.rollout
	next.State, next.EndedAt, next.Waiting, next.Orders = fleet.RolloutRolledBack, &now, nil, nil
	next.Counts = b.counts()
	err = r.commit(ctx, b, next, now)
	if errors.Is(err, errChanged) {
		return true, nil // in the next round
	}
	return true, err
}

func (b *board) counts() fleet.Counts {
	var c fleet.Counts
	for i := range b.seats {
		c.Add(b.seats[i].State.Name())
	}
	return c
}
