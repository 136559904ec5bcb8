// Package event is the ordered stream of events. The domain packages publish to it;
// server-sent events, webhooks, metrics and the synchronization of packages read it. The
// store keeps the order, so every server shows every reader the same stream, and a reader
// that was away resumes where it stopped.
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
	// PollInterval is how often the store is queried for events that other servers
	// published: half of the second within which an operator should see a change.
	PollInterval = 500 * time.Millisecond
	// ReadBatch bounds one read of the store.
	ReadBatch = 500
)

const (
	// FollowPause is the pause between two reads of Follow. A busy fleet produces a
	// thousand events a second, which would cost a read each without a pause, and no
	// follower needs them sooner.
	FollowPause = 50 * time.Millisecond
	// followRetry is the pause after the store did not answer.
	followRetry = time.Second
)

// Stream publishes and reads events. Readers see events of other servers only while Run
// is running; nothing else depends on it.
type Stream struct {
	Store store.Events
	Log   *slog.Logger
	Now   clock.Clock

	mu   sync.Mutex
	last int64         // highest sequence number known to exist
	wake chan struct{} // closed when last grows

	recent recent
}

// recentMin is how many events are cached for all readers together; at twice as many,
// some 4 MB, the older half is dropped. Readers that keep up within half a second of a
// fleet's upgrade, which is nearly all, then share one read of the store.
const recentMin = 10 * ReadBatch

// recent caches the newest events that any reader has read, without a gap.
type recent struct {
	once   sync.Once
	lock   chan struct{} // a mutex that can be awaited with a context; guards the rest
	from   int64         // the cache holds the events above from, up to the last in events
	events []fleet.Event // readers hold slices of it: only appended to, never changed
}

// after returns events after a sequence number. They are shared and must not be
// changed.
func (s *Stream) after(ctx context.Context, after int64) ([]fleet.Event, error) {
	c := &s.recent
	c.once.Do(func() { c.lock = make(chan struct{}, 1) })
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	last := c.from
	if n := len(c.events); n > 0 {
		last = c.events[n-1].Seq
	}
	switch {
	case after < c.from:
		return s.Store.After(ctx, after, ReadBatch) // the reader was away
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

// Publish appends events. It sets At where it is zero; the store sets Seq. An event
// that cannot be stored is logged and lost: the change it describes has been made, and
// clients reload their lists from time to time.
func (s *Stream) Publish(ctx context.Context, events ...fleet.Event) {
	if len(events) == 0 {
		return
	}
	for i := range events {
		if events[i].At.IsZero() {
			events[i].At = s.Now.UTC()
		}
	}
	// The caller may be a request that was answered or cancelled, but the change it
	// made persists.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := s.Store.Append(ctx, events); err != nil {
		s.Log.Error("events lost", "count", len(events), "first", events[0].Type, "error", err)
		return
	}
	s.Wake()
}

// Wake wakes the readers, which then read the store. Callers that append events by
// another method use it; see store.ApplyReport.
func (s *Stream) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeReaders()
}

// Data encodes the data of an event.
func Data(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("event data: %v", err)) // a type that cannot be encoded is a programming error
	}
	return b
}

// Run polls the store for events of other servers until ctx ends.
func (s *Stream) Run(ctx context.Context) {
	poll := time.NewTicker(PollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			s.refresh(ctx)
		}
	}
}

// refresh reads the highest sequence number and wakes readers if it has grown.
func (s *Stream) refresh(ctx context.Context) {
	_, last, err := s.Store.Bounds(ctx)
	if err != nil {
		return // readers get the error from their own reads
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last <= s.last {
		return
	}
	s.last = last
	s.wakeReaders()
}

// wakeReaders wakes all readers. The caller holds mu.
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

// Reader reads the stream from a position on.
type Reader struct {
	stream *Stream
	after  int64
}

// ErrGone means that the stream no longer has the events after the requested position.
var ErrGone = fleet.Errorf(fleet.NotFound, "events after that id are no longer kept")

// Reader returns a reader of the events after a sequence number; nil begins with the
// next event. With ErrGone the reader is usable too, and begins with the next event.
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
			return r, ErrGone
		}
	}
	return r, nil
}

// Next returns the next events. It waits for at least one until ctx ends. The events
// are shared with other readers and must not be changed.
func (r *Reader) Next(ctx context.Context) ([]fleet.Event, error) {
	for {
		grown := r.stream.grown() // before the read, so that no event is missed
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

// Follow calls f with all events from now on until ctx ends, in order and without a
// gap, in batches of FollowPause. It calls begun once, with the sequence number after
// which the events begin. While the store is away, Follow retries.
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

// followOn opens the reader and reads once.
func (s *Stream) followOn(ctx context.Context, r **Reader, begun func(int64), f func([]fleet.Event)) error {
	if *r == nil {
		opened, err := s.Reader(ctx, nil)
		if err != nil {
			return err
		}
		*r = opened
		begun(opened.after)
	}
	events, err := (*r).Next(ctx) // the reader keeps its position after an error
	if err == nil {
		f(events)
	}
	return err
}
