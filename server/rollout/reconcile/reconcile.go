// Package reconcile carries rollouts out. On the replica that holds a rollout's
// lease, [Reconciler] does one bounded round after the other: it executes orders,
// takes a snapshot of the fleet, assesses targets, asks package plan what to do,
// and does it through package action. Operators do not call it: they change the
// rollout's document through package rollout.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/lease"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/storehealth"
)

const (
	// RoundInterval is how often the active rollouts are worked on when nothing
	// happens: an order given on another replica is executed within a second.
	RoundInterval = time.Second
	// roundPause keeps rounds apart: what agents report in between is assessed
	// together, and five rounds a second are as quick as anybody can see.
	roundPause = 200 * time.Millisecond
	// snapshotInterval is the least time between two snapshots of the fleet. They
	// also rest for snapshotRest times as long as one took, so that a large fleet
	// costs 2 % of a processor.
	snapshotInterval = 2 * time.Second
	snapshotRest     = 50
	// reassessInterval is when an agent in flight is assessed although no event
	// named it: events can be lost.
	reassessInterval = 15 * time.Second
	// chunk bounds one read or write of documents: some 100 ms of a store.
	chunk = 1_000
	// progressInterval bounds events of progress, and writes of mere counts.
	progressInterval = time.Second
	// reportedMax bounds the agents named by events between two rounds; with more,
	// all are assessed.
	reportedMax = 10_000
	// Muster is the actor of what the reconciler does by itself.
	Muster = "muster"
)

// Reconciler works on the rollouts whose leases it holds.
type Reconciler struct {
	Store   store.Store
	Actions *action.Service
	Events  *event.Stream
	Log     *slog.Logger
	Now     clock.Clock
	// Holder names this replica in leases.
	Holder string
	// Timeouts are the inactivity timeouts by policy, which a plan's query may
	// depend on; nil: there are none.
	Timeouts func(ctx context.Context) (map[string]time.Duration, error)
	// Incidents opens incidents for targets that need a person; nil drops them.
	Incidents IncidentReporter
	// Health says whether agents may be judged by what the store has of them.
	Health *storehealth.Monitor

	once     sync.Once
	signal   chan struct{}
	leases   *lease.Holder
	reported reported

	round sync.Mutex // one at a time; it guards the following fields
	runs  map[string]*runState
	fleet snapshot
	// When abandoned upgrades were looked for last, and where that goes on.
	abandonedChecked time.Time
	abandonedFrom    store.UpgradingSince
}

// reported are the agents that events named since the last round.
type reported struct {
	mu        sync.Mutex
	listening bool // else no events come, and all agents are assessed
	agents    map[string]bool
	all       bool
}

// drain returns the agents and forgets them.
func (r *reported) drain() (agents map[string]bool, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	agents, all = r.agents, r.all || !r.listening
	r.agents, r.all = nil, false
	return agents, all
}

// begin says that events come from now on. What happened before is not known, so
// the next round assesses all agents.
func (r *reported) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listening, r.all = true, true
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

func (r *Reconciler) init() {
	r.once.Do(func() {
		r.signal = make(chan struct{}, 1)
		r.runs = map[string]*runState{}
		r.leases = &lease.Holder{Leases: r.Store.Leases(), Name: r.Holder, Now: r.Now}
	})
}

// Run does rounds until ctx ends: every RoundInterval, at a Signal, and when
// something happens to an agent. Then it gives its leases back.
func (r *Reconciler) Run(ctx context.Context) {
	r.init()
	var listening sync.WaitGroup
	listening.Go(func() { r.Events.Follow(ctx, func(int64) { r.reported.begin() }, r.onEvents) })
	defer func() {
		listening.Wait()
		if err := r.leases.ReleaseAll(ctx); err != nil {
			r.Log.Warn("leases of rollouts run out by themselves", "error", err)
		}
	}()
	tick := time.NewTicker(RoundInterval)
	defer tick.Stop()
	for {
		// Nobody is judged by what is missing because the store was away.
		if r.Health.Steady() == nil {
			if err := r.Round(ctx); err != nil && ctx.Err() == nil {
				r.Health.Failed(err)
				r.Log.Warn("rollouts wait for the store", "error", err)
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

// Signal asks for a round now.
func (r *Reconciler) Signal() {
	r.init()
	select {
	case r.signal <- struct{}{}:
	default: // one is due anyway
	}
}

func (r *Reconciler) onEvents(events []fleet.Event) {
	relevant := false
	for _, e := range events {
		switch e.Type {
		case fleet.EventAgentUpgrade, fleet.EventAgentWatch, fleet.EventAgentStatus, fleet.EventAgentUnenrolled:
			r.reported.add(e.Subject)
			relevant = true
		case fleet.EventRolloutStarted, fleet.EventRolloutResumed, fleet.EventRollbackStarted:
			relevant = true // on another replica, perhaps
		}
	}
	if relevant {
		r.Signal()
	}
}

// Round works on every active rollout once.
func (r *Reconciler) Round(ctx context.Context) error {
	r.init()
	r.round.Lock()
	defer r.round.Unlock()
	heads, err := r.Store.Rollouts().Active(ctx)
	if err != nil {
		return err
	}
	in := input{active: map[string]bool{}}
	for _, h := range heads {
		in.active[h.ID] = true
	}
	maps.DeleteFunc(r.runs, func(id string, _ *runState) bool { return !in.active[id] })
	in.reported, in.all = r.reported.drain()
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
			// What was half done is found again in the store.
			delete(r.runs, run.rollout.ID)
			errs = append(errs, fmt.Errorf("rollout %s: %w", run.rollout.ID, err))
		}
	}
	if err := r.giveUpAbandoned(ctx, in.active); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leaseID names the lease of a rollout.
func leaseID(rolloutID string) string { return "rollout/" + rolloutID }

// acquire returns the state of a rollout as it is now, nil if another replica
// works on it.
func (r *Reconciler) acquire(ctx context.Context, h store.RolloutHead) (*runState, error) {
	held, err := r.leases.Hold(ctx, leaseID(h.ID))
	if err != nil || !held {
		delete(r.runs, h.ID)
		return nil, err
	}
	run := r.runs[h.ID]
	if run == nil {
		if run, err = load(ctx, r.Store, h.ID); err != nil {
			return nil, err
		}
		r.runs[h.ID] = run
		r.Log.Info("this replica works on a rollout", "rollout", h.ID)
		return run, nil
	}
	if run.rollout.Revision != h.Revision {
		return run, r.reread(ctx, run)
	}
	return run, nil
}

// reread reads the rollout's document again, after somebody wrote it.
func (r *Reconciler) reread(ctx context.Context, run *runState) error {
	fresh, err := r.Store.Rollouts().Get(ctx, run.rollout.ID)
	if err != nil {
		return err
	}
	run.rollout, run.dirty = fresh, true
	return nil
}

// input is what a round goes by.
type input struct {
	reported map[string]bool // agents that events named
	all      bool            // assess every agent
	active   map[string]bool // rollouts
}

// errLost says that another replica has the rollout by now.
var errLost = fleet.Errorf(fleet.Conflict, "another replica works on it")

// renewLease renews the lease in the middle of a long round.
func (r *Reconciler) renewLease(ctx context.Context, run *runState) error {
	held, err := r.leases.Hold(ctx, leaseID(run.rollout.ID))
	if err == nil && !held {
		err = errLost
	}
	return err
}

// work does one round of a rollout, each step once.
func (r *Reconciler) work(ctx context.Context, run *runState, in input) error {
	defer r.publish(ctx, run)
	if err := r.makeOffers(ctx, run); err != nil {
		return err
	}
	if err := r.executeOrders(ctx, run); err != nil {
		return err
	}
	if err := r.confirm(ctx, run); err != nil {
		return err
	}
	now := r.Now.UTC()
	if err := r.assess(ctx, run, run.due(in.reported, in.all, now)); err != nil {
		return err
	}
	run.untrack(now)
	if over, err := r.endRolledBack(ctx, run, in.active); err != nil || over {
		return err
	}
	return r.decide(ctx, run, in.active[run.rollout.RolledBackBy])
}

// publish sends the events of a round, also of one that failed half way.
func (r *Reconciler) publish(ctx context.Context, run *runState) {
	r.Events.Publish(ctx, run.events...)
	run.events = nil
}

// assess reads the agents of tracked targets and writes what became of the
// targets.
func (r *Reconciler) assess(ctx context.Context, run *runState, which []int32) error {
	for part := range slices.Chunk(which, chunk) {
		agents, err := r.agents(ctx, run, part)
		if err != nil {
			return err
		}
		now := r.Now.UTC()
		var moved []update
		for _, i := range part {
			f, a := run.tracked[i], agents[run.targets[i].AgentID]
			t, changed, next := plan.Assess(f.target, a, &run.rollout.Plan, now)
			f.due = next
			if again := now.Add(reassessInterval); t.State.InFlight() && (next.IsZero() || again.Before(next)) {
				f.due = again
			}
			run.updatePresence(i, a, now)
			if changed {
				r.inRollback(run, &t, a)
				moved = append(moved, update{i, t})
			}
			if back := plan.GoingBack(&t, a, &run.rollout.Plan); !back.Equal(f.back) {
				f.back, run.dirty = back, true
			}
		}
		if err := r.writeAssessed(ctx, run, moved); err != nil {
			return err
		}
	}
	return nil
}

// inRollback ends a target that a rollback has taken over as cancelled: it is no
// failure of the version.
func (r *Reconciler) inRollback(run *runState, t *fleet.Target, a *fleet.Agent) {
	by := run.rollout.RolledBackBy
	if a == nil || by == "" || t.Code != fleet.WhyLostTarget || rolloutOf(a.UpgradeActionID) != by {
		return
	}
	t.State, t.Code, t.Error = fleet.TargetCancelled, fleet.WhyRollingBack, ""
	last := &t.History[len(t.History)-1]
	last.State, last.Code, last.Error = t.State, t.Code, t.Error
}

// agents reads the agents of targets, by id.
func (r *Reconciler) agents(ctx context.Context, run *runState, which []int32) (map[string]*fleet.Agent, error) {
	ids := make([]string, len(which))
	for k, i := range which {
		ids[k] = run.targets[i].AgentID
	}
	list, err := r.Store.Agents().GetMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*fleet.Agent, len(list))
	for k := range list {
		byID[list[k].ID] = &list[k]
	}
	return byID, nil
}

// updatePresence updates from its agent's document whether a target can be offered
// the version.
func (run *runState) updatePresence(i int32, a *fleet.Agent, now time.Time) {
	if a == nil {
		return
	}
	t := &run.targets[i]
	online, busy := now.Sub(a.LastActivity()) <= fleet.OfflineAfter, plan.Busy(a)
	run.dirty = run.dirty || online != t.Online || busy != t.Busy
	t.Online, t.Busy = online, busy
}

// decide asks plan what to do next, and does it.
func (r *Reconciler) decide(ctx context.Context, run *runState, rollingBack bool) error {
	now := r.Now.UTC()
	if !run.dirty && (run.next.IsZero() || now.Before(run.next)) && !run.countsPending {
		return nil
	}
	step := plan.Decide(&run.rollout, run.targets, plan.World{Freezes: r.fleet.freezes, Exposure: r.room(run), RollingBack: rollingBack, GoingBack: run.goingBack()}, now)
	run.dirty, run.next = false, step.Next
	if err := r.carryOut(ctx, run, step, now); err != nil {
		return err
	}
	if !run.next.IsZero() && !run.next.After(now) {
		r.Signal() // there is more than a round may do
	}
	return nil
}
