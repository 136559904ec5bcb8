// Package lease lets the replicas of a server share work: whoever holds the
// lease of a thing works on it, the others look now and then whether it has been
// given back or has died. Nobody compares clocks: a lease moves when it is
// renewed, and one that has not moved for as long as it lasts, by the clock of
// whoever looks, may be taken.
//
// A lease keeps two replicas from doing the same work, not from writing at the
// same moment: one that is suspended in the middle of its work wakes up later.
// So what is written under a lease is guarded by the revision of what is
// written, too.
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
	// DefaultTTL is how long the work of a replica that died lies still, at
	// most one look longer. Long enough for a renewal that the store took
	// seconds for.
	DefaultTTL = 6 * time.Second
	// DefaultRenew leaves two renewals that fail before the lease is lost.
	DefaultRenew = 2 * time.Second
	// releaseTime bounds giving back at shutdown: what is not given back by
	// then is taken over when it has run out.
	releaseTime = 2 * time.Second
)

// Holder takes leases, keeps and gives them back, under one name. Name must be
// new for each process: a process that was started again does not know what the
// one before was doing. It is safe for concurrent use.
type Holder struct {
	Leases store.Collection[fleet.Lease]
	Name   string
	// TTL and Renew override the defaults; all holders of a lease have the same.
	TTL   time.Duration
	Renew time.Duration
	Now   clock.Clock

	mu    sync.Mutex
	held  map[string]time.Time // by lease: when it was last renewed
	sight map[string]sight     // leases of others
}

// sight is a lease of another holder as it was last seen to move.
type sight struct {
	revision int64
	since    time.Time
	looked   time.Time
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

// Hold takes the lease, or renews it if it is due, and says whether this holder
// has it now. It never waits: to have it later, call again, which is also how
// the death of another holder is seen. With an error the lease is not held.
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
	case l.Holder != h.Name && l.Holder != "" && !h.ranOut(l, now):
		return false, nil
	}
	l.Holder = h.Name
	l.Beat++
	return h.took(id, now, h.Leases.Update(ctx, l))
}

// Holds says whether this holder has the lease still, without asking the store.
func (h *Holder) Holds(id string) bool { return h.fresh(id, h.Now.UTC(), h.ttl()) }

// Release gives the lease back, so that another may have it at once. One that
// is not this holder's is left alone.
func (h *Holder) Release(ctx context.Context, id string) error {
	h.forget(id)
	l, err := h.Leases.Get(ctx, id)
	if err == nil && l.Holder == h.Name {
		l.Holder = ""
		l.Beat++
		err = h.Leases.Update(ctx, l)
	}
	if kind := fleet.KindOf(err); err != nil && (kind == fleet.NotFound || kind == fleet.Conflict) {
		return nil // it is not ours any more
	}
	return err
}

// ReleaseAll gives back all that this holder has, at the end of a process. ctx
// may have ended.
func (h *Holder) ReleaseAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	h.mu.Lock()
	ids := slices.Sorted(maps.Keys(h.held))
	h.mu.Unlock()
	var first error
	for _, id := range ids {
		if err := h.Release(ctx, id); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// End removes the lease of a thing that needs no more work, whoever has it.
func (h *Holder) End(ctx context.Context, id string) error {
	h.forget(id)
	return h.Leases.Delete(ctx, id)
}

func (h *Holder) fresh(id string, now time.Time, within time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	renewed, ok := h.held[id]
	return ok && now.Sub(renewed) < within
}

// took notes the outcome of a write that takes or renews. now is from before the
// write: those who look can only have seen it move later, so the holder knows
// first that it has run out.
func (h *Holder) took(id string, now time.Time, err error) (bool, error) {
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.held == nil {
			h.held = map[string]time.Time{}
		}
		h.held[id] = now
		delete(h.sight, id)
		return true, nil
	}
	h.forget(id)
	if kind := fleet.KindOf(err); kind == fleet.Conflict || kind == fleet.NotFound {
		return false, nil // another was first
	}
	return false, err
}

func (h *Holder) forget(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, id)
	delete(h.sight, id)
}

// ranOut says whether the lease of another has not moved for as long as it lasts.
func (h *Holder) ranOut(l fleet.Lease, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, l.ID)
	s, ok := h.sight[l.ID]
	if !ok || s.revision != l.Revision {
		if h.sight == nil {
			h.sight = map[string]sight{}
		}
		// Nobody asks for the leases of what is over any more. To forget a sight
		// too early only begins the wait again.
		maps.DeleteFunc(h.sight, func(_ string, s sight) bool { return now.Sub(s.looked) > 10*h.ttl() })
		s = sight{revision: l.Revision, since: now}
	}
	s.looked = now
	h.sight[l.ID] = s
	return now.Sub(s.since) >= h.ttl()
}
