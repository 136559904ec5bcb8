// Package lease distributes work among servers: the holder of a lease does the work,
// and the other servers check from time to time whether the lease was released or has
// expired. Clocks are not compared. A renewal changes the lease's revision; a lease
// whose revision has not changed for its TTL, by the clock of the observer, may be
// taken over.
//
// A lease prevents duplicate work but not concurrent writes: a holder that was
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
	// between two calls of Hold. It allows for a renewal that takes seconds in the
	// store.
	DefaultTTL = 6 * time.Second
	// DefaultRenew allows two failed renewals before the lease expires.
	DefaultRenew = 2 * time.Second
	// releaseTime bounds ReleaseAll at shutdown. Leases not released by then expire.
	releaseTime = 2 * time.Second
)

// Holder takes, renews and releases leases under one name. Name must be unique to the
// process, because a restarted process does not know the state of its predecessor's
// work. A Holder is safe for concurrent use.
type Holder struct {
	Leases store.Collection[fleet.Lease]
	Name   string
	// TTL and Renew override the defaults. All holders of a lease must use the same
	// values.
	TTL   time.Duration
	Renew time.Duration
	Now   clock.Clock

	mu       sync.Mutex
	owned    map[string]time.Time   // time of the last renewal, by lease
	observed map[string]observation // leases of other holders
}

// observation is the last observed change of another holder's lease.
type observation struct {
	revision int64
	since    time.Time // when revision was first seen
	checked  time.Time // when the lease was last read
}

func (h *Holder) ttl() time.Duration {
	if h.TTL > 0 {
		return h.TTL
	}
	return DefaultTTL
}

func (h *Holder) renew() time.Duration {
	if h.Renew > 0 {
		return h.Renew
	}
	return DefaultRenew
}

// Hold takes the lease, or renews it if that is due, and reports whether this holder
// has it now. It does not wait: callers call it repeatedly, which also detects that
// another holder has died. If it returns an error, the lease is not owned.
func (h *Holder) Hold(ctx context.Context, id string) (bool, error) {
	now := h.Now.UTC()
	if h.fresh(id, now, h.renew()) {
		return true, nil
	}
	l, err := h.Leases.Get(ctx, id)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return h.took(id, now, h.Leases.Create(ctx, fleet.Lease{ID: id, Holder: h.Name, Beat: 1}))
	case err != nil:
		return false, err
	case l.Holder != h.Name && l.Holder != "" && !h.expired(l, now):
		return false, nil
	}
	l.Holder = h.Name
	l.Beat++
	_, err = h.Leases.Update(ctx, l)
	return h.took(id, now, err)
}

// Holds reports whether this holder still has the lease, without reading the store.
func (h *Holder) Holds(id string) bool { return h.fresh(id, h.Now.UTC(), h.ttl()) }

// Release releases the lease, so that another holder can take it at once. It does
// nothing if another holder has the lease.
func (h *Holder) Release(ctx context.Context, id string) error {
	h.forget(id)
	l, err := h.Leases.Get(ctx, id)
	if err == nil && l.Holder == h.Name {
		l.Holder = ""
		l.Beat++
		_, err = h.Leases.Update(ctx, l)
	}
	if kind := fleet.KindOf(err); err != nil && (kind == fleet.NotFound || kind == fleet.Conflict) {
		return nil // another holder has it
	}
	return err
}

// ReleaseAll releases all leases of this holder, at the end of a process. It works even
// if ctx has ended.
func (h *Holder) ReleaseAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	h.mu.Lock()
	ids := slices.Sorted(maps.Keys(h.owned))
	h.mu.Unlock()
	var first error
	for _, id := range ids {
		if err := h.Release(ctx, id); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// End deletes the lease of work that is complete, whoever holds it.
func (h *Holder) End(ctx context.Context, id string) error {
	h.forget(id)
	return h.Leases.Delete(ctx, id)
}

func (h *Holder) fresh(id string, now time.Time, within time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	renewed, ok := h.owned[id]
	return ok && now.Sub(renewed) < within
}

// took records the result of a write that takes or renews a lease. now is the time
// before the write, so this holder considers the lease expired before any observer
// does.
func (h *Holder) took(id string, now time.Time, err error) (bool, error) {
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.owned == nil {
			h.owned = map[string]time.Time{}
		}
		h.owned[id] = now
		delete(h.observed, id)
		return true, nil
	}
	h.forget(id)
	if kind := fleet.KindOf(err); kind == fleet.Conflict || kind == fleet.NotFound {
		return false, nil // another holder took it
	}
	return false, err
}

func (h *Holder) forget(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owned, id)
	delete(h.observed, id)
}

// expired reports whether another holder's lease has not changed for its TTL.
func (h *Holder) expired(l fleet.Lease, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owned, l.ID)
	s, ok := h.observed[l.ID]
	if !ok || s.revision != l.Revision {
		if h.observed == nil {
			h.observed = map[string]observation{}
		}
		// Drop observations of leases that are no longer checked, such as those of
		// completed work. Dropping one too early only restarts the wait.
		maps.DeleteFunc(h.observed, func(_ string, s observation) bool { return now.Sub(s.checked) > 10*h.ttl() })
		s = observation{revision: l.Revision, since: now}
	}
	s.checked = now
	h.observed[l.ID] = s
	return now.Sub(s.since) >= h.ttl()
}
