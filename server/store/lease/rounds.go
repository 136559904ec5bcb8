package lease

import (
	"context"
	"log/slog"
	"time"
)

// Rounds is work that is done a bounded part at a time: by one server, which owns a lease, or by
// every server.
type Rounds struct {
	// Work is the name of the work in logs, in the plural.
	Work string
	// Lease is released at the end; nil: every server does the work.
	Lease    *Owner
	Interval time.Duration
	// Wake brings the next round forward; nil: nothing does.
	Wake <-chan struct{}
	// AtOnce begins with a round; otherwise the first is due after Interval.
	AtOnce bool
	Log    *slog.Logger
}

// Run calls round in each Interval until ctx ends, and then releases the leases of the owner.
// round takes the lease itself: one that has nothing to do need not take it. Calls do not
// overlap, and the next round is the retry of one that failed.
func (r Rounds) Run(ctx context.Context, round func(context.Context) error) {
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	if r.Lease != nil {
		defer func() {
			if err := r.Lease.ReleaseAll(ctx); err != nil {
				r.Log.Debug("a lease was not released and expires", "work", r.Work, "error", err)
			}
		}()
	}
	for first := r.AtOnce; ; first = false {
		if !first {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-r.Wake:
			}
		}
		if err := round(ctx); err != nil && ctx.Err() == nil {
			r.Log.Warn("a round failed, work continues in the next one", "work", r.Work, "error", err)
		}
	}
}
