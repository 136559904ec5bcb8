package elastic

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// lockPause is the mean pause between two tries for a lock that another process holds: an owner
// needs some tens of milliseconds.
const lockPause = 50 * time.Millisecond

// Exclusively holds a document as a lock among processes. Each taking and release is guarded by
// the revision that was read. A lock whose revision does not change for store.ExclusiveTTL is
// that of a process that died, and is taken over; its owner writes nothing after
// store.ExclusiveTime.
func (s *Store) Exclusively(ctx context.Context, what string, f func(context.Context) error) error {
	return s.exclusive.Do(ctx, what, func(ctx context.Context) error {
		lock, err := s.takeLock(ctx, "exclusive/"+what)
		if err != nil {
			return err
		}
		defer s.releaseLock(ctx, lock)
		// Searches must find what the previous owner has written.
		for _, index := range []string{indexPolicies, indexEnrollmentKeys, indexRollouts, indexDocuments} {
			s.c.fresh[index].noteWrite()
		}
		return f(ctx)
	})
}

// observedLock is a lock of another process, and since when its revision has not changed.
type observedLock struct {
	revision int64
	since    time.Time
}

func (s *Store) takeLock(ctx context.Context, id string) (fleet.Lease, error) {
	owner := fleet.NewID()
	for {
		l, err := s.Leases().Get(ctx, id)
		switch {
		case err != nil && fleet.KindOf(err) == fleet.NotFound:
			err = s.Leases().Create(ctx, fleet.Lease{ID: id, Owner: owner, Beat: 1})
		case err != nil:
			return l, err
		case l.Owner == owner:
			return l, nil
		case l.Owner == "" || s.lockExpired(l):
			l.Owner, l.Beat = owner, l.Beat+1
			_, err = s.Leases().Update(ctx, l)
		default:
			err = fleet.Errorf(fleet.Conflict, "another process has the lock")
		}
		if err == nil {
			continue // read its revision
		}
		if kind := fleet.KindOf(err); kind != fleet.Conflict && kind != fleet.NotFound {
			return l, err
		}
		select {
		case <-ctx.Done():
			return l, fault("wait for a lock", ctx.Err())
		case <-time.After(lockPause/2 + rand.N(lockPause)):
		}
	}
}

// lockExpired reports whether this process has seen the same revision of a lock for
// store.ExclusiveTTL. Calls for one lock do not overlap.
func (s *Store) lockExpired(l fleet.Lease) bool {
	if seen, ok := s.locks.Load(l.ID); ok && seen.(observedLock).revision == l.Revision {
		return time.Since(seen.(observedLock).since) > store.ExclusiveTTL
	}
	s.locks.Store(l.ID, observedLock{l.Revision, time.Now()})
	return false
}

// releaseLock releases a lock also if the caller has stopped waiting.
func (s *Store) releaseLock(ctx context.Context, l fleet.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	l.Owner, l.Beat = "", l.Beat+1
	_, _ = s.Leases().Update(ctx, l) // otherwise it expires
}
