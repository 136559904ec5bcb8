// Package cache holds for a moment what every open browser asks for every few seconds, and reads
// it once for concurrent requests.
package cache

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// freshFor is how long an answer is given again: a delay this short goes unnoticed.
	freshFor = 2 * time.Second
	// defaultMax bounds the answers of a cache of counts: more filters than operators use at a
	// time.
	defaultMax = 256
	// timeout bounds a read. It is shared by requests, so the end of one must not cancel it.
	timeout = 30 * time.Second
)

// Of holds answers by key. They are shared: nobody changes them. The zero value is ready for use.
type Of[T any] struct {
	Max int // how many answers are held; 0: 256, which is for counts

	flights singleflight.Group
	mu      sync.Mutex
	held    map[string]answer[T]
}

type answer[T any] struct {
	value   T
	started time.Time
}

func (a answer[T]) fresh(now time.Time) bool {
	age := now.Sub(a.started)
	return 0 <= age && age < freshFor
}

// Get returns an answer that is at most two seconds old. It calls read for it unless one is held
// or under way.
func (s *Of[T]) Get(ctx context.Context, key string, now time.Time, read func(context.Context, time.Time) (T, error)) (T, error) {
	s.mu.Lock()
	a, ok := s.held[key]
	s.mu.Unlock()
	if ok && a.fresh(now) {
		return a.value, nil
	}
	done := s.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		value, err := read(ctx, now)
		if err == nil {
			s.hold(key, answer[T]{value, now})
		}
		return value, err
	})
	select {
	case r := <-done:
		value, _ := r.Val.(T)
		return value, r.Err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}

func (s *Of[T]) hold(key string, a answer[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, held := range s.held {
		if !held.fresh(a.started) {
			delete(s.held, other)
		}
	}
	most := s.Max
	if most == 0 {
		most = defaultMax
	}
	if s.held == nil || len(s.held) >= most {
		s.held = map[string]answer[T]{}
	}
	s.held[key] = a
}
