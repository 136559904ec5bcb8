package admin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// countsFreshFor is how long counted statuses are shown. Every open browser asks
	// every few seconds, and nobody misses a change that is shown this much later.
	countsFreshFor = 2 * time.Second
	// maxCounts bounds the filters whose counts are kept: more than operators have open
	// at a time.
	maxCounts = 256
	// countTimeout bounds a count that several requests wait for, of which none may end
	// it for the others.
	countTimeout = 30 * time.Second
)

// statusCounts keeps counted statuses for countsFreshFor, and counts once for all that
// ask at the same time.
type statusCounts struct {
	flights singleflight.Group
	mu      sync.Mutex
	kept    map[string]statusCount
}

type statusCount struct {
	counts map[fleet.Status]int // not to be changed
	begun  time.Time
}

func (s statusCount) fresh(now time.Time) bool {
	age := now.Sub(s.begun)
	return 0 <= age && age < countsFreshFor
}

// countStatuses is store.CountStatuses of a filter made of kuery, at most countsFreshFor
// ago. The map is shared.
func (h *Handlers) countStatuses(ctx context.Context, filter store.AgentFilter, kuery string, inactive bool, timeouts map[string]time.Duration) (map[fleet.Status]int, error) {
	key := fmt.Sprintf("%q %q %q %t %v", filter.PolicyID, filter.VersionBelow, kuery, inactive, timeouts)
	return h.counts.get(ctx, key, h.Now.UTC(), func(ctx context.Context, now time.Time) (map[fleet.Status]int, error) {
		return store.CountStatuses(ctx, h.Store.Agents(), filter, timeouts, now)
	})
}

func (s *statusCounts) get(
	ctx context.Context, key string, now time.Time, count func(context.Context, time.Time) (map[fleet.Status]int, error),
) (map[fleet.Status]int, error) {
	s.mu.Lock()
	c, ok := s.kept[key]
	s.mu.Unlock()
	if ok && c.fresh(now) {
		return c.counts, nil
	}
	done := s.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTimeout)
		defer cancel()
		counts, err := count(ctx, now)
		if err == nil {
			s.keep(key, statusCount{counts, now})
		}
		return counts, err
	})
	select {
	case r := <-done:
		counts, _ := r.Val.(map[fleet.Status]int)
		return counts, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *statusCounts) keep(key string, c statusCount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, kept := range s.kept {
		if !kept.fresh(c.begun) {
			delete(s.kept, other)
		}
	}
	if s.kept == nil || len(s.kept) >= maxCounts {
		s.kept = map[string]statusCount{}
	}
	s.kept[key] = c
}
