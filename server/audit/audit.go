// Package audit writes the audit trail: who changed what, when and why. The domain
// packages record a change before they make it. The admin API begins a [Change] for each
// of its calls, and records the call itself if no domain package has recorded anything, so
// that no change can be forgotten.
package audit

import (
	"context"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Record writes an entry at a time, under a new id. The text of the entry follows the
// actor's name. Callers record before they change anything: an entry without its change is
// better than a change without its entry.
func Record(ctx context.Context, trail store.Audit, at time.Time, e fleet.AuditEntry) error {
	e.ID, e.At, e.Text = fleet.NewID(), at, e.Actor+" "+e.Text
	return trail.Append(ctx, []fleet.AuditEntry{e})
}

// Change is one call of an operator.
type Change struct {
	why      string
	recorded bool
}

type changeKey struct{}

// Begin returns a context for a call with a reason, which may be empty. Entries that are
// written with it, and have no reason of their own, get that reason.
func Begin(ctx context.Context, why string) (context.Context, *Change) {
	c := &Change{why: why}
	return context.WithValue(ctx, changeKey{}, c), c
}

// Why returns the reason of the call that Begin has returned ctx for, empty if there is none.
func Why(ctx context.Context) string {
	if c, _ := ctx.Value(changeKey{}).(*Change); c != nil {
		return c.why
	}
	return ""
}

// Recorded reports whether an entry was written with the change's context. It must not be
// called before the work that uses the context has ended.
func (c *Change) Recorded() bool { return c.recorded }

// Watch returns a store whose trail knows of changes; see Begin.
func Watch(s store.Store) store.Store { return watched{s} }

type watched struct{ store.Store }

func (w watched) Audit() store.Audit { return trail{w.Store.Audit()} }

type trail struct{ store.Audit }

func (t trail) Append(ctx context.Context, entries []fleet.AuditEntry) error {
	c, _ := ctx.Value(changeKey{}).(*Change)
	if c == nil {
		return t.Audit.Append(ctx, entries)
	}
	given := make([]fleet.AuditEntry, len(entries))
	for i, e := range entries {
		if e.Why == "" {
			e.Why = c.why
		}
		given[i] = e
	}
	err := t.Audit.Append(ctx, given)
	c.recorded = c.recorded || err == nil && len(given) > 0
	return err
}
