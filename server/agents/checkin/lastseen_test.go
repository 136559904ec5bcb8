package checkin_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/agents/agentcache"
	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// touched is a store that keeps touches and counts the writes.
type touched struct {
	store.Agents
	mu     sync.Mutex
	writes int
	seen   map[string]fleet.Touch
	away   bool
	before func() // each write
}

func (s *touched) Touch(_ context.Context, touches []fleet.Touch) error {
	if s.before != nil {
		s.before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.away {
		return errors.New("the store is away")
	}
	for _, t := range touches {
		if t.Status == "" {
			t.Status, t.Message = s.seen[t.AgentID].Status, s.seen[t.AgentID].Message
		}
		s.seen[t.AgentID] = t
	}
	return nil
}

func (s *touched) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *touched) now() (int, map[string]fleet.Touch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes, maps.Clone(s.seen)
}

type parkedAgents struct {
	checkin.Blocking
	ids []string
}

func (p *parkedAgents) Parked(f func(string, fleet.PolicyAt)) {
	for _, id := range p.ids {
		f(id, fleet.PolicyAt{})
	}
}

func newLastSeen(s *touched, p checkin.Parker) *checkin.LastSeen {
	health := &storehealth.Monitor{}
	cache := agentcache.New(func(func([]store.AgentChange)) bool { return false }, health.Away)
	return &checkin.LastSeen{Agents: s, Parker: p, Cache: cache, Health: health, Log: slog.New(slog.DiscardHandler)}
}

// lastSeen runs one in a bubble.
func lastSeen(t *testing.T, s *touched, parked ...string) *checkin.LastSeen {
	s.seen = map[string]fleet.Touch{}
	l := newLastSeen(s, &parkedAgents{ids: parked})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	synctest.Wait()
	return l
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestLastSeenWritesOnceForManyCheckins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &touched{}
		l := lastSeen(t, s)
		begin := time.Now()
		for range 100 {
			l.Seen(fleet.Touch{AgentID: "a", At: time.Now(), Status: "online"})
			l.Seen(fleet.Touch{AgentID: "b", At: time.Now(), Status: "online"})
			time.Sleep(time.Millisecond)
		}
		l.Seen(fleet.Touch{AgentID: "a", At: begin, Status: "starting"}) // overtaken on the way
		pass(checkin.FlushInterval)
		writes, seen := s.now()
		if writes != 1 || len(seen) != 2 || seen["a"].Status != "online" || !seen["a"].At.Equal(begin.Add(99*time.Millisecond)) {
			t.Errorf("%d writes left %+v", writes, seen)
		}
		pass(3 * checkin.FlushInterval)
		if writes, _ := s.now(); writes != 1 {
			t.Errorf("%d writes of nothing", writes-1)
		}
	})
}

func TestLastSeenRetriesFailedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &touched{}
		l := lastSeen(t, s, "a")
		s.set(true)
		said := time.Now()
		l.Seen(fleet.Touch{AgentID: "a", At: said, Status: "degraded", Message: "disk is slow"})
		l.Seen(fleet.Touch{AgentID: "b", At: said, Status: "online"})
		// Long enough that the parked agent is retouched meanwhile.
		pass(checkin.RetouchInterval + checkin.FlushInterval)
		l.Seen(fleet.Touch{AgentID: "b", At: time.Now(), Status: "error"})
		s.set(false)
		pass(checkin.FlushInterval)
		_, seen := s.now()
		if a := seen["a"]; a.Status != "degraded" || a.Message != "disk is slow" || !a.At.Equal(said.Add(checkin.RetouchInterval)) {
			t.Errorf("a is %+v, want what it said before the retouch", a)
		}
		if b := seen["b"]; b.Status != "error" {
			t.Errorf("b is %+v, want its later word", b)
		}
	})
}

// A write fails while the same agent is retouched.
func TestLastSeenRetouchKeepsTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &touched{}
		l := lastSeen(t, s)
		s.set(true)
		said := time.Now()
		var once sync.Once
		s.before = func() {
			once.Do(func() { l.Seen(fleet.Touch{AgentID: "a", At: said.Add(time.Second)}) })
		}
		l.Seen(fleet.Touch{AgentID: "a", At: said, Status: "degraded"})
		l.Flush(t.Context())
		s.set(false)
		l.Flush(t.Context())
		if _, seen := s.now(); seen["a"].Status != "degraded" || !seen["a"].At.Equal(said.Add(time.Second)) {
			t.Errorf("a is %+v, want degraded, seen at the retouch", seen["a"])
		}
	})
}

// The highest number that an agent has shown is stored, in any order of its check-ins, and
// also after a failed write.
func TestLastSeenKeepsTheHighestActionSeq(t *testing.T) {
	said := time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)
	touch := func(after time.Duration, seq int64) fleet.Touch {
		return fleet.Touch{AgentID: "a", At: said.Add(after), ActionSeq: seq}
	}
	for name, c := range map[string]struct {
		first []fleet.Touch // whose write fails
		then  []fleet.Touch // while it fails
	}{
		"a retouch behind it":       {first: []fleet.Touch{touch(0, 7), touch(time.Second, 0)}},
		"a lower one behind it":     {first: []fleet.Touch{touch(0, 7), touch(time.Second, 6)}},
		"overtaken on the way":      {first: []fleet.Touch{touch(time.Second, 0), touch(0, 7)}},
		"overtaken by a lower one":  {first: []fleet.Touch{touch(time.Second, 6), touch(0, 7)}},
		"a retouch meanwhile":       {first: []fleet.Touch{touch(0, 7)}, then: []fleet.Touch{touch(time.Second, 0)}},
		"a lower one meanwhile":     {first: []fleet.Touch{touch(0, 7)}, then: []fleet.Touch{touch(time.Second, 6)}},
		"a higher one meanwhile":    {first: []fleet.Touch{touch(0, 6)}, then: []fleet.Touch{touch(time.Second, 7)}},
		"a higher, older meanwhile": {first: []fleet.Touch{touch(time.Second, 6)}, then: []fleet.Touch{touch(0, 7)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &touched{seen: map[string]fleet.Touch{}, away: true}
			l := newLastSeen(s, &checkin.Blocking{})
			var once sync.Once
			s.before = func() {
				once.Do(func() {
					for _, t := range c.then {
						l.Seen(t)
					}
				})
			}
			for _, t := range c.first {
				l.Seen(t)
			}
			l.Flush(t.Context())
			s.set(false)
			l.Flush(t.Context())
			if writes, seen := s.now(); writes != 2 || seen["a"].ActionSeq != 7 || !seen["a"].At.Equal(said.Add(time.Second)) {
				t.Errorf("%d writes left %+v", writes, seen["a"])
			}
		})
	}
}

func TestLastSeenRetouchesParkedAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &touched{}
		l := lastSeen(t, s, "a")
		begin := time.Now()
		l.Seen(fleet.Touch{AgentID: "a", At: begin, Status: "degraded"})
		for i := range 4 {
			pass(checkin.RetouchInterval)
			pass(checkin.FlushInterval)
			_, seen := s.now()
			if a := seen["a"]; time.Since(a.At) > checkin.RetouchInterval || a.Status != "degraded" {
				t.Errorf("after %d intervals a is %+v", i+1, a)
			}
		}
		if _, seen := s.now(); time.Since(begin) <= 2*time.Minute || seen["a"].At.Sub(begin) < 2*time.Minute {
			t.Errorf("seen %s after its check-in, want to go on while it is parked", seen["a"].At.Sub(begin))
		}
	})
}

func TestLastSeenWritesOnShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &touched{seen: map[string]fleet.Touch{}}
		l := newLastSeen(s, &checkin.Blocking{})
		l.Seen(fleet.Touch{AgentID: "a", At: time.Now(), Status: "online"})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		l.Run(ctx)
		if _, seen := s.now(); seen["a"].Status != "online" {
			t.Errorf("lost at the end: %+v", seen)
		}
	})
}
