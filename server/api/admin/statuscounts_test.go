package admin

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// counter returns one more online agent at each call.
type counter struct {
	calls atomic.Int64
	err   error
}

func (c *counter) count(context.Context, time.Time) (map[fleet.Status]int, error) {
	time.Sleep(time.Millisecond)
	return map[fleet.Status]int{fleet.StatusOnline: int(c.calls.Add(1))}, c.err
}

func TestStatusCountsAreCachedForTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s statusCounts
		var c counter
		get := func(key string) int {
			counts, err := s.get(t.Context(), key, time.Now(), c.count)
			if err != nil {
				t.Fatal(err)
			}
			return counts[fleet.StatusOnline]
		}
		if first, again := get("all"), get("all"); first != 1 || again != 1 {
			t.Errorf("the counts are %d and then %d, want 1 twice", first, again)
		}
		if other := get("another filter"); other != 2 {
			t.Errorf("another filter has the counts %d", other)
		}
		time.Sleep(countsFreshFor)
		if later := get("all"); later != 3 {
			t.Errorf("after %s the counts are still %d", countsFreshFor, later)
		}
		if earlier, err := s.get(t.Context(), "all", time.Now().Add(-time.Hour), c.count); err != nil || earlier[fleet.StatusOnline] != 4 {
			t.Errorf("with the clock set back the counts are %v, %v", earlier, err)
		}
	})
}

func TestConcurrentStatusQueriesCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s statusCounts
		var c counter
		left, leave := context.WithCancel(t.Context())
		go func() {
			if _, err := s.get(left, "all", time.Now(), c.count); !errors.Is(err, context.Canceled) {
				t.Errorf("a request that ends gets %v", err)
			}
		}()
		time.Sleep(time.Microsecond)
		leave() // the others still wait for its count
		for range 10 {
			go func() {
				if counts, err := s.get(t.Context(), "all", time.Now(), c.count); err != nil || counts[fleet.StatusOnline] != 1 {
					t.Errorf("one gets %v, %v", counts, err)
				}
			}()
		}
		time.Sleep(time.Second)
		if n := c.calls.Load(); n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

func TestFailedStatusCountsAreNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s statusCounts
		c := counter{err: errors.New("the store is unavailable")}
		if _, err := s.get(t.Context(), "all", time.Now(), c.count); !errors.Is(err, c.err) {
			t.Errorf("the error is %v", err)
		}
		c.err = nil
		if counts, err := s.get(t.Context(), "all", time.Now(), c.count); err != nil || counts[fleet.StatusOnline] != 2 {
			t.Errorf("then the counts are %v, %v", counts, err)
		}
	})
}

func TestStatusCountsOfManyFiltersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s statusCounts
		var c counter
		for i := range 3 * maxCounts {
			if _, err := s.get(t.Context(), fmt.Sprint(i), time.Now(), c.count); err != nil {
				t.Fatal(err)
			}
			if len(s.cached) > maxCounts {
				t.Fatalf("%d counts are cached", len(s.cached))
			}
		}
		time.Sleep(countsFreshFor)
		if _, err := s.get(t.Context(), "all", time.Now(), c.count); err != nil || len(s.cached) != 1 {
			t.Errorf("%d counts are cached, of which all but one are stale: %v", len(s.cached), err)
		}
	})
}
