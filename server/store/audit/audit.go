// Package audit writes the audit trail: who changed what, when and why. The domain
// packages record a change before they make it. The admin API begins a [Change] for each
// of its calls, and a store that [Watch] returns sees to it that the trail has an entry before
// the call changes anything, so that no change can be forgotten. From then on the call goes on
// to its end, also if its caller hangs up.
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// finishTime is how long a call goes on that has an entry and whose caller has gone: every call
// but those that receive bytes ends within seconds, and those end with their connection.
const finishTime = 2 * time.Minute

// Record writes an entry at a time, under a new id. The text of the entry follows the
// actor's name. Callers record before they change anything: an entry without its change is
// better than a change without its entry.
func Record(ctx context.Context, trail store.Audit, at time.Time, e fleet.AuditEntry) error {
	e.ID, e.At, e.Text = fleet.NewID(), at, e.Actor+" "+e.Text
	return trail.Append(ctx, []fleet.AuditEntry{e})
}

// By returns a part for the ids of entries that are derived from what they are about, so that a
// command which is repeated writes no second entry: of two actors who command the same, neither
// hides the other.
func By(actor string) string {
	sum := sha256.Sum256([]byte(actor))
	return hex.EncodeToString(sum[:8])
}

// Change is one call of an operator.
type Change struct {
	why    string
	call   *fleet.AuditEntry // nil: the change is no call
	cancel context.CancelFunc
	unhook func() bool // from the end of the caller's context

	mu       sync.Mutex
	recorded bool
	gone     bool        // the caller hung up before anything was recorded
	finish   *time.Timer // cancels what goes on without its caller
}

type changeKey struct{}

func changeOf(ctx context.Context) *Change {
	c, _ := ctx.Value(changeKey{}).(*Change)
	return c
}

// Begin returns a context for a change with a reason, which may be empty. Entries that are
// written with it, and have no reason of their own, get that reason.
func Begin(ctx context.Context, why string) context.Context {
	return context.WithValue(ctx, changeKey{}, &Change{why: why})
}

// BeginCall is Begin for a call, whose own entry is written before anything is changed, unless
// another entry was. ctx is the caller's: when it ends the new context ends too, if no entry was
// written yet. End must be called.
func BeginCall(ctx context.Context, call fleet.AuditEntry) (context.Context, *Change) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	call.ID, call.Text = fleet.NewID(), call.Actor+" "+call.Text
	c := &Change{why: call.Why, call: &call, cancel: cancel}
	c.unhook = context.AfterFunc(ctx, c.hangUp)
	return context.WithValue(own, changeKey{}, c), c
}

// End ends a call, and its context.
func (c *Change) End() {
	c.unhook()
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finish != nil {
		c.finish.Stop()
	}
}

// HangUp does to the call that ctx belongs to what the end of its caller's context does, for
// tests that choose the moment.
func HangUp(ctx context.Context) {
	if c := changeOf(ctx); c != nil && c.call != nil {
		c.hangUp()
	}
}

func (c *Change) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.gone || c.finish != nil:
	case c.recorded:
		c.finish = time.AfterFunc(finishTime, c.cancel)
	default:
		c.gone = true
		c.cancel()
	}
}

// Why returns the reason of the change that ctx belongs to, empty if there is none.
func Why(ctx context.Context) string {
	if c := changeOf(ctx); c != nil {
		return c.why
	}
	return ""
}

// RecordCall writes the entry of the call that ctx belongs to, unless an entry was written.
func RecordCall(ctx context.Context, s store.Store) error {
	c := changeOf(ctx)
	if c == nil || c.call == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recorded {
		return nil
	}
	trail := s.Audit()
	if t, ok := trail.(watchedTrail); ok {
		trail = t.Audit
	}
	return c.append(ctx, trail, []fleet.AuditEntry{*c.call})
}

// Trail is the audit trail of a store, for the admin API.
type Trail struct{ Store store.Store }

// Query selects one page of entries.
type Query = store.AuditQuery

// List returns a page of the entries, newest first, and how many match.
func (t Trail) List(ctx context.Context, q Query) ([]fleet.AuditEntry, int, error) {
	return t.Store.Audit().List(ctx, q)
}

// RecordCall is the function of this name.
func (t Trail) RecordCall(ctx context.Context) error { return RecordCall(ctx, t.Store) }

// append writes entries. c.mu is held, so that a caller who hangs up meanwhile is gone either
// before the first entry or after it.
func (c *Change) append(ctx context.Context, trail store.Audit, entries []fleet.AuditEntry) error {
	if c.gone {
		return &fleet.Error{Kind: fleet.Unavailable, Message: "the caller has hung up before anything was changed", Err: context.Canceled}
	}
	err := trail.Append(ctx, entries)
	c.recorded = c.recorded || err == nil && len(entries) > 0
	return err
}

type watchedTrail struct{ store.Audit }

func (t watchedTrail) Append(ctx context.Context, entries []fleet.AuditEntry) error {
	c := changeOf(ctx)
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
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.append(ctx, t.Audit, given)
}
