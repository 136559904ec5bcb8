package checkin

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/outage"
	"github.com/muster-fleet/muster/server/presence"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// FlushInterval is how often last-seen writes go to the store together. An
	// operator reads "2 s ago" as now; a fleet of 100,000 makes some 7,000 rows
	// of it, which is one short transaction.
	FlushInterval = 2 * time.Second
	// RetouchInterval is how often a parked agent counts as seen: a tenth of
	// the time after which it would be offline.
	RetouchInterval = fleet.OfflineAfter / 10
)

// Ledger gathers when agents were seen, and which action each has shown, and writes
// it to the store in bulk. At most FlushInterval of it is lost in a crash, and the
// next poll brings it back.
type Ledger struct {
	Agents store.Agents
	Parker Parker
	Log    *slog.Logger
	// Outage says whom not to touch: agents whose check-ins are kept, which would
	// be taken for older than what the store knows. nil: there are none.
	Outage *outage.Keeper
	// Presence hears who is there, too; nil: nobody does.
	Presence *presence.Registry

	mu      sync.Mutex
	pending map[string]fleet.Touch
}

// Seen notes a check-in. A later one of the same agent replaces it, so the
// ledger holds at most one entry an agent however long the store is away.
func (l *Ledger) Seen(t fleet.Touch) {
	l.Presence.Seen(t.AgentID, t.At)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == nil {
		l.pending = map[string]fleet.Touch{}
	}
	old, ok := l.pending[t.AgentID]
	t.ActionSeq = max(t.ActionSeq, old.ActionSeq)
	if ok && t.At.Before(old.At) {
		// A write that failed comes back here, behind a retouch that came
		// meanwhile: what the agent said must not be lost to that.
		if old.Status == "" {
			old.Status, old.Message = t.Status, t.Message
		}
		old.ActionSeq = t.ActionSeq
		l.pending[t.AgentID] = old
		return
	}
	if t.Status == "" {
		t.Status, t.Message = old.Status, old.Message
	}
	l.pending[t.AgentID] = t
}

// Run writes until ctx ends, and once more then.
func (l *Ledger) Run(ctx context.Context) {
	flush := time.NewTicker(FlushInterval)
	defer flush.Stop()
	retouch := time.NewTicker(RetouchInterval)
	defer retouch.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), FlushInterval)
			defer cancel()
			l.Flush(last)
			return
		case now := <-retouch.C:
			l.Parker.Parked(func(id string) { l.Seen(fleet.Touch{AgentID: id, At: now.UTC()}) })
		case <-flush.C:
			l.Flush(ctx)
		}
	}
}

// Flush writes what is pending. What could not be written stays.
func (l *Ledger) Flush(ctx context.Context) {
	touches := l.take()
	if len(touches) == 0 {
		return
	}
	if err := l.Agents.Touch(ctx, touches); err != nil {
		l.Outage.Failed(err)
		l.Log.Warn("last-seen writes wait for the store", "agents", len(touches), "error", err)
		for _, t := range touches {
			l.Seen(t)
		}
	}
}

// take takes out what can be written now.
func (l *Ledger) take() []fleet.Touch {
	if l.Outage.Away() != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	touches := make([]fleet.Touch, 0, len(l.pending))
	for id, t := range l.pending {
		if l.Outage.Ready(id) == nil {
			touches = append(touches, t)
			delete(l.pending, id)
		}
	}
	return touches
}
