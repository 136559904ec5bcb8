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

// statusCounts caches counts of statuses for countsFreshFor, and counts once for concurrent
// requests.
type statusCounts struct {
	flights singleflight.Group
	mu      sync.Mutex
	cached  map[string]statusCount
}

type statusCount struct {
	counts  map[fleet.Status]int // read-only
	started time.Time
}

func (s statusCount) fresh(now time.Time) bool {
	age := now.Sub(s.started)
	return 0 <= age && age < countsFreshFor
}

// countStatuses returns store.CountStatuses of a filter, which was made from kuery. The
// counts are at most countsFreshFor old. The map is shared: do not change it.
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
	c, ok := s.cached[key]
	s.mu.Unlock()
	if ok && c.fresh(now) {
		return c.counts, nil
	}
	done := s.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTimeout)
		defer cancel()
		counts, err := count(ctx, now)
		if err == nil {
			s.store(key, statusCount{counts, now})
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

func (s *statusCounts) store(key string, c statusCount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, count := range s.cached {
		if !count.fresh(c.started) {
			delete(s.cached, other)
		}
	}
	if s.cached == nil || len(s.cached) >= maxCounts {
		s.cached = map[string]statusCount{}
	}
	s.cached[key] = c
}
