package policy

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

const (
	// feedInterval is how often the store is asked for policies that other servers
	// changed; changes of this process are signalled. Fleet Server waits a second too.
	feedInterval = time.Second
	// wakeEvery and wakeAtOnce pace the wakes of a change: 5,000 agents a second, so that
	// 100,000 parked agents have their policy within 20 s, and their answers and
	// acknowledgements leave room for those of actions, which cannot wait.
	wakeEvery  = 100 * time.Millisecond
	wakeAtOnce = 500
)

// Feed holds the newest revision of each policy, and wakes the parked polls of agents that
// have an older one.
type Feed struct {
	Policies store.Collection[fleet.Policy]
	// Parked calls its argument for each parked agent with the revision that it has.
	Parked func(f func(agentID string, has fleet.PolicyAt))
	Wake   func(agentIDs ...string)
	Health *storehealth.Monitor
	Log    *slog.Logger

	signal chan struct{}
	newest atomic.Pointer[map[string]int64]
	todo   []string // agents to wake
}

// NewFeed returns a feed of the policies in the store.
func NewFeed(ctx context.Context, policies store.Collection[fleet.Policy], parked func(func(string, fleet.PolicyAt)), wake func(...string), health *storehealth.Monitor, log *slog.Logger) (*Feed, error) {
	f := &Feed{Policies: policies, Parked: parked, Wake: wake, Health: health, Log: log, signal: make(chan struct{}, 1)}
	return f, f.round(ctx)
}

// Newest returns the newest revision of a policy that is known, 0 if there is none.
func (f *Feed) Newest(policyID string) int64 { return (*f.newest.Load())[policyID] }

// Signal makes Run look for policies that this process has changed.
func (f *Feed) Signal() {
	select {
	case f.signal <- struct{}{}:
	default: // a round is due anyway
	}
}

// Run runs a round at every signal and every feedInterval, and wakes agents at their pace,
// until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	tick := time.NewTicker(feedInterval)
	defer tick.Stop()
	var wake <-chan time.Time // nil while there is nobody to wake
	for {
		if wake == nil && len(f.todo) > 0 {
			wake = time.After(wakeEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
			wake = nil
			f.wakeSome()
			continue
		case <-f.signal:
		case <-tick.C:
		}
		if f.Health.Away() != nil {
			continue // the first round after the outage finds what was changed meanwhile
		}
		if err := f.round(ctx); err != nil && ctx.Err() == nil {
			f.Health.Failed(err)
			f.Log.Warn("cannot read policies", "error", err)
		}
	}
}

// round reads the policies and finds the parked agents that lack a newer revision.
func (f *Feed) round(ctx context.Context) error {
	list, _, err := f.Policies.List(ctx, 0, 0)
	if err != nil {
		return err
	}
	newest, changed := make(map[string]int64, len(list)), false
	was := f.newest.Load()
	for i := range list {
		p := &list[i]
		newest[p.ID] = p.PolicyRev
		changed = changed || was != nil && (*was)[p.ID] < p.PolicyRev
	}
	f.newest.Store(&newest) // before the agents ask
	if !changed {
		return nil
	}
	var behind []string
	f.Parked(func(agentID string, has fleet.PolicyAt) {
		if now := newest[has.ID]; has.Revision < now && (*was)[has.ID] < now {
			behind = append(behind, agentID)
		}
	})
	if len(behind) <= wakeAtOnce {
		f.Wake(behind...) // a small policy does not wait for the rest of a large one
		return nil
	}
	f.todo = append(f.todo, behind...)
	return nil
}

// wakeSome wakes the next agents. One that has its policy by now stays parked.
func (f *Feed) wakeSome() {
	n := min(len(f.todo), wakeAtOnce)
	if n == 0 {
		return
	}
	f.Wake(f.todo[:n]...)
	if f.todo = f.todo[n:]; len(f.todo) == 0 {
		f.todo = nil // frees the array
	}
}
