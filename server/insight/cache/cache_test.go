package cache

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

func TestAnswersAreHeldForTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Of[map[fleet.Status]int]
		var c counter
		get := func(key string) int {
			counts, err := s.Get(t.Context(), key, time.Now(), c.count)
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
		time.Sleep(freshFor)
		if later := get("all"); later != 3 {
			t.Errorf("after %s the counts are still %d", freshFor, later)
		}
		if earlier, err := s.Get(t.Context(), "all", time.Now().Add(-time.Hour), c.count); err != nil || earlier[fleet.StatusOnline] != 4 {
			t.Errorf("with the clock set back the counts are %v, %v", earlier, err)
		}
	})
}

func TestConcurrentRequestsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Of[map[fleet.Status]int]
		var c counter
		left, leave := context.WithCancel(t.Context())
		go func() {
			if _, err := s.Get(left, "all", time.Now(), c.count); !errors.Is(err, context.Canceled) {
				t.Errorf("a request that ends gets %v", err)
			}
		}()
		time.Sleep(time.Microsecond)
		leave() // the others still wait for its count
		for range 10 {
			go func() {
				if counts, err := s.Get(t.Context(), "all", time.Now(), c.count); err != nil || counts[fleet.StatusOnline] != 1 {
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

func TestErrorsAreNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Of[map[fleet.Status]int]
		c := counter{err: errors.New("the store is unavailable")}
		if _, err := s.Get(t.Context(), "all", time.Now(), c.count); !errors.Is(err, c.err) {
			t.Errorf("the error is %v", err)
		}
		c.err = nil
		if counts, err := s.Get(t.Context(), "all", time.Now(), c.count); err != nil || counts[fleet.StatusOnline] != 2 {
			t.Errorf("then the counts are %v, %v", counts, err)
		}
	})
}

func TestHeldAnswersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Of[map[fleet.Status]int]
		var c counter
		for i := range 3 * defaultMax {
			if _, err := s.Get(t.Context(), fmt.Sprint(i), time.Now(), c.count); err != nil {
				t.Fatal(err)
			}
			if len(s.held) > defaultMax {
				t.Fatalf("%d counts are cached", len(s.held))
			}
		}
		time.Sleep(freshFor)
		if _, err := s.Get(t.Context(), "all", time.Now(), c.count); err != nil || len(s.held) != 1 {
			t.Errorf("%d counts are cached, of which all but one are stale: %v", len(s.held), err)
		}
	})
}
