package admin

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// countsFreshFor is how long counts are cached. Every open browser requests them every
	// few seconds, and a delay this short goes unnoticed.
	countsFreshFor = 2 * time.Second
	// maxCounts bounds the filters whose counts are cached: more than operators use at a
	// time.
	maxCounts = 256
	// countTimeout bounds a count. It is shared by requests, so the end of one must not
	// cancel it.
	countTimeout = 30 * time.Second
)

// cache holds counts for countsFreshFor, and counts once for concurrent requests. The counts
// are shared: nobody changes them.
type cache[T any] struct {
	flights singleflight.Group
	mu      sync.Mutex
	cached  map[string]cached[T]
}

type cached[T any] struct {
	counts  T
	started time.Time
}

// within reports whether the counts are at most this old.
func (c cached[T]) within(limit time.Duration, now time.Time) bool {
	age := now.Sub(c.started)
	return 0 <= age && age < limit
}

// get returns counts that are at most countsFreshFor old.
func (s *cache[T]) get(ctx context.Context, key string, now time.Time, count func(context.Context, time.Time) (T, error)) (T, error) {
	c, ok := s.look(key)
	if ok && c.within(countsFreshFor, now) {
		return c.counts, nil
	}
	return wait[T](ctx, s.start(ctx, key, now, count))
}

func (s *cache[T]) look(key string) (cached[T], bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.cached[key]
	return c, ok
}

// start counts, unless a count of the key is under way.
func (s *cache[T]) start(ctx context.Context, key string, now time.Time, count func(context.Context, time.Time) (T, error)) <-chan singleflight.Result {
	return s.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTimeout)
		defer cancel()
		counts, err := count(ctx, now)
		if err == nil {
			s.store(key, cached[T]{counts, now})
		}
		return counts, err
	})
}

func wait[T any](ctx context.Context, done <-chan singleflight.Result) (T, error) {
	select {
	case r := <-done:
		counts, _ := r.Val.(T)
		return counts, r.Err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}

func (s *cache[T]) store(key string, c cached[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, count := range s.cached {
		if !count.within(countsFreshFor, c.started) {
			delete(s.cached, other)
		}
	}
	if s.cached == nil || len(s.cached) >= maxCounts {
		s.cached = map[string]cached[T]{}
	}
	s.cached[key] = c
}
