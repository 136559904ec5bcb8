package parktest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/fleet"
)

func wakeDelivers(t *testing.T, s *server) {
	var box mailbox
	p := s.beginParked(&poll{agent: "a", deadline: never, check: box.check})
	s.wantCount(1)
	s.parker.Wake("a") // without an action the poll stays parked
	s.staysParked(p)
	box.put("upgrade")
	s.parker.Wake("b", "a")
	s.wantAnswer(p, "upgrade")
	s.wantCount(0)
}

// An action may be created, and its agents woken, right before the poll is parked. No
// wake follows, so the first check must find it.
func createdBeforeParking(t *testing.T, s *server) {
	var box mailbox
	box.put("upgrade")
	s.wantAnswer(s.begin(&poll{agent: "a", deadline: never, check: box.check}), "upgrade")
	s.wantCount(0)
}

func wakeDuringCheck(t *testing.T, s *server) {
	checking, release := make(chan struct{}), make(chan struct{})
	var box mailbox
	first := true
	p := s.begin(&poll{agent: "a", deadline: never, check: func(ctx context.Context) (*checkin.Answer, error) {
		if !first {
			return box.check(ctx)
		}
		first = false
		close(checking)
		<-release // the store has returned no action
		return nil, nil
	}})
	<-checking
	box.put("upgrade")
	s.parker.Wake("a")
	close(release)
	s.wantAnswer(p, "upgrade")
}

func newerSupersedes(t *testing.T, s *server) {
	var box mailbox
	older := s.beginParked(&poll{agent: "a", deadline: never, check: nothing})
	newer := s.beginParked(&poll{agent: "a", deadline: never, check: box.check})
	s.wantAnswer(older, emptyBody)
	s.staysParked(newer)
	s.wantCount(1)
	box.put("upgrade")
	s.parker.Wake("a")
	s.wantAnswer(newer, "upgrade")
	s.wantCount(0)
}

func release(t *testing.T, s *server) {
	s.parker.Release("a") // nobody is parked
	one, other := s.beginParked(&poll{agent: "a", deadline: never, check: nothing}), s.beginParked(&poll{agent: "b", deadline: never, check: nothing})
	s.parker.Release("a")
	s.wantAnswer(one, emptyBody)
	s.staysParked(other)
	s.wantCount(1)
	next := s.beginParked(&poll{agent: "a", deadline: never, check: nothing})
	s.staysParked(next)
}

func releaseDuringCheck(t *testing.T, s *server) {
	checking, proceed := make(chan struct{}), make(chan struct{})
	p := s.begin(&poll{agent: "a", deadline: never, check: func(context.Context) (*checkin.Answer, error) {
		close(checking)
		<-proceed
		return answer("upgrade"), nil
	}})
	<-checking
	s.parker.Release("a")
	close(proceed)
	s.wantAnswer(p, emptyBody) // the next poll finds the action
	s.wantCount(0)
}

func supersededEndsLate(t *testing.T, s *server) {
	checking, release := make(chan struct{}), make(chan struct{})
	older := s.begin(&poll{agent: "a", deadline: never, check: func(context.Context) (*checkin.Answer, error) {
		close(checking)
		<-release
		return answer("upgrade"), nil
	}})
	<-checking
	var box mailbox
	newer := s.beginParked(&poll{agent: "a", deadline: never, check: box.check})
	s.wantCount(1)
	close(release)
	s.wantAnswer(older, emptyBody) // the newer poll finds the action
	s.staysParked(newer)
	s.wantCount(1)
	box.put("upgrade")
	s.parker.Wake("a")
	s.wantAnswer(newer, "upgrade")
	s.wantCount(0)
}

func deadline(t *testing.T, s *server) {
	const wait = 300 * time.Millisecond
	begin := time.Now()
	p := s.begin(&poll{agent: "a", deadline: wait, check: nothing})
	s.wantAnswer(p, emptyBody)
	if took := time.Since(begin); took < wait {
		t.Errorf("answered after %s, the deadline is %s", took, wait)
	}
	s.wantCount(0)
}

// A proxy may delay a request until after its deadline. Pending actions are still
// delivered.
func deadlinePassed(t *testing.T, s *server) {
	s.wantAnswer(s.begin(&poll{agent: "a", deadline: -time.Second, check: nothing}), emptyBody)
	s.wantCount(0)
}

func disconnect(t *testing.T, s *server) {
	p := s.beginParked(&poll{agent: "a", deadline: never, check: nothing})
	other := s.beginParked(&poll{agent: "b", deadline: never, check: nothing})
	s.wantCount(2)
	p.hangUp()
	s.wantCount(1)
	for id, want := range map[string]bool{"a": true, "b": true, "c": false} { // a may be on its way back
		if got := s.parker.Connected(id); got != want {
			t.Errorf("agent %s is connected: %v, want %v", id, got, want)
		}
	}
	hungUp := func() (ids []string) {
		s.parker.HungUp(func(id string, at time.Time) {
			if ids = append(ids, id); time.Since(at) > time.Minute || time.Since(at) < 0 {
				t.Errorf("agent %s has hung up at %s", id, at)
			}
		})
		return ids
	}
	if got := hungUp(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q have hung up, want a", got)
	}
	s.parker.Wake("a") // its poll is gone
	s.staysParked(other)
	s.parker.Release("b")
	s.wantAnswer(other, emptyBody)
	if got := hungUp(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q have hung up, though b was answered", got)
	}
	other = s.beginParked(&poll{agent: "b", deadline: never, check: nothing})
	var box mailbox
	back := s.beginParked(&poll{agent: "a", deadline: never, check: box.check})
	s.wantCount(2)
	if got := hungUp(); len(got) > 0 {
		t.Errorf("%q have hung up, though a is back", got)
	}
	box.put("upgrade")
	s.parker.Wake("a")
	s.wantAnswer(back, "upgrade")
	s.staysParked(other)
}

func connectionReused(t *testing.T, s *server) {
	for i := range 3 {
		var box mailbox
		p := s.beginParked(&poll{agent: "a", deadline: never, check: box.check})
		if i > 0 && !p.reused.Load() {
			t.Errorf("poll %d came over a new connection", i)
		}
		box.put(fmt.Sprint("upgrade ", i))
		s.parker.Wake("a")
		s.wantAnswer(p, fmt.Sprint("upgrade ", i))
	}
}

var errAway = errors.New("the store is away")

func failedCheck(t *testing.T, s *server) {
	var away atomic.Bool
	away.Store(true)
	p := s.beginParked(&poll{agent: "a", deadline: never, check: func(context.Context) (*checkin.Answer, error) {
		if away.Load() {
			return nil, errAway
		}
		return answer("upgrade"), nil
	}})
	s.staysParked(p)
	s.wantCount(1)
	s.parker.Wake("a")
	s.eventually(func() error {
		if p.checks.Load() < 2 || p.checking.Load() {
			return errors.New("the wake has not repeated the check")
		}
		return nil
	})
	s.staysParked(p)
	away.Store(false)
	s.parker.Wake("a")
	s.wantAnswer(p, "upgrade")
}

// failedCheckRepeated takes CheckRetry of real time.
func failedCheckRepeated(t *testing.T, servers ...*server) {
	var polls []*poll
	begin := time.Now()
	for _, s := range servers {
		first := true
		polls = append(polls, s.begin(&poll{agent: "a", deadline: never, check: func(context.Context) (*checkin.Answer, error) {
			if first {
				first = false
				return nil, errAway
			}
			return answer("upgrade"), nil
		}}))
	}
	for i, s := range servers {
		s.wantAnswer(polls[i], "upgrade")
		if took := time.Since(begin); took < checkin.CheckRetry {
			t.Errorf("the check is repeated after %s, want %s", took, checkin.CheckRetry)
		}
	}
}

func wakeUnknown(t *testing.T, s *server) {
	s.parker.Wake()
	s.parker.Wake("unknown", "", "unknown")
	p := s.beginParked(&poll{agent: "a", deadline: never, check: nothing})
	s.parker.Wake("unknown")
	s.staysParked(p)
	if n := p.checks.Load(); n != 1 {
		t.Errorf("%d checks, want 1, though another agent was woken", n)
	}
}

func namesParked(t *testing.T, s *server) {
	want := []string{"a", "b", "c"}
	for _, id := range want {
		s.beginParked(&poll{agent: id, policy: fleet.PolicyAt{ID: "of-" + id, Revision: 3}, deadline: never, check: nothing})
	}
	var got []string
	s.parker.Parked(func(id string, has fleet.PolicyAt) {
		if got = append(got, id); has != (fleet.PolicyAt{ID: "of-" + id, Revision: 3}) {
			t.Errorf("agent %s has the policy %+v", id, has)
		}
	})
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("parked are %v, want %v", got, want)
	}
}

func newerOfOtherProtocol(t *testing.T, s *server) {
	other := map[string]string{"HTTP/1.1": "HTTP/2.0", "HTTP/2.0": "HTTP/1.1"}
	clients := map[string]*http.Client{s.proto: s.client, other[s.proto]: s.newClient(other[s.proto])}
	older := s.beginParked(&poll{agent: "a", deadline: never, check: nothing})
	for range 3 {
		s.proto = other[s.proto]
		s.client = clients[s.proto]
		newer := s.beginParked(&poll{agent: "a", deadline: never, check: nothing})
		s.wantAnswer(older, emptyBody)
		s.staysParked(newer)
		s.wantCount(1)
		older = newer
	}
	older.hangUp()
	s.wantCount(0)
	for _, c := range clients {
		c.CloseIdleConnections()
	}
}

func resumed(t *testing.T, s *server) {
	s.client.Transport.(*http.Transport).TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for i := range 2 {
		var box mailbox
		p := s.beginParked(&poll{agent: "a", deadline: never, check: box.check})
		box.put("upgrade")
		s.parker.Wake("a")
		s.wantAnswer(p, "upgrade")
		if p.resumed.Load() != (i > 0) {
			t.Errorf("connection %d resumed a session: %v", i, p.resumed.Load())
		}
		s.client.CloseIdleConnections()
	}
}
