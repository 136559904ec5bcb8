package action

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/storehealth"
)

const (
	// FeedInterval is how often the store is asked for actions that other
	// replicas created; those of this process are signalled. An action is to be at
	// agents of other replicas within a second, and the way from there takes longer
	// than a look, which is one cheap request.
	FeedInterval = 250 * time.Millisecond
	// feedBatch bounds one read.
	feedBatch = 100
)

// Feed wakes the parked polls of agents that an action is for, and remembers the
// newest actions for them.
type Feed struct {
	Actions store.Actions
	Wake    func(agentIDs ...string)
	Health  *storehealth.Monitor
	Log     *slog.Logger

	signal chan struct{}
	last   int64
	recent recentActions
}

// NewFeed makes a feed that reports actions created from now on; earlier ones
// are found by each check-in itself.
func NewFeed(ctx context.Context, actions store.Actions, wake func(agentIDs ...string), health *storehealth.Monitor, log *slog.Logger) (*Feed, error) {
	last, err := actions.LastSeq(ctx)
	if err != nil {
		return nil, err
	}
	return &Feed{Actions: actions, Wake: wake, Health: health, Log: log, signal: make(chan struct{}, 1), last: last, recent: recentActions{from: last}}, nil
}

// Pending returns the ids of the actions for an agent with a sequence number above
// after that have not expired at now, lowest first. Those that are not known here
// yet come with a Wake: an agent that is told to come for an action finds it. Where
// there are none, there are none up to the number upTo.
func (f *Feed) Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) (ids []string, upTo int64, err error) {
	ids, behind, known := f.recent.pending(agentID, after, now, limit)
	if known {
		return ids, behind, nil
	}
	// What it says of actions up to here stays true.
	upTo = f.recent.newest()
	var list []fleet.Action
	err = f.Health.Ask(ctx, func(ctx context.Context) (err error) {
		list, err = f.Actions.Pending(ctx, agentID, behind, now, limit)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if len(list) == 0 {
		f.recent.empty(agentID, after, upTo, now)
	}
	ids = make([]string, len(list))
	for i, a := range list {
		ids[i] = a.ID
	}
	return ids, upTo, nil
}

// Recent returns the type of one of the newest actions if it is for the agent, else "".
func (f *Feed) Recent(actionID, agentID string) agentapi.ActionType {
	return f.recent.typeOf(actionID, agentID)
}

// Signal says that an action was created in this process.
func (f *Feed) Signal() {
	select {
	case f.signal <- struct{}{}:
	default: // a round is due anyway
	}
}

// Run does a round at every signal and every FeedInterval, until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	tick := time.NewTicker(FeedInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.signal:
		case <-tick.C:
		}
		if f.Health.Away() != nil {
			continue // the first round after it finds what was created meanwhile
		}
		if err := f.round(ctx); err != nil && ctx.Err() == nil {
			f.Health.Failed(err)
			f.Log.Warn("new actions wait for the store", "error", err)
		}
	}
}

// round wakes the agents of every action since the last round.
func (f *Feed) round(ctx context.Context) error {
	for {
		actions, err := f.Actions.After(ctx, f.last, feedBatch)
		if err != nil {
			return err
		}
		agents := f.recent.note(actions) // before anybody comes for them
		for i, a := range actions {
			// In the order of their ids: they acknowledge in the order in which they are
			// answered, and a write of neighbours touches few pages of a store.
			f.Wake(agents[i]...)
			f.last = a.Seq
		}
		if len(actions) < feedBatch {
			return nil
		}
	}
}
