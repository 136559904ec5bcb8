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

	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// process is one server on the file at path.
func process(t *testing.T, path string) *event.Stream {
	t.Helper()
	return streamOf(t, sqlitetest.Open(t, path))
}

// streamOf is one server's stream of a store.
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

func place(t *testing.T) string { return filepath.Join(t.TempDir(), "muster.db") }

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

// wants reads until the subjects have come, in order, and returns the last Seq.
func wants(t *testing.T, r *event.Reader, subjects ...string) int64 {
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
				t.Fatalf("event is %+v behind %d, want one about %v", e, last, subjects)
			}
			last, subjects = e.Seq, subjects[1:]
		}
	}
	return last
}

func TestReadersSeeWhatHappensInOrder(t *testing.T) {
	s := process(t, place(t))
	publish(t, s, "before")
	one, two := reader(t, s, nil), reader(t, s, nil)
	publish(t, s, "a", "b")
	seq := wants(t, one, "a", "b")
	publish(t, s, "c")
	wants(t, one, "c")
	wants(t, two, "a", "b", "c")

	// A third was away since b.
	wants(t, reader(t, s, &seq), "c")
	zero := int64(0)
	wants(t, reader(t, s, &zero), "before", "a", "b", "c")
}

func TestAReaderWaits(t *testing.T) {
	s := process(t, place(t))
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

func TestMoreEventsThanOneRead(t *testing.T) {
	s := process(t, place(t))
	r := reader(t, s, nil)
	var events []fleet.Event
	var subjects []string
	for i := range event.ReadBatch + 10 {
		subjects = append(subjects, fmt.Sprint("agent-", i))
		events = append(events, fleet.Event{Type: fleet.EventAgentStatus, Subject: subjects[i]})
	}
	s.Publish(t.Context(), events...)
	wants(t, r, subjects...)
}

func TestEventsOfAnotherServerAreSeen(t *testing.T) {
	s := sqlitetest.Open(t, place(t))
	here, there := streamOf(t, s), streamOf(t, s)
	r := reader(t, here, nil)
	publish(t, there, "a")
	publish(t, here, "b")
	publish(t, there, "c")
	wants(t, r, "a", "b", "c")
}

func TestWhatIsNoLongerKeptIsSaidToBeGone(t *testing.T) {
	s := process(t, place(t))
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
			wants(t, r, "new") // and it can go on from there
			if err := s.Store.Trim(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAnEventOutlivesTheRequestThatMadeIt(t *testing.T) {
	s := process(t, place(t))
	r := reader(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Publish(ctx, fleet.Event{Type: fleet.EventAgentStatus, Subject: "a"})
	wants(t, r, "a")
}

func TestTheTimeGivenIsKept(t *testing.T) {
	s := process(t, place(t))
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	s.Now = func() time.Time { return now.In(time.FixedZone("CET", 3600)) }
	r := reader(t, s, nil)
	s.Publish(t.Context(), fleet.Event{Subject: "a"}, fleet.Event{Subject: "b", At: now.Add(-time.Hour)})
	events, err := r.Next(t.Context())
	if err != nil || len(events) != 2 || !events[0].At.Equal(now) || !events[1].At.Equal(now.Add(-time.Hour)) {
		t.Errorf("events are %+v, %v", events, err)
	}
}

// brokenEvents is a store that takes no events.
type brokenEvents struct{ store.Events }

func (brokenEvents) Append(context.Context, []fleet.Event) error {
	return errors.New("the store is away")
}

func TestAnEventThatCannotBeStoredIsLost(t *testing.T) {
	s := &event.Stream{Store: brokenEvents{}, Log: slog.New(slog.DiscardHandler)}
	s.Publish(t.Context(), fleet.Event{Subject: "a"}) // what it tells of has been made
	s.Publish(t.Context())                            // nothing at all
}

func TestReadersOfOneProcessShareWhatTheyRead(t *testing.T) {
	s := process(t, place(t))
	// More than is kept in memory, published and read in turns, by readers that
	// keep up, that lag behind, and that begin in the middle.
	type follower struct {
		*event.Reader
		every int // reads in one turn of so many
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

// awayEvents is a store that can be away for reads.
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

func TestWhoFollowsMissesNothingWhileTheStoreIsAway(t *testing.T) {
	s := process(t, place(t))
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
		t.Errorf("it began behind %d though the store was away", after)
	case <-time.After(50 * time.Millisecond):
	}
	away.away.Store(false)
	if after := <-begun; after != 1 {
		t.Errorf("it began behind %d, want 1", after)
	}
	away.away.Store(true)
	publish(t, following, "a", "b") // its own process: it is woken, and cannot read
	away.away.Store(false)
	publish(t, following, "c")
	for _, want := range []string{"a", "b", "c"} {
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("heard of %s, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("has not heard of %s", want)
		}
	}
	stop()
	<-done
}
