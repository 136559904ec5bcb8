// Package event is the one ordered stream of what happened. The domain packages
// publish to it; server-sent events read it (webhooks and the audit trail will).
// The store keeps the order, so every replica shows every reader the same
// stream, and a reader that was away goes on where it stopped.
package event

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// PollInterval is how often the store is asked for what other replicas
	// published. Half of the second in which an operator sees what happens.
	PollInterval = 500 * time.Millisecond
	// ReadBatch bounds one read of the store.
	ReadBatch = 500
	// DefaultKeep is how many events the store keeps: some days of a busy
	// fleet, and at 300 bytes each not more than 60 MB.
	DefaultKeep = 200_000
	// TrimInterval is how often older ones are removed.
	TrimInterval = 10 * time.Minute
)

const (
	// FollowPause is how long Follow leaves between two reads: a busy fleet makes
	// a thousand events a second, which cost a read each if nobody waits for the
	// next, and nothing that follows has to be quicker.
	FollowPause = 50 * time.Millisecond
	// followRetry is how long Follow leaves the store alone that did not answer.
	followRetry = time.Second
)

// Stream publishes and reads events. Run must be running for readers to see
// what other replicas publish; nothing else depends on it.
type Stream struct {
	Store store.Events
	Log   *slog.Logger
	Now   clock.Clock
	// Keep overrides DefaultKeep.
	Keep int

	mu   sync.Mutex
	last int64         // highest sequence number known to exist
	wake chan struct{} // closed when last grows

	recent recent
}

// recentMin is how many events are kept in memory for all readers together, and twice
// as many before the older half goes, some 4 MB: those who keep up within half a second
// of a fleet's upgrade, which is nearly everybody, then cost one read of the store.
const recentMin = 10 * ReadBatch

// recent are the newest events that a reader has read, without a gap.
type recent struct {
	once   sync.Once
	turn   chan struct{} // holds one token; who has it may touch the rest
	from   int64         // what is above from and not above the last is here
	events []fleet.Event // readers have parts of it: it is appended to, and not changed
}

// after returns events behind a sequence number, which are shared: they must not be
// changed.
func (s *Stream) after(ctx context.Context, after int64) ([]fleet.Event, error) {
	c := &s.recent
	c.once.Do(func() { c.turn = make(chan struct{}, 1) })
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	last := c.from
	if n := len(c.events); n > 0 {
		last = c.events[n-1].Seq
	}
	switch {
	case after < c.from:
		return s.Store.After(ctx, after, ReadBatch) // a reader that was away
	case after > last:
		c.from, c.events, last = after, nil, after
	}
	if after == last {
		fresh, err := s.Store.After(ctx, last, ReadBatch)
		if err != nil {
			return nil, err
		}
		c.events = append(c.events, fresh...)
		if drop := len(c.events) - recentMin; drop > recentMin {
			c.from = c.events[drop-1].Seq
			c.events = slices.Clone(c.events[drop:])
		}
	}
	i, _ := slices.BinarySearchFunc(c.events, after+1, func(e fleet.Event, seq int64) int { return cmp.Compare(e.Seq, seq) })
	end := min(len(c.events), i+ReadBatch)
	return c.events[i:end:end], nil
}

// Publish appends events; At is set here where it is zero, Seq by the store. An
// event that cannot be stored is logged and lost: the change it tells of has been
// made, and readers fetch the lists anew now and then.
func (s *Stream) Publish(ctx context.Context, events ...fleet.Event) {
	if len(events) == 0 {
		return
	}
	for i := range events {
		if events[i].At.IsZero() {
			events[i].At = s.Now.UTC()
		}
	}
	// The caller may be a request that has been answered or cut off: what
	// happened has happened.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.Store.Append(ctx, events); err != nil {
		s.Log.Error("events lost", "count", len(events), "first", events[0].Type, "error", err)
		return
	}
	s.Wake()
}

// Wake wakes the readers, who then read what the store has. It is for whoever writes
// events with something else; see store.ApplyReport.
func (s *Stream) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeReaders()
}

// Data makes the data of an event.
func Data(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("event data: %v", err)) // a type that cannot be encoded is a mistake in the code
	}
	return b
}

// Run asks the store for news until ctx ends, and trims it.
func (s *Stream) Run(ctx context.Context) {
	poll := time.NewTicker(PollInterval)
	defer poll.Stop()
	trim := time.NewTicker(TrimInterval)
	defer trim.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			s.refresh(ctx)
		case <-trim.C:
			keep := s.Keep
			if keep == 0 {
				keep = DefaultKeep
			}
			if err := s.Store.Trim(ctx, keep); err != nil && ctx.Err() == nil {
				s.Log.Warn("trim events", "error", err)
			}
		}
	}
}

// refresh learns the highest sequence number and wakes readers if it has grown.
func (s *Stream) refresh(ctx context.Context) {
	_, last, err := s.Store.Bounds(ctx)
	if err != nil {
		return // the readers' own reads tell them
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last <= s.last {
		return
	}
	s.last = last
	s.wakeReaders()
}

// wakeReaders is for who holds mu.
func (s *Stream) wakeReaders() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

func (s *Stream) grown() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return s.wake
}

// Reader reads the stream from one place on.
type Reader struct {
	stream *Stream
	after  int64
}

// ErrGone says that events after the place asked for are no longer kept.
var ErrGone = fleet.Errorf(fleet.NotFound, "events after that id are no longer kept")

// Reader returns a reader of the events behind after; nil begins with what
// happens next.
func (s *Stream) Reader(ctx context.Context, after *int64) (*Reader, error) {
	first, last, err := s.Store.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	r := &Reader{stream: s, after: last}
	if after != nil {
		r.after = *after
		if *after > last || (first > 0 && *after < first-1) {
			r.after = last
			return r, ErrGone // a reader that goes on from now is still usable
		}
	}
	return r, nil
}

// Next returns the next events, waiting for at least one until ctx ends. Other readers
// have them, too: they must not be changed.
func (r *Reader) Next(ctx context.Context) ([]fleet.Event, error) {
	for {
		grown := r.stream.grown() // before the read, so that nothing falls between
		events, err := r.stream.after(ctx, r.after)
		if err != nil {
			return nil, err
		}
		if len(events) > 0 {
			r.after = events[len(events)-1].Seq
			return events, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-grown:
		}
	}
}

// Follow gives f what happens from now on until ctx ends, in order and without a
// gap; what happens within FollowPause comes together. begun hears once behind
// which Seq that is. A store that is away is waited for.
func (s *Stream) Follow(ctx context.Context, begun func(after int64), f func([]fleet.Event)) {
	var r *Reader
	for ctx.Err() == nil {
		pause := FollowPause
		if err := s.followOn(ctx, &r, begun, f); err != nil && ctx.Err() == nil {
			s.Log.Debug("events wait for the store", "error", err)
			pause = followRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// followOn opens the reader, or reads once.
func (s *Stream) followOn(ctx context.Context, r **Reader, begun func(int64), f func([]fleet.Event)) error {
	if *r == nil {
		opened, err := s.Reader(ctx, nil)
		if err != nil {
			return err
		}
		*r = opened
		begun(opened.after)
	}
	events, err := (*r).Next(ctx) // a reader goes on where it was, also after an error
	if err == nil {
		f(events)
	}
	return err
}
