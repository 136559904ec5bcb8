package rollout

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

const (
	// changeTries bounds the attempts of a change that conflicts with another writer.
	// The reconciler writes a rollout a few times a second and operators far less
	// often, so a change does not lose eight times in a row.
	changeTries = 8
	// maxOrders bounds the orders that wait for execution; the reconciler executes all
	// of them in one round.
	maxOrders = 100
	// maxOrderAgents bounds the agents of one order, because the rollout's document
	// contains them until it is executed.
	maxOrderAgents = 1_000
)

// command is one operation of operators. decide changes the rollout and returns a
// description of the change, which follows the actor's name, or an empty text if there
// is nothing to change. It does no I/O and may be called several times.
type command struct {
	verb   string
	decide func(r *fleet.Rollout, req Request, now time.Time) (text string, err error)
	// event is the type of the event; empty means progress.
	event string
}

// command executes a command. A repeated command changes nothing and returns the same
// rollout.
func (s *Service) command(ctx context.Context, id string, req Request, c command) (fleet.Rollout, error) {
	if err := req.check(); err != nil {
		return fleet.Rollout{}, err
	}
	for try := 1; ; try++ {
		r, err := s.Get(ctx, id)
		if err != nil {
			return r, err
		}
		if err := plan.CheckKnown(&r); err != nil {
			return r, err
		}
		now := s.Now.UTC()
		before := r.State
		text, err := c.decide(&r, req, now)
		if err != nil || text == "" {
			return r, err
		}
		if before == fleet.RolloutPaused && r.State == fleet.RolloutRunning {
			if err := s.retake(ctx, &r, now); err != nil {
				return r, err
			}
		}
		r.Generation++
		if err := s.record(ctx, &r, c.verb, req, text, now); err != nil {
			return r, err
		}
		err = s.Store.Rollouts().Update(ctx, r)
		if err == nil {
			typ := c.event
			if typ == "" || r.State == before {
				typ = fleet.EventRolloutProgress
			}
			s.publish(ctx, typ, &r, req, now)
			s.signal()
			return r, nil
		}
		if fleet.KindOf(err) != fleet.Conflict || try == changeTries {
			return r, err
		}
	}
}

// retake locks a paused rollout's policies again: its rollback took the locks over, and
// another rollout may have locked the policies since the rollback ended.
func (s *Service) retake(ctx context.Context, r *fleet.Rollout, now time.Time) error {
	if by := r.RolledBackBy; by != "" {
		back, err := s.Store.Rollouts().Get(ctx, by)
		switch {
		case err == nil && back.State.Active():
			return fleet.Errorf(fleet.Conflict, "%s is being rolled back by %s: cancel that first, or wait until it has ended", plan.Title(r), plan.Title(&back))
		case err != nil && fleet.KindOf(err) != fleet.NotFound:
			return err
		}
	}
	return s.takeLocks(ctx, r, r.Policies, r.RolledBackBy, now)
}

// Pause pauses after the current batch, or at once; then it also withdraws the offers
// that no agent has begun.
func (s *Service) Pause(ctx context.Context, id string, atOnce bool, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "pause", event: fleet.EventRolloutPaused, decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
		return pause(r, atOnce, req, now)
	}})
}

// Resume continues the rollout, and makes the offers again that the stop withdrew.
// After a gate it needs a reason: it accepts the failures so far, which then no longer
// count.
func (s *Service) Resume(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "resume", event: fleet.EventRolloutResumed, decide: resume})
}

// Force continues the rollout although a threshold was crossed: it forgives the
// failures so far, and the threshold does not stop the rollout again. It needs a
// reason.
func (s *Service) Force(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "force", event: fleet.EventRolloutResumed, decide: force})
}

// Approve lets the batches after the canaries proceed.
func (s *Service) Approve(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "approve", decide: approve})
}

// Promote lets the rollout go on without what it waits for because of its own progress: its
// canaries, their observation and approval, and soak. Canaries in flight need not end first. If
// failures stopped it, it continues: those so far are forgiven, later ones still count. Every
// other stop, the plan's deadline, windows, freezes and the exposure budget hold. It needs a
// reason. A repeated call changes nothing; one after a later stop by failures is refused.
func (s *Service) Promote(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "promote", event: fleet.EventRolloutResumed, decide: promote})
}

// Adjust gives an active rollout other limits and rules, complete as in a new plan. It takes
// effect with the next round, also for targets in flight; a rollout that has stopped does not
// resume by it. What was started is still identified by the hash of the pinned preview, which
// covers the plan as it was then. If nothing differs, nothing is written.
func (s *Service) Adjust(ctx context.Context, id string, limits fleet.Limits, failure fleet.FailureRule, health fleet.HealthRule, pace fleet.Pace, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "adjust", decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
		return adjust(r, limits, failure, health, pace, req, now)
	}})
}

// Cancel makes no more offers; upgrades that have begun continue to their end.
func (s *Service) Cancel(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "cancel", decide: cancel})
}

// Replace is Cancel for the rollout of a declared fleet whose spec has changed. It refuses one that is
// promoting, which goes on to its end.
func (s *Service) Replace(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "cancel", decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
		if plan.Promoting(r) {
			return "", fleet.Errorf(fleet.Conflict, "%s is promoting, and is not replaced before its end", plan.Title(r))
		}
		return cancel(r, req, now)
	}})
}

// Retry makes failed, withdrawn and expired targets pending again; without agents, all
// that failed. Resume does so for offers that a stop withdrew; Retry with agents also
// for those that an operator withdrew.
func (s *Service) Retry(ctx context.Context, id string, agents []string, req Request) (fleet.Rollout, error) {
	if err := s.checkTargets(ctx, id, agents, retryable, "retry: it is %s; targets that failed, or whose offer was withdrawn or has expired, can be"); err != nil {
		return fleet.Rollout{}, err
	}
	return s.command(ctx, id, req, command{verb: "retry", decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
		return retry(r, agents, req, now)
	}})
}

// Skip excludes targets from the rollout.
func (s *Service) Skip(ctx context.Context, id string, agents []string, req Request) (fleet.Rollout, error) {
	if len(agents) == 0 {
		return fleet.Rollout{}, fleet.FieldError("body.agents", "is empty: name at least one agent to leave out")
	}
	if err := s.checkTargets(ctx, id, agents, skippable, "skip: it is %s; targets that have not begun, or failed, can be"); err != nil {
		return fleet.Rollout{}, err
	}
	return s.command(ctx, id, req, command{verb: "skip", decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
		return skip(r, agents, req, now)
	}})
}

// retryable and skippable report whether an order applies to a target in a state. A
// target that is already in the ordered state is no error, because a command may be
// repeated.
func retryable(s fleet.TargetState) bool {
	switch s {
	case fleet.TargetFailed, fleet.TargetRolledBack, fleet.TargetWithdrawn, fleet.TargetExpired, fleet.TargetPending:
		return true
	}
	return false
}

func skippable(s fleet.TargetState) bool {
	return retryable(s) || s == fleet.TargetHeld || s == fleet.TargetOffered || s == fleet.TargetSkipped
}

// checkTargets refuses an order for agents that it could not change.
func (s *Service) checkTargets(ctx context.Context, id string, agents []string, fits func(fleet.TargetState) bool, cannot string) error {
	if len(agents) > maxOrderAgents {
		return fleet.FieldError("body.agents", "names %d agents, at most %d can be ordered at once", len(agents), maxOrderAgents)
	}
	r, err := s.Get(ctx, id)
	if err != nil || len(agents) == 0 || !r.State.Active() {
		return err // the command itself refuses the wrong states
	}
	targets, err := s.Store.Targets().GetMany(ctx, id, agents)
	if err != nil {
		return err
	}
	byAgent := make(map[string]fleet.Target, len(targets))
	for _, t := range targets {
		byAgent[t.AgentID] = t
	}
	for _, agent := range agents {
		t, ok := byAgent[agent]
		switch {
		case !ok:
			return fleet.Errorf(fleet.NotFound, "agent %s is no target of %s: `muster agents why %s --rollout %s` says why", agent, plan.Title(&r), agent, id)
		case !fits(t.State):
			return fleet.Errorf(fleet.Conflict, "agent %s (%s) cannot "+cannot, agent, t.Hostname, t.State)
		}
	}
	return nil
}

// refuse returns the error for a command that the rollout's state does not allow. It
// says what can be done instead.
func refuse(r *fleet.Rollout, verb string) error {
	switch r.State {
	case fleet.RolloutDraft:
		return fleet.Errorf(fleet.Conflict, "%s has not been started, so there is nothing to %s: start it, or delete it", plan.Title(r), verb)
	case fleet.RolloutCancelling:
		return fleet.Errorf(fleet.Conflict, "%s is being cancelled, it is too late to %s: wait until what has begun has ended", plan.Title(r), verb)
	}
	return fleet.Errorf(fleet.Conflict, "%s has ended (%s), it is too late to %s: roll back, or make another rollout", plan.Title(r), r.State, verb)
}

// refuseInLockstep returns the error for a command that the phase of a rollout in lockstep does
// not allow.
func refuseInLockstep(r *fleet.Rollout, verb string) error {
	if r.Lockstep.Committed() {
		return fleet.Errorf(fleet.Conflict, "%s is in the phase %s, and goes through to its end: it is too late to %s. Its targets would run different versions", plan.Title(r), spaced(r.Lockstep.Phase), verb)
	}
	if r.Lockstep.Undo != nil {
		return fleet.Errorf(fleet.Conflict, "%s is being undone, it is too late to %s: wait until it has ended", plan.Title(r), verb)
	}
	return fleet.Errorf(fleet.Conflict, "%s is in the phase %s, and all of its targets wait for each other: it is too late to %s. Cancel it to undo everything", plan.Title(r), spaced(r.Lockstep.Phase), verb)
}

func spaced(p fleet.LockstepPhase) string { return strings.ReplaceAll(string(p), "_", " ") }

func pause(r *fleet.Rollout, atOnce bool, req Request, now time.Time) (string, error) {
	switch {
	case r.State == fleet.RolloutPaused:
		return "", nil
	case r.State != fleet.RolloutRunning:
		return "", refuse(r, "pause")
	case r.Lockstep.Running():
		return "", refuseInLockstep(r, "pause it")
	case !atOnce && r.PauseAsked != nil:
		return "", nil
	case !atOnce:
		d := req.decision(now)
		r.PauseAsked = &d
		return "asked to pause it after the current batch", nil
	}
	r.Stop = &fleet.Stop{Kind: fleet.StopOperator, Text: because(req.Actor+" paused it at once", req), By: req.Actor, At: now, Batch: plan.CurrentBatch(r)}
	r.State, r.PauseAsked, r.RunningSince = fleet.RolloutPaused, nil, nil
	return "paused it at once; offers that have not begun are withdrawn", addOrder(r, fleet.OrderWithdraw, nil, req, now)
}

func resume(r *fleet.Rollout, req Request, now time.Time) (string, error) {
	switch {
	case r.State == fleet.RolloutRunning && r.PauseAsked != nil:
		r.PauseAsked = nil
		return "withdrew the pause after the current batch", nil
	case r.State == fleet.RolloutRunning:
		return "", nil
	case r.State != fleet.RolloutPaused:
		return "", refuse(r, "resume")
	}
	if r.Stop != nil && r.Stop.Kind.Gate() {
		if err := req.needWhy("%s stopped by itself (%s); say why it may go on all the same", plan.Title(r), r.Stop.Text); err != nil {
			return "", err
		}
		if err := checkDeadline(r, now); err != nil {
			return "", err
		}
	}
	return continueRollout(r, "resumed it", req, now)
}

func force(r *fleet.Rollout, req Request, now time.Time) (string, error) {
	switch {
	case r.State != fleet.RolloutRunning && r.State != fleet.RolloutPaused:
		return "", refuse(r, "force")
	case r.Plan.Strategy.Kind == fleet.LockstepStrategy:
		return "", fleet.Errorf(fleet.Conflict, "%s is in lockstep, and nothing can be forced: its targets are either all ready, or none begins. Mend what it names, then resume it", plan.Title(r))
	case r.State == fleet.RolloutRunning && r.Forced != nil:
		return "", nil
	}
	if err := req.needWhy("with force no number of failures stops %s any more; say why", plan.Title(r)); err != nil {
		return "", err
	}
	if err := checkDeadline(r, now); err != nil {
		return "", err
	}
	d := req.decision(now)
	r.Forced = &d
	if r.State == fleet.RolloutRunning {
		r.Forgiven = r.Counts.Bad()
		return "forced it: failures no longer pause it", nil
	}
	return continueRollout(r, "forced it: failures no longer pause it", req, now)
}

// promote lets the rollout go on without what it waits for because of its own progress. After
// failures it continues as by force, but later ones still count; any other pause stays.
func promote(r *fleet.Rollout, req Request, now time.Time) (string, error) {
	switch {
	case r.State != fleet.RolloutRunning && r.State != fleet.RolloutPaused:
		return "", refuse(r, "promote")
	case r.Plan.Strategy.Kind == fleet.LockstepStrategy:
		return "", fleet.Errorf(fleet.Conflict, "%s is in lockstep, and cannot be promoted: its targets go together, and it waits for no canaries, soak or approval", plan.Title(r))
	case r.Promoted != nil && r.State == fleet.RolloutPaused && r.Stop != nil && failuresStopped(r.Stop.Kind):
		return "", fleet.Errorf(fleet.Conflict, "%s was promoted already (%s), and has stopped since: %s. Look at the failures, then resume it with a reason", plan.Title(r), r.Promoted.By, r.Stop.Text)
	case r.Promoted != nil:
		return "", nil
	}
	if err := req.needWhy("promoted, %s waits no more for its canaries, their observation and approval, or a soak; say why", plan.Title(r)); err != nil {
		return "", err
	}
	if err := checkDeadline(r, now); err != nil {
		return "", err
	}
	d := req.decision(now)
	r.Promoted = &d
	const text = "promoted it: it waits no more for canaries, soak and approval"
	switch {
	case r.State == fleet.RolloutRunning:
		return text, nil
	case r.Stop != nil && failuresStopped(r.Stop.Kind):
		return continueRollout(r, text, req, now)
	case r.Stop != nil:
		return text + ". It stays paused: " + r.Stop.Text, nil
	}
	return text + ". It stays paused", nil
}

func adjust(r *fleet.Rollout, limits fleet.Limits, failure fleet.FailureRule, health fleet.HealthRule, pace fleet.Pace, req Request, now time.Time) (string, error) {
	switch {
	case r.State != fleet.RolloutRunning && r.State != fleet.RolloutPaused:
		return "", refuse(r, "adjust")
	case r.RollbackOf != "":
		return "", fleet.Errorf(fleet.Conflict, "%s is a rollback, and goes by the limits of the rollout that it rolls back: it cannot be adjusted", plan.Title(r))
	}
	p, changes, err := plan.Adjust(r.Plan, limits, failure, health, pace)
	if err != nil || len(changes) == 0 {
		return "", err
	}
	before := r.Plan
	r.Plan = p
	text := "adjusted " + strings.Join(changes, ", ")
	if plan.SameTargets(&before, &p) || ordered(r, fleet.OrderAdjust, nil) { // one that waits goes by the plan as it is then
		return text, nil
	}
	return text, addOrder(r, fleet.OrderAdjust, nil, req, now)
}

// failuresStopped reports whether a stop is because of failures, or because canaries showed
// nothing.
func failuresStopped(k fleet.StopKind) bool {
	return k == fleet.StopThreshold || k == fleet.StopCanary
}

// checkDeadline refuses to continue after the plan's deadline, since the rollout would
// stop again at once.
func checkDeadline(r *fleet.Rollout, now time.Time) error {
	if d := r.Plan.Strategy.Deadline; d != nil && !now.Before(*d) {
		return fleet.Errorf(fleet.Conflict, "the deadline of %s was %s, nothing is offered after it: cancel it, and make another rollout for the rest", plan.Title(r), d.UTC().Format(time.RFC3339))
	}
	return nil
}

// continueRollout resumes a paused rollout. It forgives the failures so far, which the
// operator has seen: otherwise the rollout would stop again at once. Targets whose offer
// the stop withdrew become pending again. The order for this is always added, because
// counts are written after the targets and may not include them yet.
func continueRollout(r *fleet.Rollout, text string, req Request, now time.Time) (string, error) {
	r.State, r.Stop, r.PauseAsked, r.Waiting = fleet.RolloutRunning, nil, nil, nil
	if bad := r.Counts.Bad(); bad > 0 {
		r.Forgiven = bad
		text += fmt.Sprintf("; %d failures until now no longer count", bad)
	}
	if r.Counts.Withdrawn > 0 {
		text += "; withdrawn offers are made again"
	}
	return text, addOrder(r, fleet.OrderReturn, nil, req, now)
}

func approve(r *fleet.Rollout, req Request, now time.Time) (string, error) {
	switch {
	case r.State != fleet.RolloutRunning && r.State != fleet.RolloutPaused:
		return "", refuse(r, "approve")
	case r.Approved != nil:
		return "", nil
	case r.Promoted != nil:
		return "", fleet.Errorf(fleet.Conflict, "there is nothing to approve: %s was promoted by %s", plan.Title(r), r.Promoted.By)
	case !plan.NeedsApproval(&r.Plan):
		return "", fleet.Errorf(fleet.Conflict, "there is nothing to approve: the plan of %s asks for no approval", plan.Title(r))
	}
	for _, b := range r.Batches {
		if b.Kind == fleet.BatchCanary && b.EndedAt == nil {
			return "", fleet.Errorf(fleet.Conflict, "the canaries of %s are not done (%d of %d are): approve them when they are", plan.Title(r), b.Counts.Total-b.Counts.Pending-b.Counts.InFlight(), b.Counts.Total)
		}
	}
	d := req.decision(now)
	r.Approved = &d
	return "approved it to continue after the canaries", nil
}

func cancel(r *fleet.Rollout, _ Request, _ time.Time) (string, error) {
	switch {
	case r.Lockstep.Committed() && r.State.Active():
		return "", refuseInLockstep(r, "cancel it")
	case r.Lockstep.Running() && r.State == fleet.RolloutRunning:
		r.State, r.Stop, r.PauseAsked, r.RunningSince = fleet.RolloutCancelling, nil, nil, nil
		return "cancelled it; everything is undone on all targets", nil
	}
	switch r.State {
	case fleet.RolloutCancelling, fleet.RolloutCancelled:
		return "", nil
	case fleet.RolloutRunning, fleet.RolloutPaused:
		r.State, r.Stop, r.PauseAsked, r.RunningSince = fleet.RolloutCancelling, nil, nil, nil
		return "cancelled it; upgrades under way still end", nil
	}
	return "", refuse(r, "cancel")
}

func retry(r *fleet.Rollout, agents []string, req Request, now time.Time) (string, error) {
	if r.State != fleet.RolloutRunning && r.State != fleet.RolloutPaused {
		return "", refuse(r, "retry")
	}
	switch {
	case r.Plan.Strategy.Kind == fleet.LockstepStrategy:
		return "", fleet.Errorf(fleet.Conflict, "%s is in lockstep, and no target can try again by itself: make another rollout when this one has ended", plan.Title(r))
	case ordered(r, fleet.OrderRetry, agents):
		return "", nil
	case len(agents) == 0 && r.Counts.Bad() == 0:
		return "", fleet.Errorf(fleet.Conflict, "no target of %s has failed: name the agents to retry others, such as withdrawn ones", plan.Title(r))
	}
	what := fmt.Sprintf("retried %s", named(agents, "all that failed"))
	if r.State == fleet.RolloutPaused {
		what += "; they are offered the version when it is resumed"
	}
	return what, addOrder(r, fleet.OrderRetry, agents, req, now)
}

func skip(r *fleet.Rollout, agents []string, req Request, now time.Time) (string, error) {
	if r.State != fleet.RolloutRunning && r.State != fleet.RolloutPaused {
		return "", refuse(r, "skip")
	}
	if r.Lockstep.Running() {
		return "", refuseInLockstep(r, "leave targets out")
	}
	if ordered(r, fleet.OrderSkip, agents) {
		return "", nil
	}
	return "skipped " + named(agents, ""), addOrder(r, fleet.OrderSkip, agents, req, now)
}

// ordered reports whether the same order is waiting for execution.
func ordered(r *fleet.Rollout, kind fleet.OrderKind, agents []string) bool {
	return slices.ContainsFunc(r.Orders, func(o fleet.Order) bool { return o.Kind == kind && slices.Equal(o.Agents, agents) })
}

func addOrder(r *fleet.Rollout, kind fleet.OrderKind, agents []string, req Request, now time.Time) error {
	if len(r.Orders) >= maxOrders {
		return fleet.Errorf(fleet.TooMany, "%s has %d orders that are not carried out yet: try again in a moment", plan.Title(r), len(r.Orders))
	}
	// The id contains the generation that this change produces, which has at most one
	// order of a kind.
	r.Orders = append(slices.Clone(r.Orders), fleet.Order{
		ID: r.ID + "-g" + strconv.FormatInt(r.Generation+1, 10) + "-" + string(kind), Kind: kind, Agents: slices.Clone(agents), Decision: req.decision(now),
	})
	return nil
}

// named lists agents for a sentence.
func named(agents []string, none string) string {
	if len(agents) == 0 {
		return none
	}
	return plan.Few(agents, len(agents))
}

func because(text string, req Request) string {
	if why := strings.TrimSpace(req.Why); why != "" {
		return text + ": " + why
	}
	return text
}
