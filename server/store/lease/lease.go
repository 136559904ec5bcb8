// Package lease distributes work among servers: the owner of a lease does the work,
// and the other servers check from time to time whether the lease was released or has
// expired. Clocks are not compared. A renewal changes the lease's revision; a lease
// whose revision has not changed for its TTL, by the clock of the observer, may be
// taken over.
//
// A lease prevents duplicate work but not concurrent writes: an owner that was
// suspended may resume after its lease was taken over. Writes made under a lease must
// therefore also be guarded by the revision of the document written.
package lease

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// DefaultTTL is how long the work of a dead server rests, plus at most the interval
	// between two calls of Take. It allows for a renewal that takes seconds in the
	// store.
	DefaultTTL = 6 * time.Second
	// DefaultRenew allows two failed renewals before the lease expires.
	DefaultRenew = 2 * time.Second
	// releaseTime bounds ReleaseAll at shutdown. Leases not released by then expire.
	releaseTime = 2 * time.Second
)

// Owner takes, renews and releases leases under one name. Name must be unique to the
// process, because a restarted process does not know the state of its predecessor's
// work. An Owner is safe for concurrent use.
type Owner struct {
	Leases store.Collection[fleet.Lease]
	Name   string
	// TTL and Renew override the defaults. All owners of a lease must use the same
	// values.
	TTL   time.Duration
	Renew time.Duration
	Now   clock.Clock

	mu       sync.Mutex
	owned    map[string]time.Time   // time of the last renewal, by lease
	observed map[string]observation // leases of other owners
}

// observation is the last observed change of another owner's lease.
type observation struct {
	revision int64
	since    time.Time // when revision was first seen
	checked  time.Time // when the lease was last read
}

func (o *Owner) ttl() time.Duration {
	if o.TTL > 0 {
		return o.TTL
	}
	return DefaultTTL
}

func (o *Owner) renew() time.Duration {
	if o.Renew > 0 {
		return o.Renew
	}
	return DefaultRenew
}

// Take takes the lease, or renews it if that is due, and reports whether this owner
// has it now. It does not wait: callers call it repeatedly, which also detects that
// another owner has died. If it returns an error, the lease is not owned.
func (o *Owner) Take(ctx context.Context, id string) (bool, error) {
	now := o.Now.UTC()
	if o.fresh(id, now, o.renew()) {
		return true, nil
	}
	l, err := o.Leases.Get(ctx, id)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return o.took(id, now, o.Leases.Create(ctx, fleet.Lease{ID: id, Owner: o.Name, Beat: 1}))
	case err != nil:
		return false, err
	case l.Owner != o.Name && l.Owner != "" && !o.expired(l, now):
		return false, nil
	}
	l.Owner = o.Name
	l.Beat++
	_, err = o.Leases.Update(ctx, l)
	return o.took(id, now, err)
}

// Owns reports whether this owner still has the lease, without reading the store.
func (o *Owner) Owns(id string) bool { return o.fresh(id, o.Now.UTC(), o.ttl()) }

// Release releases the lease, so that another owner can take it at once. It does
// nothing if another owner has the lease.
func (o *Owner) Release(ctx context.Context, id string) error {
	o.forget(id)
	l, err := o.Leases.Get(ctx, id)
	if err == nil && l.Owner == o.Name {
		l.Owner = ""
		l.Beat++
		_, err = o.Leases.Update(ctx, l)
	}
	if kind := fleet.KindOf(err); err != nil && (kind == fleet.NotFound || kind == fleet.Conflict) {
		return nil // another owner has it
	}
	return err
}

// ReleaseAll releases all leases of this owner, at the end of a process. It works even
// if ctx has ended.
func (o *Owner) ReleaseAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	o.mu.Lock()
	ids := slices.Sorted(maps.Keys(o.owned))
	o.mu.Unlock()
	var first error
	for _, id := range ids {
		if err := o.Release(ctx, id); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// End deletes the lease of work that is complete, whoever owns it.
func (o *Owner) End(ctx context.Context, id string) error {
	o.forget(id)
	return o.Leases.Delete(ctx, id)
}

func (o *Owner) fresh(id string, now time.Time, within time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	renewed, ok := o.owned[id]
	return ok && now.Sub(renewed) < within
}

// took records the result of a write that takes or renews a lease. now is the time
// before the write, so this owner considers the lease expired before any observer
// does.
func (o *Owner) took(id string, now time.Time, err error) (bool, error) {
	if err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.owned == nil {
			o.owned = map[string]time.Time{}
		}
		o.owned[id] = now
		delete(o.observed, id)
		return true, nil
	}
	o.forget(id)
	if kind := fleet.KindOf(err); kind == fleet.Conflict || kind == fleet.NotFound {
		return false, nil // another owner took it
	}
	return false, err
}

func (o *Owner) forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.owned, id)
	delete(o.observed, id)
}

// expired reports whether another owner's lease has not changed for its TTL.
func (o *Owner) expired(l fleet.Lease, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.owned, l.ID)
	s, ok := o.observed[l.ID]
	if !ok || s.revision != l.Revision {
		if o.observed == nil {
			o.observed = map[string]observation{}
		}
		// Drop observations of leases that are no longer checked, such as those of
		// completed work. Dropping one too early only restarts the wait.
		maps.DeleteFunc(o.observed, func(_ string, s observation) bool { return now.Sub(s.checked) > 10*o.ttl() })
		s = observation{revision: l.Revision, since: now}
	}
	s.checked = now
	o.observed[l.ID] = s
	return now.Sub(s.since) >= o.ttl()
}
