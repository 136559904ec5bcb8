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
	"github.com/muster-fleet/muster/server/store"
)

const (
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
	verb string
	// name is that of package plan, which says whether the command is possible; empty: the caller
	// has checked it.
	name   string
	decide func(r *fleet.Rollout, req Request, now time.Time) (text string, err error)
	// event is the type of the event; empty means progress.
	event string
}

// apply carries out a command on a rollout if it is possible.
func (c command) apply(r *fleet.Rollout, a plan.Around, req Request, now time.Time) (text string, err error) {
	if c.name == "" {
		return c.decide(r, req, now)
	}
	switch refused := plan.CheckCommand(c.name, r, a, now); {
	case refused != nil && refused.Done:
		return "", nil
	case refused != nil:
		return "", refused.Err(plan.Title(r))
	}
	if why := plan.NeedsReason(c.name, r); why != "" {
		if err := req.NeedWhy(why); err != nil {
			return "", err
		}
	}
	return c.decide(r, req, now)
}

// command executes a command. A repeated command changes nothing and returns the same
// rollout.
func (s *Service) command(ctx context.Context, id string, req Request, c command) (fleet.Rollout, error) {
	if err := req.Check(); err != nil {
		return fleet.Rollout{}, err
	}
	var (
		now    time.Time
		before fleet.RolloutState
		text   string
	)
	r, written, err := store.Change(ctx, store.WithGet(s.Store.Rollouts(), s.Get), id, func(r fleet.Rollout) (fleet.Rollout, error) {
		if err := plan.CheckKnown(&r); err != nil {
			return r, err
		}
		was := r
		now, before = s.Now.UTC(), r.State
		a, err := s.around(ctx, &r)
		if err != nil {
			return was, err
		}
		if text, err = c.apply(&r, a, req, now); err != nil || text == "" {
			return was, err
		}
		if before == fleet.RolloutPaused && r.State == fleet.RolloutRunning {
			if err := s.takeLocks(ctx, &r, r.Policies, r.RolledBackBy, now); err != nil {
				return r, err
			}
		}
		r.Generation++
		return r, nil
	}, func(_, r fleet.Rollout) error { return s.record(ctx, &r, c.verb, req, text, now) })
	if written {
		typ := c.event
		if typ == "" || r.State == before {
			typ = fleet.EventRolloutProgress
		}
		s.publish(ctx, typ, &r, req, now)
		s.signal()
	}
	return r, err
}

// around returns what the commands of a rollout depend on. The locks of a paused rollout are read
// only if its rollback took them over: until then it locks them.
func (s *Service) around(ctx context.Context, r *fleet.Rollout) (a plan.Around, err error) {
	if r.RolledBackBy == "" {
		return a, nil
	}
	for _, scope := range []Scope{ScopeFailed, ScopeAll} {
		back, err := s.Store.Rollouts().Get(ctx, scope.id(r.ID))
		switch {
		case err == nil:
			a.Backs = append(a.Backs, back)
		case fleet.KindOf(err) != fleet.NotFound:
			return a, err
		}
	}
	if r.State != fleet.RolloutPaused {
		return a, nil
	}
	locked, err := s.locks().locked(ctx, r.Plan.Component, r.ID, r.RolledBackBy)
	if err != nil {
		return a, err
	}
	for _, policy := range r.Policies {
		if h, ok := locked[policy]; ok {
			a.Locked = lockedError(r.Plan.Component, policy, h)
			break
		}
	}
	return a, nil
}

// Commands returns which commands a rollout accepts now, and why not the others.
func (s *Service) Commands(ctx context.Context, r *fleet.Rollout) ([]fleet.Command, error) {
	a, err := s.around(ctx, r)
	return plan.Commands(r, a, s.Now.UTC()), err
}

// Pause pauses after the current batch, or at once; then it also withdraws the offers
// that no agent has begun.
func (s *Service) Pause(ctx context.Context, id string, atOnce bool, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "pause", name: pauseName(atOnce), event: fleet.EventRolloutPaused, decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
		return pause(r, atOnce, req, now)
	}})
}

func pauseName(atOnce bool) string {
	if atOnce {
		return plan.CommandPauseNow
	}
	return plan.CommandPause
}

// Resume continues the rollout, and makes the offers again that the stop withdrew.
// After a gate it needs a reason: it accepts the failures so far, which then no longer
// count.
func (s *Service) Resume(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "resume", name: plan.CommandResume, event: fleet.EventRolloutResumed, decide: resume})
}

// Force continues the rollout although a threshold was crossed: it forgives the
// failures so far, and the threshold does not stop the rollout again. It needs a
// reason.
func (s *Service) Force(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "force", name: plan.CommandForce, event: fleet.EventRolloutResumed, decide: force})
}

// Approve lets the batches after the canaries proceed.
func (s *Service) Approve(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "approve", name: plan.CommandApprove, decide: approve})
}

// Promote lets the rollout go on without what it waits for because of its own progress: its
// canaries, their observation and approval, and soak. Canaries in flight need not end first. If
// failures stopped it, it continues: those so far are forgiven, later ones still count. Every
// other stop, the plan's deadline, windows, freezes and the exposure budget hold. It needs a
// reason. A repeated call changes nothing; one after a later stop by failures is refused.
func (s *Service) Promote(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "promote", name: plan.CommandPromote, event: fleet.EventRolloutResumed, decide: promote})
}

// Adjust gives an active rollout other limits and rules, complete as in a new plan. It takes
// effect with the next round, also for targets in flight; a rollout that has stopped does not
// resume by it. What was started is still identified by the hash of the pinned preview, which
// covers the plan as it was then. If nothing differs, nothing is written.
func (s *Service) Adjust(ctx context.Context, id string, limits fleet.Limits, failure fleet.FailureRule, health fleet.HealthRule, pace fleet.Pace, req Request) (fleet.Rollout, error) {
	return s.AdjustParts(ctx, id, Adjustment{&limits, &failure, &health, &pace}, req)
}

// Adjustment are the parts of a plan that may change while its rollout is under way. A part is
// complete; nil leaves it as it is.
type Adjustment struct {
	Limits  *fleet.Limits      `json:"limits,omitempty"`
	Failure *fleet.FailureRule `json:"failure,omitempty"`
	Health  *fleet.HealthRule  `json:"health,omitempty"`
	Pace    *fleet.Pace        `json:"pace,omitempty"`
}

// AdjustParts is Adjust of some parts.
func (s *Service) AdjustParts(ctx context.Context, id string, a Adjustment, req Request) (fleet.Rollout, error) {
	if a == (Adjustment{}) {
		return fleet.Rollout{}, fleet.FieldError("body", "names nothing to adjust: say limits, failure, health or pace")
	}
	return s.command(ctx, id, req, command{verb: "adjust", name: plan.CommandAdjust, decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
		p := &r.Plan
		return adjust(r, deref(a.Limits, p.Limits), deref(a.Failure, p.Failure), deref(a.Health, p.Health), deref(a.Pace, p.Pace), req, now)
	}})
}

// deref returns what a part is changed to.
func deref[T any](part *T, is T) T {
	if part == nil {
		return is
	}
	return *part
}

// Cancel makes no more offers; upgrades that have begun continue to their end.
func (s *Service) Cancel(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "cancel", name: plan.CommandCancel, decide: cancel})
}

// CancelNow is Cancel that also lets go of the hosts in flight: other orders may take them, and the
// rollout judges the health of none any more. What was delivered is followed as by Cancel.
func (s *Service) CancelNow(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "cancel_now", name: plan.CommandCancelNow, decide: cancelNow})
}

// Replace is Cancel for the rollout of a declared fleet whose spec has changed. It refuses one that is
// promoting, which goes on to its end.
func (s *Service) Replace(ctx context.Context, id string, req Request) (fleet.Rollout, error) {
	return s.command(ctx, id, req, command{verb: "cancel", name: plan.CommandCancel, decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
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
	change, err := s.checkTargets(ctx, id, plan.CommandRetryTargets, agents)
	if err != nil {
		return fleet.Rollout{}, err
	}
	return s.command(ctx, id, req, command{verb: "retry", name: retryName(agents), decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
		if len(agents) > 0 && len(change) == 0 {
			return "", nil
		}
		return retry(r, change, req, now)
	}})
}

func retryName(agents []string) string {
	if len(agents) == 0 {
		return plan.CommandRetry
	}
	return plan.CommandRetryTargets
}

// Skip excludes targets from the rollout.
func (s *Service) Skip(ctx context.Context, id string, agents []string, req Request) (fleet.Rollout, error) {
	if len(agents) == 0 {
		return fleet.Rollout{}, fleet.FieldError("body.agents", "is empty: name at least one agent to leave out")
	}
	change, err := s.checkTargets(ctx, id, plan.CommandSkip, agents)
	if err != nil {
		return fleet.Rollout{}, err
	}
	return s.command(ctx, id, req, command{verb: "skip", name: plan.CommandSkip, decide: func(r *fleet.Rollout, req Request, now time.Time) (string, error) {
		if len(change) == 0 {
			return "", nil
		}
		return skip(r, change, req, now)
	}})
}

// checkTargets refuses an order for agents of which it could not change one, and returns those that
// it changes: the others are as ordered already, because a command may be repeated.
func (s *Service) checkTargets(ctx context.Context, id, name string, agents []string) (change []string, err error) {
	if len(agents) > maxOrderAgents {
		return nil, fleet.FieldError("body.agents", "names %d agents, at most %d can be ordered at once", len(agents), maxOrderAgents)
	}
	r, err := s.Get(ctx, id)
	if err != nil || len(agents) == 0 || !r.State.Active() {
		return agents, err // the command itself refuses the wrong states
	}
	targets, err := s.Store.Targets().GetMany(ctx, id, agents)
	if err != nil {
		return nil, err
	}
	byAgent := make(map[string]*fleet.Target, len(targets))
	for i := range targets {
		byAgent[targets[i].AgentID] = &targets[i]
	}
	for _, agent := range agents {
		t := byAgent[agent]
		if t == nil {
			return nil, fleet.Errorf(fleet.NotFound, "agent %s is no target of %s: `muster agents why %s --rollout %s` says why", agent, plan.Title(&r), agent, id)
		}
		switch refused := plan.CheckTarget(name, &r, t); {
		case refused == nil:
			change = append(change, agent)
		case !refused.Done:
			return nil, refused.Err(fmt.Sprintf("agent %s (%s)", agent, t.Hostname))
		}
	}
	return change, nil
}

func pause(r *fleet.Rollout, atOnce bool, req Request, now time.Time) (string, error) {
	if !atOnce {
		d := req.decision(now)
		r.PauseAsked = &d
		return "asked to pause it after the current batch", nil
	}
	r.Stop = &fleet.Stop{Kind: fleet.StopOperator, Text: because(req.Actor+" paused it at once", req), By: req.Actor, At: now, Batch: plan.CurrentBatch(r)}
	r.State, r.PauseAsked, r.RunningSince = fleet.RolloutPaused, nil, nil
	return "paused it at once; offers that have not begun are withdrawn", addOrder(r, fleet.OrderWithdraw, nil, req, now)
}

func resume(r *fleet.Rollout, req Request, now time.Time) (string, error) {
	if r.State == fleet.RolloutRunning {
		r.PauseAsked = nil
		return "withdrew the pause after the current batch", nil
	}
	return continueRollout(r, "resumed it", req, now)
}

func force(r *fleet.Rollout, req Request, now time.Time) (string, error) {
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
	d := req.decision(now)
	r.Promoted = &d
	const text = "promoted it: it waits no more for canaries, soak and approval"
	switch {
	case r.State == fleet.RolloutRunning:
		return text, nil
	case r.Stop != nil && plan.FailuresStopped(r.Stop.Kind):
		return continueRollout(r, text, req, now)
	case r.Stop != nil:
		return text + ". It stays paused: " + r.Stop.Text, nil
	}
	return text + ". It stays paused", nil
}

func adjust(r *fleet.Rollout, limits fleet.Limits, failure fleet.FailureRule, health fleet.HealthRule, pace fleet.Pace, req Request, now time.Time) (string, error) {
	p, changes, err := plan.Adjust(r.Plan, limits, failure, health, pace)
	if err != nil || len(changes) == 0 {
		return "", err
	}
	before := r.Plan
	r.Plan = p
	text := "adjusted " + strings.Join(changes, ", ")
	if plan.SameTargets(&before, &p) || plan.Ordered(r, fleet.OrderAdjust, nil) { // one that waits goes by the plan as it is then
		return text, nil
	}
	return text, addOrder(r, fleet.OrderAdjust, nil, req, now)
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
	d := req.decision(now)
	r.Approved = &d
	return "approved it to continue after the canaries", nil
}

func cancel(r *fleet.Rollout, _ Request, _ time.Time) (string, error) {
	text := "cancelled it; upgrades under way still end"
	if r.Lockstep.Running() && r.State == fleet.RolloutRunning {
		text = "cancelled it; everything is undone on all targets"
	}
	r.State, r.Stop, r.PauseAsked, r.RunningSince = fleet.RolloutCancelling, nil, nil, nil
	return text, nil
}

func cancelNow(r *fleet.Rollout, req Request, now time.Time) (string, error) {
	d := req.decision(now)
	r.CancelledNow = &d
	r.State, r.Stop, r.PauseAsked, r.RunningSince = fleet.RolloutCancelling, nil, nil, nil
	return "cancelled it at once; it lets go of its hosts", nil
}

func retry(r *fleet.Rollout, agents []string, req Request, now time.Time) (string, error) {
	if plan.Ordered(r, fleet.OrderRetry, agents) {
		return "", nil
	}
	what := fmt.Sprintf("retried %s", named(agents, "all that failed"))
	if r.State == fleet.RolloutPaused {
		what += "; they are offered the version when it is resumed"
	}
	return what, addOrder(r, fleet.OrderRetry, agents, req, now)
}

func skip(r *fleet.Rollout, agents []string, req Request, now time.Time) (string, error) {
	if plan.Ordered(r, fleet.OrderSkip, agents) {
		return "", nil
	}
	return "skipped " + named(agents, ""), addOrder(r, fleet.OrderSkip, agents, req, now)
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
