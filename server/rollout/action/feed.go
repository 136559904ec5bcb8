package action

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// FeedInterval is how often the store is asked for actions that other servers
	// created; those of this process are signalled. An action should reach agents at
	// other servers within a second, and a poll of the store is one cheap request.
	FeedInterval = 250 * time.Millisecond
	// feedBatch bounds one read.
	feedBatch = 100
)

// Feed wakes the parked polls of the agents of new actions, and holds the newest actions
// in memory.
type Feed struct {
	Actions store.Actions
	Wake    func(agentIDs ...string)
	Health  *storehealth.Monitor
	Log     *slog.Logger

	signal chan struct{}
	last   int64
	recent recentActions
}

// NewFeed returns a feed that reports actions created from now on. Each check-in finds
// earlier ones itself.
func NewFeed(ctx context.Context, actions store.Actions, wake func(agentIDs ...string), health *storehealth.Monitor, log *slog.Logger) (*Feed, error) {
	last, err := actions.LastSeq(ctx)
	if err != nil {
		return nil, err
	}
	return &Feed{Actions: actions, Wake: wake, Health: health, Log: log, signal: make(chan struct{}, 1), last: last, recent: recentActions{from: last}}, nil
}

// Pending returns the ids of the actions for an agent with a sequence number above after
// that have not expired at now, lowest first. An action that the feed does not know yet
// will wake the agent, which then finds it. If there is none, there is none up to the
// number upTo.
func (f *Feed) Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) (ids []string, upTo int64, err error) {
	ids, behind, known := f.recent.pending(agentID, after, now, limit)
	if known {
		return ids, behind, nil
	}
	// The store's answer stays valid for actions up to here.
	upTo = f.recent.newest()
	var list []fleet.Action
	err = f.Health.Call(ctx, func(ctx context.Context) (err error) {
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

// Signal makes Run look for actions that this process has created.
func (f *Feed) Signal() {
	select {
	case f.signal <- struct{}{}:
	default: // a round is due anyway
	}
}

// Run runs a round at every signal and every FeedInterval until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	lease.Rounds{Work: "reads of new actions", Interval: FeedInterval, Wake: f.signal, Log: f.Log}.Run(ctx, func(ctx context.Context) error {
		if f.Health.Away() != nil {
			return nil // the first round after the outage finds what was created meanwhile
		}
		err := f.round(ctx)
		if err != nil && ctx.Err() == nil {
			f.Health.Failed(err)
		}
		return err
	})
}

// round wakes the agents of every action since the last round.
func (f *Feed) round(ctx context.Context) error {
	for {
		actions, err := f.Actions.After(ctx, f.last, feedBatch)
		if err != nil {
			return err
		}
		agents := f.recent.add(actions) // before the agents ask for them
		for i, a := range actions {
			// Agents are woken in the order of their ids, since they acknowledge in that
			// order, and writes of adjacent ids touch few pages of a store.
			if a.Type != agentapi.ActionUpdateTags { // the agents have nothing to do
				f.Wake(agents[i]...)
			}
			f.last = a.Seq
		}
		if len(actions) < feedBatch {
			return nil
		}
	}
}
