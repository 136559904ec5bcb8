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
	"github.com/muster-fleet/muster/server/outage"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// RoundInterval is how often the active rollouts are looked at when nothing
	// happens: an order given on another replica is taken up within a second.
	RoundInterval = time.Second
	// roundPause keeps rounds apart: what agents say in between is taken in
	// together, and five rounds a second are as quick as anybody can see.
	roundPause = 200 * time.Millisecond
	// lookInterval is the least time between two censuses. They also rest for
	// lookRest times as long as one took, so that a large fleet costs 2 % of a
	// processor.
	lookInterval = 2 * time.Second
	lookRest     = 50
	// relook is when an agent in flight is looked at though nothing was heard of
	// it: events can be lost.
	relook = 15 * time.Second
	// chunk bounds one read or write of documents: some 100 ms of a store.
	chunk = 1_000
	// decideTries bounds how often a round decides anew because an operator
	// changed the rollout meanwhile.
	decideTries = 4
	// progressInterval bounds events of progress, and writes of mere counts.
	progressInterval = time.Second
	// newsMax bounds the agents heard of between two rounds; with more, all are
	// looked at.
	newsMax = 10_000
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
	// Incidents hears of targets that need a person; nil drops it.
	Incidents IncidentReporter
	// Outage says whether the store has what agents said; nil: it always has.
	Outage *outage.Keeper

	once   sync.Once
	signal chan struct{}
	leases *lease.Holder
	news   news

	round    sync.Mutex // one at a time; it guards what follows
	boards   map[string]*board
	fleet    sighting
	tidied   time.Time
	tidiedAt store.UpgradingSince
}

// news are the agents that events told of since the last round.
type news struct {
	mu        sync.Mutex
	listening bool // else nobody tells, and all are looked at
	agents    map[string]bool
	all       bool
}

// take empties the news.
func (n *news) take() (agents map[string]bool, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	agents, all = n.agents, n.all || !n.listening
	n.agents, n.all = nil, false
	return agents, all
}

// begin says that events come from now on; what happened before nobody told.
func (n *news) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listening, n.all = true, true
}

func (n *news) hear(agentID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agents == nil {
		n.agents = map[string]bool{}
	}
	if len(n.agents) >= newsMax {
		n.all = true
		return
	}
	n.agents[agentID] = true
}

func (r *Reconciler) init() {
	r.once.Do(func() {
		r.signal = make(chan struct{}, 1)
		r.boards = map[string]*board{}
		r.leases = &lease.Holder{Leases: r.Store.Leases(), Name: r.Holder, Now: r.Now}
	})
}

// Run does rounds until ctx ends: every RoundInterval, at a Signal, and when
// something happens to an agent. Then it gives its leases back.
func (r *Reconciler) Run(ctx context.Context) {
	r.init()
	var listening sync.WaitGroup
	listening.Go(func() { r.Events.Follow(ctx, func(int64) { r.news.begin() }, r.hear) })
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
		if r.Outage.CaughtUp() == nil {
			if err := r.Round(ctx); err != nil && ctx.Err() == nil {
				r.Outage.Failed(err)
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

// hear takes in what happened to agents.
func (r *Reconciler) hear(events []fleet.Event) {
	heard := false
	for _, e := range events {
		switch e.Type {
		case fleet.EventAgentUpgrade, fleet.EventAgentWatch, fleet.EventAgentStatus, fleet.EventAgentUnenrolled:
			r.news.hear(e.Subject)
			heard = true
		case fleet.EventRolloutStarted, fleet.EventRolloutResumed, fleet.EventRollbackStarted:
			heard = true // on another replica, perhaps
		}
	}
	if heard {
		r.Signal()
	}
}

// Round looks at every active rollout once.
func (r *Reconciler) Round(ctx context.Context) error {
	r.init()
	r.round.Lock()
	defer r.round.Unlock()
	heads, err := r.Store.Rollouts().Active(ctx)
	if err != nil {
		return err
	}
	active := map[string]bool{}
	for _, h := range heads {
		active[h.ID] = true
	}
	maps.DeleteFunc(r.boards, func(id string, _ *board) bool { return !active[id] })
	heard, all := r.news.take()
	var mine []*board
	var errs []error
	for _, h := range heads {
		b, err := r.take(ctx, h)
		if err != nil {
			errs = append(errs, fmt.Errorf("rollout %s: %w", h.ID, err))
		}
		if b != nil {
			mine = append(mine, b)
		}
	}
	if err := r.look(ctx, mine); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, b := range mine {
		if err := r.work(ctx, b, look{heard: heard, all: all, active: active}); err != nil {
			// What was half done is found again in the store.
			delete(r.boards, b.rollout.ID)
			errs = append(errs, fmt.Errorf("rollout %s: %w", b.rollout.ID, err))
		}
	}
	if err := r.tidy(ctx, active); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leaseID names the lease of a rollout.
func leaseID(rolloutID string) string { return "rollout/" + rolloutID }

// take returns the board of a rollout as it is now, nil if another replica works
// on it.
func (r *Reconciler) take(ctx context.Context, h store.RolloutHead) (*board, error) {
	held, err := r.leases.Hold(ctx, leaseID(h.ID))
	if err != nil || !held {
		delete(r.boards, h.ID)
		return nil, err
	}
	b := r.boards[h.ID]
	if b == nil {
		if b, err = load(ctx, r.Store, h.ID); err != nil {
			return nil, err
		}
		r.boards[h.ID] = b
		r.Log.Info("this replica works on a rollout", "rollout", h.ID)
		return b, nil
	}
	if b.rollout.Revision != h.Revision {
		return b, r.reread(ctx, b)
	}
	return b, nil
}

// reread takes in what an operator has changed.
func (r *Reconciler) reread(ctx context.Context, b *board) error {
	fresh, err := r.Store.Rollouts().Get(ctx, b.rollout.ID)
	if err != nil {
		return err
	}
	b.rollout, b.stirred = fresh, true
	return nil
}

// look is what a round goes by.
type look struct {
	heard  map[string]bool // agents that events told of
	all    bool            // look at every agent
	active map[string]bool // rollouts
}

// errLost says that another replica has the rollout by now.
var errLost = fleet.Errorf(fleet.Conflict, "another replica works on it")

// keep renews the lease in the middle of a long round.
func (r *Reconciler) keep(ctx context.Context, b *board) error {
	held, err := r.leases.Hold(ctx, leaseID(b.rollout.ID))
	if err == nil && !held {
		err = errLost
	}
	return err
}

// work does one round of a rollout.
func (r *Reconciler) work(ctx context.Context, b *board, l look) error {
	defer r.publish(ctx, b)
	if err := r.offerAgain(ctx, b); err != nil {
		return err
	}
	if err := r.obey(ctx, b); err != nil {
		return err
	}
	if err := r.attend(ctx, b); err != nil {
		return err
	}
	now := r.Now.UTC()
	if err := r.assess(ctx, b, b.due(l.heard, l.all, now)); err != nil {
		return err
	}
	b.forget(now)
	if over, err := r.endRolledBack(ctx, b, l.active); err != nil || over {
		return err
	}
	for try := 1; ; try++ {
		err := r.decide(ctx, b, l.active[b.rollout.RolledBackBy])
		if !errors.Is(err, errChanged) || try == decideTries {
			return err
		}
		if err := r.reread(ctx, b); err != nil {
			return err
		}
		if err := r.obey(ctx, b); err != nil {
			return err
		}
	}
}

// publish sends the events of a round, also of one that failed half way.
func (r *Reconciler) publish(ctx context.Context, b *board) {
	r.Events.Publish(ctx, b.events...)
	b.events = nil
}

// assess looks at agents and takes in what has become of their targets.
func (r *Reconciler) assess(ctx context.Context, b *board, seats []int32) error {
	for part := range slices.Chunk(seats, chunk) {
		agents, err := r.agents(ctx, b, part)
		if err != nil {
			return err
		}
		now := r.Now.UTC()
		var moved []change
		for _, i := range part {
			f, a := b.follows[i], agents[b.ids[i]]
			t, changed, next := plan.Assess(f.target, a, &b.rollout.Plan, now)
			f.due = next
			if again := now.Add(relook); t.State.InFlight() && (next.IsZero() || again.Before(next)) {
				f.due = again
			}
			b.sees(i, a, now)
			if changed {
				r.inRollback(b, &t, a)
				moved = append(moved, change{i, t})
			}
			if back := plan.GoingBack(&t, a, &b.rollout.Plan); !back.Equal(f.back) {
				f.back, b.stirred = back, true
			}
		}
		if err := r.settle(ctx, b, moved); err != nil {
			return err
		}
	}
	return nil
}

// inRollback says of a target that a rollback has taken over what it is: no
// failure of the version.
func (r *Reconciler) inRollback(b *board, t *fleet.Target, a *fleet.Agent) {
	by := b.rollout.RolledBackBy
	if a == nil || by == "" || t.Code != fleet.WhyLostTarget || rolloutOf(a.UpgradeActionID) != by {
		return
	}
	t.State, t.Code, t.Error = fleet.TargetCancelled, fleet.WhyRollingBack, ""
	last := &t.History[len(t.History)-1]
	last.State, last.Code, last.Error = t.State, t.Code, t.Error
}

// agents reads the agents of seats, by id.
func (r *Reconciler) agents(ctx context.Context, b *board, seats []int32) (map[string]*fleet.Agent, error) {
	ids := make([]string, len(seats))
	for k, i := range seats {
		ids[k] = b.ids[i]
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

// sees takes in from its document whether an agent can take an offer.
func (b *board) sees(i int32, a *fleet.Agent, now time.Time) {
	if a == nil {
		return
	}
	seat := &b.seats[i]
	online, busy := now.Sub(a.LastActivity()) <= fleet.OfflineAfter, plan.Busy(a)
	b.stirred = b.stirred || online != seat.Online || busy != seat.Busy
	seat.Online, seat.Busy = online, busy
	if busy {
		b.busy[i] = true
	} else {
		delete(b.busy, i)
	}
}

// decide asks what to do next, and does it.
func (r *Reconciler) decide(ctx context.Context, b *board, rollingBack bool) error {
	now := r.Now.UTC()
	if !b.stirred && (b.next.IsZero() || now.Before(b.next)) && !b.owed {
		return nil
	}
	step := plan.Decide(&b.rollout, b.seats, plan.World{Freezes: r.fleet.freezes, Exposure: r.room(b), RollingBack: rollingBack, GoingBack: b.goingBack()}, now)
	b.stirred, b.next = false, step.Next
	if err := r.carryOut(ctx, b, step, now); err != nil {
		return err
	}
	if !b.next.IsZero() && !b.next.After(now) {
		r.Signal() // there is more than a round may do
	}
	return nil
}
