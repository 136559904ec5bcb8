// Package reconcile executes rollouts. On the server that holds a rollout's lease,
// [Reconciler] does one bounded round after the other: it executes orders, takes a
// snapshot of the fleet, assesses targets, lets package plan decide, and executes the
// decision through package action. Operators do not call it: they change the rollout's
// document through package rollout.
package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// RoundInterval is how often rounds happen without an event: an order given on
	// another server is executed within a second.
	RoundInterval = time.Second
	// roundPause separates rounds, so that reports that arrive in between are assessed
	// together. People do not notice more than five rounds a second.
	roundPause = 200 * time.Millisecond
	// snapshotInterval is the minimum time between two snapshots of the fleet. It is
	// also at least snapshotRest times as long as one took, so that a large fleet costs
	// 2 % of a processor.
	snapshotInterval = 2 * time.Second
	snapshotRest     = 50
	// reassessInterval is when an agent in flight is assessed without an event about
	// it, since events can be lost.
	reassessInterval = 15 * time.Second
	// chunk bounds one read or write of documents: some 100 ms of a store.
	chunk = 1_000
	// progressInterval bounds progress events, and writes of counts alone.
	progressInterval = time.Second
	// reportedMax bounds the agents named by events between two rounds; with more, all
	// are assessed.
	reportedMax = 10_000
	// Muster is the actor of what the reconciler does on its own.
	Muster = fleet.System
)

// Config is what a Reconciler works with. All fields but Now, Policies, Incidents and
// Renderer are required.
type Config struct {
	Store   store.Store
	Actions *action.Service
	Events  *event.Stream
	Log     *slog.Logger
	Now     clock.Clock
	// LeaseOwner names this server in leases.
	LeaseOwner string
	// Policies has the inactivity timeouts, which a plan's query may depend on, and keeps which
	// versions of components are in force; nil: there are none.
	Policies Policies
	// Incidents opens incidents for targets that need a person; nil drops them.
	Incidents IncidentReporter
	// Renderer renders configuration files of components; nil: there are none.
	Renderer Renderer
	// Health reports whether the store has been available for long enough to judge
	// agents by what it has of them.
	Health *storehealth.Monitor
	// Connections are those of the agents, as far as this server knows them; nil: not at all.
	Connections fleet.Connections
}

// Reconciler works on the rollouts whose leases it holds.
type Reconciler struct {
	store       store.Store
	actions     *action.Service
	events      *event.Stream
	log         *slog.Logger
	now         clock.Clock
	policies    Policies
	incidents   IncidentReporter
	renderer    Renderer
	health      *storehealth.Monitor
	connections fleet.Connections

	signal   chan struct{}
	leases   *lease.Owner
	reported reported

	round sync.Mutex // one at a time; it guards the following fields
	runs  map[string]*runState
	// wasActive are the rollouts that were active in the last round, and late the agents to assess of
	// those that have ended.
	wasActive map[string]bool
	late      late
	// newer are active rollouts that only a newer server understands; see plan.CheckKnown.
	newer map[string]bool
	fleet snapshot
	// When abandoned upgrades were last searched for, and where the search continues.
	abandonedChecked    time.Time
	abandonedFrom       store.UpgradingSince
	abandonedComponents abandonedComponents
}

// New returns a reconciler; Run must follow.
func New(c Config) *Reconciler {
	return &Reconciler{
		store: c.Store, actions: c.Actions, events: c.Events, log: c.Log, now: c.Now, policies: c.Policies, incidents: c.Incidents, renderer: c.Renderer, health: c.Health, connections: c.Connections,
		signal: make(chan struct{}, 1), runs: map[string]*runState{}, newer: map[string]bool{}, late: late{},
		leases: &lease.Owner{Leases: c.Store.Leases(), Name: c.LeaseOwner, Now: c.Now},
	}
}

// Policies has the policies that agents belong to.
type Policies interface {
	// Timeouts returns the inactivity timeouts by policy.
	Timeouts(ctx context.Context) (map[string]time.Duration, error)
	// SetInForce changes which version of a component is in force for the hosts of a policy.
	// decide gets the component as the store has it, and may be called several times; nobody
	// changes the policy between its call and the write.
	SetInForce(ctx context.Context, id, component, actor string, decide func(agentapi.PolicyComponent) (*agentapi.ComponentInForce, error)) error
}

// Renderer renders configuration files again for an offer; see package rollout.
type Renderer interface {
	// RenderFor returns the files of the plan's component for an agent of the policy.
	RenderFor(ctx context.Context, p fleet.Plan, policy fleet.Policy, a *fleet.Agent) ([]agentapi.RenderedFile, error)
	// Digest identifies files by all that hosts write.
	Digest(files []agentapi.RenderedFile) string
}

// reported are the agents that events named since the last round.
type reported struct {
	mu        sync.Mutex
	listening bool // if not, no events arrive, and all agents are assessed
	agents    map[string]bool
	all       bool
	// late are the agents of rollouts that were not active in the last round, by rollout. lateAll means
	// that they are not all known.
	late    map[string]map[string]bool
	lates   int
	lateAll bool
	active  map[string]bool // in the last round
}

// drain moves the agents into the input of a round.
func (r *reported) drain(in *input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	in.reported, in.all = r.agents, r.all || !r.listening
	in.late, in.lateAll = r.late, r.lateAll || !r.listening
	r.agents, r.all, r.late, r.lates, r.lateAll, r.active = nil, false, nil, 0, false, in.active
}

// begin records that events arrive from now on. What happened before is not known, so
// the next round assesses all agents.
func (r *reported) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listening, r.all, r.lateAll = true, true, true
}

func (r *reported) add(agentID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agents == nil {
		r.agents = map[string]bool{}
	}
	if len(r.agents) >= reportedMax {
		r.all = true
		return
	}
	r.agents[agentID] = true
}

// addLate adds an agent that has reported about an action of a rollout, unless that is active.
func (r *reported) addLate(rolloutID, agentID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rolloutID == "" || r.active[rolloutID] {
		return
	}
	if r.lates >= reportedMax {
		r.lateAll = true
		return
	}
	if r.late == nil {
		r.late = map[string]map[string]bool{}
	}
	if r.late[rolloutID] == nil {
		r.late[rolloutID] = map[string]bool{}
	}
	r.late[rolloutID][agentID] = true
	r.lates++
}

// Run does rounds until ctx ends: every RoundInterval, at a Signal, and after an event
// about an agent. Then it releases its leases.
func (r *Reconciler) Run(ctx context.Context) {
	var listening sync.WaitGroup
	listening.Go(func() { r.events.Follow(ctx, func(int64) { r.reported.begin() }, r.onEvents) })
	defer func() {
		listening.Wait()
		if err := r.leases.ReleaseAll(ctx); err != nil {
			r.log.Warn("leases of rollouts run out by themselves", "error", err)
		}
	}()
	tick := time.NewTicker(RoundInterval)
	defer tick.Stop()
	for {
		// No agent is judged by reports that are missing because the store was
		// unavailable.
		if r.health.Steady() == nil {
			if err := r.Round(ctx); err != nil && ctx.Err() == nil {
				r.health.Failed(err)
				r.log.Warn("rollouts wait for the store", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(roundPause):
		}
		select {
		case <-ctx.Done():
			return
		case <-r.signal:
		case <-tick.C:
		}
	}
}

// Signal requests a round now.
func (r *Reconciler) Signal() {
	select {
	case r.signal <- struct{}{}:
	default: // a round is due anyway
	}
}

func (r *Reconciler) onEvents(events []fleet.Event) {
	relevant := false
	for _, e := range events {
		switch e.Type {
		case fleet.EventAgentUpgrade, fleet.EventAgentWatch, fleet.EventAgentComponent, fleet.EventAgentStatus, fleet.EventAgentUnenrolled:
			r.reported.add(e.Subject)
			r.reported.addLate(rolloutOf(e), e.Subject)
			relevant = true
		case fleet.EventRolloutStarted, fleet.EventRolloutResumed, fleet.EventRollbackStarted:
			relevant = true // perhaps on another server
		}
	}
	if relevant {
		r.Signal()
	}
}

// rolloutOf returns the rollout whose action an event is about, empty if it is about none.
func rolloutOf(e fleet.Event) string {
	var about struct {
		ActionID string `json:"action_id"`
	}
	if json.Unmarshal(e.Data, &about) != nil {
		return "" // an event without data
	}
	return fleet.RolloutOf(about.ActionID)
}

// Round does one round of every active rollout, and corrects those that have ended.
func (r *Reconciler) Round(ctx context.Context) error {
	r.round.Lock()
	defer r.round.Unlock()
	heads, err := r.store.Rollouts().Active(ctx)
	if err != nil {
		return err
	}
	in := input{active: map[string]bool{}}
	for _, h := range heads {
		in.active[h.ID] = true
	}
	maps.DeleteFunc(r.runs, func(id string, _ *runState) bool { return !in.active[id] })
	maps.DeleteFunc(r.newer, func(id string, _ bool) bool { return !in.active[id] })
	r.reported.drain(&in)
	var mine []*runState
	var errs []error
	for _, h := range heads {
		run, err := r.acquire(ctx, h)
		if err != nil {
			errs = append(errs, fmt.Errorf("rollout %s: %w", h.ID, err))
		}
		if run != nil {
			mine = append(mine, run)
		}
	}
	if err := r.takeSnapshot(ctx, mine); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, run := range mine {
		err := r.work(ctx, run, in)
		switch {
		case errors.Is(err, errChanged):
			run.assessAll() // agents that reported may not have been assessed
			r.Signal()      // the next round reads the document again
		case err != nil:
			// The next round finds in the store what was half done.
			delete(r.runs, run.rollout.ID)
			errs = append(errs, fmt.Errorf("rollout %s: %w", run.rollout.ID, err))
		}
	}
	if err := r.correctEnded(ctx, in); err != nil {
		errs = append(errs, err)
	}
	if err := r.giveUpAbandoned(ctx, in.active); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leaseID returns the id of the lease of a rollout.
func leaseID(rolloutID string) string { return "rollout/" + rolloutID }

// acquire returns the current state of a rollout, nil if another server works on it, or only
// a newer one can.
func (r *Reconciler) acquire(ctx context.Context, h store.RolloutHead) (*runState, error) {
	if r.newer[h.ID] {
		return nil, nil
	}
	owned, err := r.leases.Take(ctx, leaseID(h.ID))
	if err != nil || !owned {
		delete(r.runs, h.ID)
		return nil, err
	}
	run := r.runs[h.ID]
	if run == nil {
		if run, err = load(ctx, r.store, h.ID); err != nil {
			return nil, err
		}
		if err := plan.CheckKnown(&run.rollout); err != nil {
			r.newer[h.ID] = true // the strategy of a plan does not change once it is started
			r.log.Warn("this server leaves a rollout alone", "rollout", h.ID, "reason", err)
			return nil, r.leases.Release(ctx, leaseID(h.ID)) // for a newer server
		}
		r.runs[h.ID] = run
		r.log.Info("this server works on a rollout", "rollout", h.ID)
		return run, nil
	}
	if run.rollout.Revision != h.Revision {
		return run, r.reread(ctx, run)
	}
	return run, nil
}

// reread reads the rollout's document again after another writer changed it.
func (r *Reconciler) reread(ctx context.Context, run *runState) error {
	fresh, err := r.store.Rollouts().Get(ctx, run.rollout.ID)
	if err != nil {
		return err
	}
	if fresh.Plan.Health != run.rollout.Plan.Health {
		run.assessAll() // by the other rule, also those that were to be looked at later
	}
	run.rollout, run.dirty = fresh, true
	return nil
}

// input is the input of a round.
type input struct {
	reported map[string]bool // agents that events named
	all      bool            // assess every agent
	active   map[string]bool // rollouts
	// late and lateAll are those of reported.
	late    map[string]map[string]bool
	lateAll bool
}

// errLost reports that another server works on the rollout.
var errLost = fleet.Errorf(fleet.Conflict, "another server works on it")

// renewLease renews the lease during a long round.
func (r *Reconciler) renewLease(ctx context.Context, run *runState) error {
	owned, err := r.leases.Take(ctx, leaseID(run.rollout.ID))
	if err == nil && !owned {
		err = errLost
	}
	return err
}

// work does one round of a rollout, each step once.
func (r *Reconciler) work(ctx context.Context, run *runState, in input) error {
	defer r.publish(ctx, run)
	if err := r.setInForce(ctx, run); err != nil {
		return err
	}
	if err := r.makeOffers(ctx, run); err != nil {
		return err
	}
	if err := r.proceed(ctx, run); err != nil {
		return err
	}
	if err := r.executeOrders(ctx, run); err != nil {
		return err
	}
	if err := r.confirm(ctx, run); err != nil {
		return err
	}
	if err := r.stageAhead(ctx, run); err != nil {
		return err
	}
	now := r.now.UTC()
	if err := r.assess(ctx, run, run.due(in.reported, in.all, now)); err != nil {
		return err
	}
	run.untrack(now)
	if over, err := r.endRolledBack(ctx, run, in.active); err != nil || over {
		return err
	}
	if err := r.verifyLockstep(ctx, run); err != nil {
		return err
	}
	return r.decide(ctx, run, in.active[run.rollout.RolledBackBy])
}

// publish sends the events of a round, even if it failed half way.
func (r *Reconciler) publish(ctx context.Context, run *runState) {
	r.events.Publish(ctx, run.events...)
	run.events = nil
}

// assess reads the agents of tracked targets and writes the new states of the targets.
func (r *Reconciler) assess(ctx context.Context, run *runState, which []int32) error {
	for part := range slices.Chunk(which, chunk) {
		agents, err := r.agents(ctx, run, part)
		if err != nil {
			return err
		}
		now := r.now.UTC()
		var moved []update
		for _, i := range part {
			f, a := run.tracked[i], agents[run.targets[i].AgentID]
			t, changed, next := plan.Assess(f.target, a, &run.rollout, now)
			f.due = next
			if again := now.Add(reassessInterval); t.State.InFlight() && (next.IsZero() || again.Before(next)) {
				f.due = again
			}
			run.updateAvailability(i, a, now)
			if changed {
				r.inRollback(run, &t, a)
				run.letGo(&t)
				run.inUndo(&t, run.targets[i].State)
				moved = append(moved, update{index: i, target: t})
			}
			p := &run.rollout.Plan
			back, watched, cancelled := plan.RollbackDeadline(&t, a, p), plan.WatchDeadline(&t, a, p), plan.CancelDeadline(&t, a, p)
			if !back.Equal(f.back) || !watched.Equal(f.watched) || !cancelled.Equal(f.cancelled) {
				f.back, f.watched, f.cancelled, run.dirty = back, watched, cancelled, true
			}
		}
		if err := r.writeAssessed(ctx, run, moved); err != nil {
			return err
		}
	}
	return nil
}

// inRollback ends a target that a rollback has taken over as cancelled, since it is no
// failure of the version.
func (r *Reconciler) inRollback(run *runState, t *fleet.Target, a *fleet.Agent) {
	by := run.rollout.RolledBackBy
	if a == nil || by == "" || t.Code != fleet.WhyLostTarget || fleet.RolloutOf(a.Of(run.rollout.Plan.Component).UpgradeActionID) != by {
		return
	}
	replaceLast(t, fleet.TargetCancelled, fleet.WhyRollingBack)
}

// letGo ends a target that ran the version as it does without a judgement of its health, if another
// order has taken the agent over since the rollout was cancelled.
func (run *runState) letGo(t *fleet.Target) {
	if t.Code == fleet.WhyLostTarget && t.ReachedAt != nil && !plan.LocksPolicies(&run.rollout) {
		replaceLast(t, fleet.TargetSucceeded, fleet.WhyUnchecked)
	}
}

// replaceLast replaces the state that a target has just come into.
func replaceLast(t *fleet.Target, s fleet.TargetState, code fleet.ReasonCode) {
	t.State, t.Code, t.Error = s, code, ""
	last := &t.History[len(t.History)-1]
	last.State, last.Code, last.Error = t.State, t.Code, t.Error
}

// agents reads the agents of targets, by id.
func (r *Reconciler) agents(ctx context.Context, run *runState, which []int32) (map[string]*fleet.Agent, error) {
	ids := make([]string, len(which))
	for k, i := range which {
		ids[k] = run.targets[i].AgentID
	}
	list, err := r.store.Agents().GetMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*fleet.Agent, len(list))
	for k := range list {
		byID[list[k].ID] = &list[k]
	}
	return byID, nil
}

// updateAvailability updates whether a target can be offered the version, by its agent's
// document.
func (run *runState) updateAvailability(i int32, a *fleet.Agent, now time.Time) {
	if a == nil {
		return
	}
	t := &run.targets[i]
	subject := a.Of(run.rollout.Plan.Component)
	online, busy := now.Sub(a.LastActivity()) <= fleet.OfflineAfter, run.busy(&subject, now)
	run.dirty = run.dirty || online != t.Online || busy != t.Busy
	t.Online, t.Busy = online, busy
}

// busy reports whether an offer waits for what is under way on an agent.
func (run *runState) busy(s *fleet.Subject, now time.Time) bool {
	return s.Busy() || run.mayGoOn(s, now)
}

// mayGoOn reports whether a rollback waits for an order that was called off, and may be carried out
// all the same: there is nothing to roll back before.
func (run *runState) mayGoOn(s *fleet.Subject, now time.Time) bool {
	return run.rollout.RollbackOf != "" && fleet.RolloutOf(s.UpgradeActionID) != run.rollout.ID && s.MayGoOn(now)
}

// decide lets package plan decide what to do next, and does it.
func (r *Reconciler) decide(ctx context.Context, run *runState, rollingBack bool) error {
	if len(run.rollout.Orders) > 0 { // given during this round; what they order comes first
		r.Signal()
		return nil
	}
	now := r.now.UTC()
	if !run.dirty && (run.next.IsZero() || now.Before(run.next)) && !run.countsPending {
		return nil
	}
	w := plan.World{Freezes: r.fleet.freezes, Exposure: r.room(run), RollingBack: rollingBack, Lockstep: run.lockstepWorld()}
	run.deadlines(&w, now)
	step := plan.Decide(&run.rollout, run.targets, w, now)
	run.dirty, run.next = false, step.Next
	if err := r.carryOut(ctx, run, step, now); err != nil {
		return err
	}
	if !run.next.IsZero() && !run.next.After(now) {
		r.Signal() // there is more to do than fits in a round
	}
	return nil
}
