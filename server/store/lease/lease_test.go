package lease_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

const thing = "rollout/r1"

// bubble runs f in virtual time, with a store of its own.
func bubble(t *testing.T, f func(t *testing.T, leases store.Collection[fleet.Lease])) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, s.Leases())
	})
}

func owns(t *testing.T, h *lease.Owner, want bool) {
	t.Helper()
	got, err := h.Take(t.Context(), thing)
	if err != nil {
		t.Fatal(err)
	}
	if got != want || h.Owns(thing) != want {
		t.Fatalf("%s owns it: %v (Owns: %v), want %v", h.Name, got, h.Owns(thing), want)
	}
}

func TestOneHolderAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, leases store.Collection[fleet.Lease]) {
		a, b := &lease.Owner{Leases: leases, Name: "a"}, &lease.Owner{Leases: leases, Name: "b"}
		owns(t, a, true)
		for range 100 { // a minute and a half of calls, as from a loop
			time.Sleep(900 * time.Millisecond)
			owns(t, a, true)
			owns(t, b, false)
		}
		l, err := leases.Get(t.Context(), thing)
		if err != nil || l.Beat < 30 || l.Beat > 50 {
			t.Errorf("the lease is %+v, %v: want a renewal every two seconds or so, not at every call", l, err)
		}
	})
}

func TestReleasedLeaseIsFreeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, leases store.Collection[fleet.Lease]) {
		a, b := &lease.Owner{Leases: leases, Name: "a"}, &lease.Owner{Leases: leases, Name: "b"}
		owns(t, a, true)
		owns(t, b, false)
		ended, cancel := context.WithCancel(t.Context())
		cancel() // as at shutdown
		if err := a.ReleaseAll(ended); err != nil {
			t.Fatal(err)
		}
		owns(t, b, true)
		if err := a.Release(t.Context(), thing); err != nil { // b owns it now
			t.Fatal(err)
		}
		owns(t, a, false)
		owns(t, b, true)
	})
}

func TestLeaseOfDeadHolderIsTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, leases store.Collection[fleet.Lease]) {
		const look = time.Second
		a, b := &lease.Owner{Leases: leases, Name: "a"}, &lease.Owner{Leases: leases, Name: "b"}
		owns(t, a, true)
		died := time.Now()
		for {
			got, err := b.Take(t.Context(), thing)
			if err != nil {
				t.Fatal(err)
			}
			if got {
				break
			}
			if a.Owns(thing) != (time.Since(died) < lease.DefaultTTL) {
				t.Fatalf("%v after its last renewal Owns of a is %v", time.Since(died), a.Owns(thing))
			}
			time.Sleep(look)
		}
		if took := time.Since(died); took < lease.DefaultTTL || took > lease.DefaultTTL+look {
			t.Errorf("taken over after %v, want %v and at most one interval", took, lease.DefaultTTL)
		}
		owns(t, a, false) // a resumes, and knows at once
	})
}

// Clocks may be hours apart, and one of them may jump by a day: each owner measures by
// its own.
func TestClocksNeedNotAgree(t *testing.T) {
	bubble(t, func(t *testing.T, leases store.Collection[fleet.Lease]) {
		skewed := func(by time.Duration) clock.Clock { return func() time.Time { return time.Now().Add(by) } }
		a := &lease.Owner{Leases: leases, Name: "a", Now: skewed(-5 * time.Hour)}
		b := &lease.Owner{Leases: leases, Name: "b", Now: skewed(24 * time.Hour)}
		owns(t, a, true)
		for range 20 {
			time.Sleep(time.Second)
			owns(t, b, false)
			owns(t, a, true)
		}
		owns(t, b, false) // observes the last renewal
		time.Sleep(lease.DefaultTTL)
		owns(t, b, true)
		owns(t, a, false)
	})
}

func TestEndDeletesLease(t *testing.T) {
	bubble(t, func(t *testing.T, leases store.Collection[fleet.Lease]) {
		a := &lease.Owner{Leases: leases, Name: "a"}
		owns(t, a, true)
		if err := a.End(t.Context(), thing); err != nil {
			t.Fatal(err)
		}
		if _, err := leases.Get(t.Context(), thing); fleet.KindOf(err) != fleet.NotFound || a.Owns(thing) {
			t.Errorf("after the end there is a lease (%v), owned: %v", err, a.Owns(thing))
		}
	})
}

// flaky fails on demand, before or after the effect.
type flaky struct {
	store.Collection[fleet.Lease]
	before, after bool
}

func (f *flaky) fault(do func() error) error {
	away := fleet.Errorf(fleet.Unavailable, "the store is away")
	if f.before {
		return away
	}
	if err := do(); err != nil || !f.after {
		return err
	}
	return away
}

func (f *flaky) Update(ctx context.Context, l fleet.Lease) (rev int64, err error) {
	err = f.fault(func() (err error) { rev, err = f.Collection.Update(ctx, l); return err })
	return rev, err
}

func (f *flaky) Create(ctx context.Context, l fleet.Lease) error {
	return f.fault(func() error { return f.Collection.Create(ctx, l) })
}

func TestLeaseSurvivesStoreErrors(t *testing.T) {
	bubble(t, func(t *testing.T, leases store.Collection[fleet.Lease]) {
		f := &flaky{Collection: leases, after: true}
		a, b := &lease.Owner{Leases: f, Name: "a"}, &lease.Owner{Leases: leases, Name: "b"}
		if got, err := a.Take(t.Context(), thing); got || fleet.KindOf(err) != fleet.Unavailable {
			t.Fatalf("owned: %v, %v", got, err)
		}
		f.after = false
		owns(t, a, true) // the write had its effect although it returned an error
		time.Sleep(lease.DefaultRenew)
		f.before = true
		if got, err := a.Take(t.Context(), thing); got || fleet.KindOf(err) != fleet.Unavailable {
			t.Fatalf("owned: %v, %v", got, err)
		}
		f.before = false
		owns(t, a, true)
		owns(t, b, false)
	})
}

// Whatever owners do, and whichever die for how long, no two of them consider
// themselves owners at the same time.
func TestNoTwoHoldersConcurrently(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leases := &memory{}
		now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
		owners := make([]*lease.Owner, 3)
		for i := range owners {
			skew := time.Duration(rapid.IntRange(-1000, 1000).Draw(t, "skew")) * time.Minute
			owners[i] = &lease.Owner{Leases: leases, Name: fmt.Sprint("h", i), Now: func() time.Time { return now.Add(skew) }}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			h := owners[rapid.IntRange(0, len(owners)-1).Draw(t, "owner")]
			var err error
			if rapid.IntRange(0, 9).Draw(t, "release") == 0 {
				err = h.Release(context.Background(), thing)
			} else {
				_, err = h.Take(context.Background(), thing)
			}
			if err != nil {
				t.Fatal(err)
			}
			thinks := 0
			for _, h := range owners {
				if h.Owns(thing) {
					thinks++
				}
			}
			if thinks > 1 {
				t.Fatalf("%d consider themselves owners", thinks)
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "ms")) * time.Millisecond)
		}
	})
}

// memory is a collection of leases in memory, with the rules of a store.
type memory struct {
	store.Collection[fleet.Lease]

	mu  sync.Mutex
	all map[string]fleet.Lease
}

func (m *memory) Create(_ context.Context, l fleet.Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.all[l.ID]; ok {
		return fleet.Errorf(fleet.Conflict, "exists")
	}
	if m.all == nil {
		m.all = map[string]fleet.Lease{}
	}
	l.Revision = 1
	m.all[l.ID] = l
	return nil
}

func (m *memory) Get(_ context.Context, id string) (fleet.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.all[id]
	if !ok {
		return l, fleet.Errorf(fleet.NotFound, "missing")
	}
	return l, nil
}

func (m *memory) Update(_ context.Context, l fleet.Lease) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[l.ID].Revision != l.Revision {
		return 0, fleet.Errorf(fleet.Conflict, "changed")
	}
	l.Revision++
	m.all[l.ID] = l
	return l.Revision, nil
}
