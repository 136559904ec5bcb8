package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// agents calls before ahead of each Update, to let another writer change the agent first.
type agents struct {
	store.Agents
	before func(try int) error
	tries  int
}

func (a *agents) Update(ctx context.Context, v fleet.Agent) (int64, error) {
	a.tries++
	if a.before != nil {
		if err := a.before(a.tries); err != nil {
			return 0, err
		}
	}
	return a.Agents.Update(ctx, v)
}

func open(t *testing.T) *agents {
	t.Helper()
	s := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	if err := s.Agents().Create(t.Context(), fleet.Agent{ID: "a", Version: "1.0.0"}); err != nil {
		t.Fatal(err)
	}
	return &agents{Agents: s.Agents()}
}

// countUp updates the agent as another writer would.
func (a *agents) countUp(t *testing.T) {
	t.Helper()
	v, err := a.Get(t.Context(), "a")
	if err == nil {
		v.PolicyRev++
		_, err = a.Agents.Update(t.Context(), v)
	}
	if err != nil {
		t.Error(err)
	}
}

func setVersion(a *fleet.Agent) bool { a.Version = "2.0.0"; return true }

func TestUpdateAgentRetriesAfterAConcurrentChange(t *testing.T) {
	a := open(t)
	a.before = func(try int) error {
		if try <= 3 {
			a.countUp(t)
		}
		return nil
	}
	got, err := store.UpdateAgent(t.Context(), a, "a", setVersion)
	if err != nil || a.tries != 4 {
		t.Fatalf("after %d tries: %v", a.tries, err)
	}
	stored, err := a.Get(t.Context(), "a")
	if err != nil || stored.Version != "2.0.0" || stored.PolicyRev != 3 || got.PolicyRev != 3 || got.Version != "2.0.0" || got.Revision != stored.Revision {
		t.Fatalf("returned %+v, stored is %+v: %v", got, stored, err)
	}
}

func TestUpdateAgentWithoutAChangeWritesNothing(t *testing.T) {
	a := open(t)
	got, err := store.UpdateAgent(t.Context(), a, "a", func(v *fleet.Agent) bool { return v.Version == "9.9.9" })
	if err != nil || a.tries != 0 || got.ID != "a" || got.Revision == 0 {
		t.Fatalf("returned %+v after %d writes: %v", got, a.tries, err)
	}
}

func TestUpdateAgentGivesUpAfterRepeatedConflicts(t *testing.T) {
	a := open(t)
	a.before = func(int) error { a.countUp(t); return nil }
	got, err := store.UpdateAgent(t.Context(), a, "a", setVersion)
	if fleet.KindOf(err) != fleet.Conflict || got.ID != "" {
		t.Fatalf("returned %+v: %v", got, err)
	}
	if a.tries < 2 || a.tries > 100 {
		t.Fatalf("tried %d times", a.tries)
	}
}

func TestUpdateAgentDoesNotRetryOtherErrors(t *testing.T) {
	a := open(t)
	if _, err := store.UpdateAgent(t.Context(), a, "nobody", setVersion); fleet.KindOf(err) != fleet.NotFound || a.tries != 0 {
		t.Fatalf("a missing agent: %v after %d writes", err, a.tries)
	}
	down := errors.New("down")
	a.before = func(int) error { return down }
	if _, err := store.UpdateAgent(t.Context(), a, "a", setVersion); !errors.Is(err, down) || a.tries != 1 {
		t.Fatalf("a store that is down: %v after %d writes", err, a.tries)
	}
}

func TestConcurrentUpdatesLoseNoChange(t *testing.T) {
	a := open(t)
	// changeTries attempts are enough for five writers: an attempt fails only because of
	// one of the other four, and each of them writes once.
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if _, err := store.UpdateAgent(t.Context(), a.Agents, "a", func(v *fleet.Agent) bool { v.PolicyRev++; return true }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if v, err := a.Get(t.Context(), "a"); err != nil || v.PolicyRev != 5 {
		t.Fatalf("%d of 5 changes are there: %v", v.PolicyRev, err)
	}
}
