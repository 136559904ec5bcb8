package policy_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// policyList is a store of policies in memory.
type policyList struct {
	store.Collection[fleet.Policy]
	list []fleet.Policy
}

func (l *policyList) List(context.Context, int, int) ([]fleet.Policy, int, error) {
	return slices.Clone(l.list), len(l.list), nil
}

// A change for a whole fleet is spread over some seconds, and a change for a few agents
// passes it.
func TestFeedPacesWakesOfLargePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 100_000
		list := &policyList{list: []fleet.Policy{{ID: "large", PolicyRev: 1}, {ID: "small", PolicyRev: 1}, {ID: "same", PolicyRev: 1}}}
		var mu sync.Mutex
		woken := map[string]int{}
		parked := func(f func(string, fleet.PolicyAt)) {
			for i := range agents {
				f(fmt.Sprint("large-", i), fleet.PolicyAt{ID: "large", Revision: 1})
			}
			f("small", fleet.PolicyAt{ID: "small", Revision: 1})
			f("same", fleet.PolicyAt{ID: "same", Revision: 1})
			f("ahead", fleet.PolicyAt{ID: "large", Revision: 2})
		}
		wake := func(ids ...string) {
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				woken[id]++
			}
		}
		at := func(d time.Duration) int {
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return len(woken)
		}
		f, err := policy.NewFeed(t.Context(), list, parked, wake, &storehealth.Monitor{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go f.Run(ctx)
		if n := at(time.Minute); n != 0 {
			t.Fatalf("%d agents were woken without a change", n)
		}
		list.list = slices.Clone(list.list)
		list.list[0].PolicyRev = 2
		f.Signal()
		first := at(time.Second + time.Millisecond)
		if first < 4_000 || first > 6_000 {
			t.Errorf("%d agents were woken in the first second", first)
		}
		list.list = slices.Clone(list.list)
		list.list[1].PolicyRev = 2
		f.Signal()
		at(time.Millisecond)
		mu.Lock()
		if woken["small"] != 1 {
			t.Error("the change of the small policy waits for the large one")
		}
		mu.Unlock()
		if n := at(20 * time.Second); n != agents+1 || woken["same"]+woken["ahead"] != 0 {
			t.Errorf("%d agents were woken in the end, want %d", n, agents+1)
		}
		stop()
		synctest.Wait()
	})
}

// Policies that another server changed are noticed too.
func TestFeedNoticesChangesOfOtherServers(t *testing.T) {
	s := sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))
	if err := s.Policies().Create(t.Context(), fleet.Policy{ID: "p", PolicyRev: 3}); err != nil {
		t.Fatal(err)
	}
	woken := make(chan string, 1)
	f, err := policy.NewFeed(t.Context(), s.Policies(), func(f func(string, fleet.PolicyAt)) { f("a", fleet.PolicyAt{ID: "p", Revision: 3}) },
		func(ids ...string) { woken <- ids[0] }, &storehealth.Monitor{}, slog.New(slog.DiscardHandler))
	if err != nil || f.Newest("p") != 3 || f.Newest("unknown") != 0 {
		t.Fatalf("the feed is at %d, %v", f.Newest("p"), err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	defer func() { stop(); <-done }()
	p, err := s.Policies().Get(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	p.PolicyRev = 4
	if _, err := s.Policies().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	select {
	case id := <-woken:
		if id != "a" || f.Newest("p") != 4 {
			t.Errorf("agent %s was woken, revision %d is known", id, f.Newest("p"))
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nobody was woken within 20 s")
	}
}
