package action_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// feed runs a Feed and returns the agents that it wakes.
func feed(t *testing.T, actions store.Actions) (*action.Feed, <-chan []string) {
	t.Helper()
	woken := make(chan []string, 1_000)
	f, err := action.NewFeed(t.Context(), actions, func(ids ...string) { woken <- slices.Clone(ids) }, &storehealth.Monitor{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return f, woken
}

func wantWoken(t *testing.T, woken <-chan []string, ids ...string) {
	t.Helper()
	select {
	case got := <-woken:
		if !slices.Equal(got, ids) {
			t.Fatalf("woken are %v, want %v", got, ids)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("nobody was woken within 20 s, want %v", ids)
	}
}

func TestFeedWakesForActionsOfAnyServer(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.upgrade("a") // before the feed: each check-in finds it itself
	f, woken := feed(t, w.store.Actions())
	w.service.Feed = f
	w.upgrade("b")
	wantWoken(t, woken, "b")

	// Another server has the same store, and signals only its own feed.
	other := w.serve(w.store.Store)
	if _, err := other.Upgrade(t.Context(), order("1.1.0", "c")); err != nil {
		t.Fatal(err)
	}
	wantWoken(t, woken, "c")
}

// awayActions is a store that does not answer reads for a while.
type awayActions struct {
	store.Actions
	away  atomic.Bool
	tries atomic.Int32
}

func (a *awayActions) After(ctx context.Context, after int64, limit int) ([]fleet.Action, error) {
	a.tries.Add(1)
	if a.away.Load() {
		return nil, errAway
	}
	return a.Actions.After(ctx, after, limit)
}

func TestFeedFindsActionsOfAnOutageAfterIt(t *testing.T) {
	w := newWorld(t)
	actions := &awayActions{Actions: w.store.Actions()}
	f, woken := feed(t, actions)
	actions.away.Store(true)
	const n = 250 // more than one batch
	for i := range n {
		if _, err := w.store.Actions().Create(t.Context(), fleet.Action{ID: fleet.NewID(), Agents: []string{string(rune('a' + i%26))}}); err != nil {
			t.Fatal(err)
		}
	}
	f.Signal()
	for deadline := time.Now().Add(20 * time.Second); actions.tries.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the feed has not asked within 20 s")
		}
	}
	actions.away.Store(false)
	for i := range n {
		wantWoken(t, woken, string(rune('a'+i%26)))
	}
}
