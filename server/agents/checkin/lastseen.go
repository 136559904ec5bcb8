package checkin

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

const (
	// FlushInterval is how often last-seen times are written together. An operator reads
	// "2 s ago" as now, and a fleet of 100,000 causes some 7,000 rows, which is one
	// short transaction.
	FlushInterval = 2 * time.Second
	// RetouchInterval is how often a parked agent counts as seen: a tenth of
	// the time after which it would be offline.
	RetouchInterval = fleet.OfflineAfter / 10
)

// LastSeen buffers when agents were seen and which ack token each has shown, and writes
// both to the store in bulk. A crash loses at most FlushInterval of them, and the next
// poll of each agent restores them. All fields are required.
type LastSeen struct {
	Agents store.Agents
	Parker Parker
	Cache  Cache
	Health *storehealth.Monitor
	Log    *slog.Logger

	mu      sync.Mutex
	pending map[string]fleet.Touch
}

// Seen records a check-in. A later one of the same agent replaces it, so there is at most
// one entry for each agent however long the store is away.
func (l *LastSeen) Seen(t fleet.Touch) {
	l.Cache.Seen(t.AgentID, t.At)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == nil {
		l.pending = map[string]fleet.Touch{}
	}
	old, ok := l.pending[t.AgentID]
	t.ActionSeq = max(t.ActionSeq, old.ActionSeq)
	if ok && t.At.Before(old.At) {
		// A write that failed comes back here, behind a retouch that came
		// meanwhile: the agent's status must not be lost to that.
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

// Run writes until ctx ends, and once more at the end.
func (l *LastSeen) Run(ctx context.Context) {
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
			l.Parker.Parked(func(id string, _ fleet.PolicyAt) { l.Seen(fleet.Touch{AgentID: id, At: now.UTC()}) })
		case <-flush.C:
			l.Flush(ctx)
		}
	}
}

// Flush writes the buffer. Entries that could not be written stay in it.
func (l *LastSeen) Flush(ctx context.Context) {
	touches := l.take()
	if len(touches) == 0 {
		return
	}
	if err := l.Agents.Touch(ctx, touches); err != nil {
		l.Health.Failed(err)
		l.Log.Warn("last-seen writes wait for the store", "agents", len(touches), "error", err)
		for _, t := range touches {
			l.Seen(t)
		}
	}
}

// take empties the buffer and returns the entries, or none while the store is away.
func (l *LastSeen) take() []fleet.Touch {
	if l.Health.Away() != nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	touches := slices.Collect(maps.Values(l.pending))
	l.pending = nil
	return touches
}
