package event_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// process returns the stream of a server that uses the database at path.
func process(t *testing.T, path string) *event.Stream {
	t.Helper()
	return streamOf(t, sqlitetest.Open(t, path))
}

// streamOf returns the stream of a server that uses the store.
func streamOf(t *testing.T, s store.Store) *event.Stream {
	t.Helper()
	stream := &event.Stream{Store: s.Events(), Log: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); stream.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return stream
}

func dbPath(t *testing.T) string { return filepath.Join(t.TempDir(), "muster.db") }

func publish(t *testing.T, s *event.Stream, subjects ...string) {
	t.Helper()
	for _, subject := range subjects {
		s.Publish(t.Context(), fleet.Event{Type: fleet.EventAgentStatus, Subject: subject})
	}
}

func reader(t *testing.T, s *event.Stream, after *int64) *event.Reader {
	t.Helper()
	r, err := s.Reader(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantEvents reads until the events with these subjects have arrived, in order, and
// returns the last Seq.
func wantEvents(t *testing.T, r *event.Reader, subjects ...string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var last int64
	for len(subjects) > 0 {
		events, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("while waiting for %v: %v", subjects, err)
		}
		for _, e := range events {
			if len(subjects) == 0 || e.Subject != subjects[0] || e.Seq <= last || e.At.IsZero() {
				t.Fatalf("event is %+v after %d, want one about %v", e, last, subjects)
			}
			last, subjects = e.Seq, subjects[1:]
		}
	}
	return last
}

func TestReadersSeeEventsInOrder(t *testing.T) {
	s := process(t, dbPath(t))
	publish(t, s, "before")
	one, two := reader(t, s, nil), reader(t, s, nil)
	publish(t, s, "a", "b")
	seq := wantEvents(t, one, "a", "b")
	publish(t, s, "c")
	wantEvents(t, one, "c")
	wantEvents(t, two, "a", "b", "c")

	// A third reader was away since b.
	wantEvents(t, reader(t, s, &seq), "c")
	zero := int64(0)
	wantEvents(t, reader(t, s, &zero), "before", "a", "b", "c")
}

func TestNextWaitsForEvents(t *testing.T) {
	s := process(t, dbPath(t))
	r := reader(t, s, nil)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if events, err := r.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, %v of an empty stream", events, err)
	}
	got := make(chan error, 1)
	go func() {
		events, err := r.Next(t.Context())
		if err == nil && (len(events) != 1 || events[0].Subject != "a") {
			err = fmt.Errorf("events are %+v", events)
		}
		got <- err
	}()
	publish(t, s, "a")
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the reader was not woken within 20 s")
	}
}

func TestNextReturnsMoreThanOneBatch(t *testing.T) {
	s := process(t, dbPath(t))
	r := reader(t, s, nil)
	var events []fleet.Event
	var subjects []string
	for i := range event.ReadBatch + 10 {
		subjects = append(subjects, fmt.Sprint("agent-", i))
		events = append(events, fleet.Event{Type: fleet.EventAgentStatus, Subject: subjects[i]})
	}
	s.Publish(t.Context(), events...)
	wantEvents(t, r, subjects...)
}

func TestReaderSeesEventsOfAnotherServer(t *testing.T) {
	s := sqlitetest.Open(t, dbPath(t))
	here, there := streamOf(t, s), streamOf(t, s)
	r := reader(t, here, nil)
	publish(t, there, "a")
	publish(t, here, "b")
	publish(t, there, "c")
	wantEvents(t, r, "a", "b", "c")
}

func TestReaderOfTrimmedEventsGetsErrGone(t *testing.T) {
	s := process(t, dbPath(t))
	publish(t, s, "a", "b", "c", "d")
	if err := s.Store.Trim(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after int64
		gone  bool
	}{{0, true}, {1, true}, {2, false}, {3, false}, {4, false}, {99, true}} {
		r, err := s.Reader(t.Context(), &c.after)
		if errors.Is(err, event.ErrGone) != c.gone || (!c.gone && err != nil) {
			t.Errorf("after %d: error %v, want gone %t", c.after, err, c.gone)
		}
		if c.gone {
			publish(t, s, "new")
			wantEvents(t, r, "new") // the reader continues from there
			if err := s.Store.Trim(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestPublishOutlivesRequest(t *testing.T) {
	s := process(t, dbPath(t))
	r := reader(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Publish(ctx, fleet.Event{Type: fleet.EventAgentStatus, Subject: "a"})
	wantEvents(t, r, "a")
}

func TestPublishKeepsGivenTime(t *testing.T) {
	s := process(t, dbPath(t))
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	s.Now = func() time.Time { return now.In(time.FixedZone("CET", 3600)) }
	r := reader(t, s, nil)
	s.Publish(t.Context(), fleet.Event{Subject: "a"}, fleet.Event{Subject: "b", At: now.Add(-time.Hour)})
	events, err := r.Next(t.Context())
	if err != nil || len(events) != 2 || !events[0].At.Equal(now) || !events[1].At.Equal(now.Add(-time.Hour)) {
		t.Errorf("events are %+v, %v", events, err)
	}
}

// brokenEvents is a store that accepts no events.
type brokenEvents struct{ store.Events }

func (brokenEvents) Append(context.Context, []fleet.Event) error {
	return errors.New("the store is away")
}

func TestPublishSurvivesStoreError(t *testing.T) {
	s := &event.Stream{Store: brokenEvents{}, Log: slog.New(slog.DiscardHandler)}
	s.Publish(t.Context(), fleet.Event{Subject: "a"}) // the change it describes has been made
	s.Publish(t.Context())                            // no events
}

func TestReadersShareCachedEvents(t *testing.T) {
	s := process(t, dbPath(t))
	// More events than the cache holds, published and read alternately, by readers that
	// keep up, that lag, and that begin in the middle.
	type follower struct {
		*event.Reader
		every int // reads in every nth round
		next  int
	}
	const turns, each = 25, 100
	followers := []*follower{{Reader: reader(t, s, nil), every: 1}, {Reader: reader(t, s, nil), every: 7}, {Reader: reader(t, s, nil), every: 24}}
	read := func(f *follower, until int) {
		t.Helper()
		for f.next < until {
			events, err := f.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if want := fmt.Sprint("agent-", f.next); e.Subject != want {
					t.Fatalf("a reader was given %s, want %s", e.Subject, want)
				}
				f.next++
			}
		}
	}
	for turn := range turns {
		batch := make([]fleet.Event, each)
		for i := range batch {
			batch[i] = fleet.Event{Type: fleet.EventAgentStatus, Subject: fmt.Sprint("agent-", turn*each+i)}
		}
		s.Publish(t.Context(), batch...)
		if turn == turns/2 {
			followers = append(followers, &follower{Reader: reader(t, s, nil), every: 3, next: (turn + 1) * each})
		}
		for _, f := range followers {
			if turn%f.every == 0 {
				read(f, (turn+1)*each)
			}
		}
	}
	for _, f := range followers {
		read(f, turns*each)
	}
}

// awayEvents is a store whose reads can fail.
type awayEvents struct {
	store.Events
	away atomic.Bool
}

func (a *awayEvents) Bounds(ctx context.Context) (first, last int64, err error) {
	if a.away.Load() {
		return 0, 0, errors.New("the store is away")
	}
	return a.Events.Bounds(ctx)
}

func (a *awayEvents) After(ctx context.Context, after int64, limit int) ([]fleet.Event, error) {
	if a.away.Load() {
		return nil, errors.New("the store is away")
	}
	return a.Events.After(ctx, after, limit)
}

func TestFollowMissesNothingDuringOutage(t *testing.T) {
	s := process(t, dbPath(t))
	publish(t, s, "before")
	away := &awayEvents{Events: s.Store}
	away.away.Store(true)
	following := &event.Stream{Store: away, Log: s.Log}
	begun, heard := make(chan int64, 1), make(chan string, 10)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		following.Follow(ctx, func(after int64) { begun <- after }, func(events []fleet.Event) {
			for _, e := range events {
				heard <- e.Subject
			}
		})
	}()
	select {
	case after := <-begun:
		t.Errorf("it began after %d though the store was away", after)
	case <-time.After(50 * time.Millisecond):
	}
	away.away.Store(false)
	if after := <-begun; after != 1 {
		t.Errorf("it began after %d, want 1", after)
	}
	away.away.Store(true)
	publish(t, following, "a", "b") // published by the same server: the follower wakes and cannot read
	away.away.Store(false)
	publish(t, following, "c")
	for _, want := range []string{"a", "b", "c"} {
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("received %s, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("did not receive %s", want)
		}
	}
	stop()
	<-done
}
