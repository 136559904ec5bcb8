package parktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
)

// singleBeforeBulk wakes one agent while all checks of a bulk wake block, as they do
// on a slow store.
func singleBeforeBulk(t *testing.T, s *server) {
	const n = 100
	release := make(chan struct{})
	var blocked atomic.Int32
	ids, polls := make([]string, n), make([]*poll, n)
	for i := range ids {
		ids[i] = fmt.Sprint("agent-", i)
		first := true
		polls[i] = s.begin(&poll{agent: ids[i], deadline: never, check: func(context.Context) (*checkin.Answer, error) {
			if first {
				first = false
				return nil, nil
			}
			blocked.Add(1)
			<-release
			return answer("bulk"), nil
		}})
	}
	for _, p := range polls {
		s.checkedOnce(p)
	}
	var box mailbox
	single := s.beginParked(&poll{agent: "single", deadline: never, check: box.check})
	s.wantCount(n + 1)
	s.parker.Wake(ids...)
	s.eventually(func() error {
		if blocked.Load() == 0 {
			return errors.New("no check of the bulk wake has begun")
		}
		return nil
	})
	box.put("single")
	s.parker.Wake("single")
	s.wantAnswer(single, "single")
	close(release)
	for _, p := range polls {
		s.wantAnswer(p, "bulk")
	}
}

// slowReader has clients that send a poll and never read its answer, which is larger
// than a socket's buffer.
func slowReader(_ *testing.T, s *server) {
	const slow = 6
	large := strings.Repeat("x", 8<<20)
	var ids []string
	for i := range slow {
		c := s.dial()
		defer c.wire.Conn.Close()
		var box mailbox
		p := &poll{agent: fmt.Sprint("slow-", i), deadline: never, check: box.check}
		c.send(s.request(p))
		s.checkedOnce(p)
		box.put(large)
		ids = append(ids, p.agent)
	}
	s.wantCount(slow)
	s.parker.Wake(ids...)
	const within = 4 * time.Second // a parker may give up slow clients after 5 s
	begin := time.Now()
	for i := range 20 {
		var box mailbox
		p := s.beginParked(&poll{agent: "reader", deadline: never, check: box.check})
		box.put(fmt.Sprint("upgrade ", i))
		s.parker.Wake("reader")
		s.wantAnswer(p, fmt.Sprint("upgrade ", i))
	}
	if took := time.Since(begin); took > within {
		s.t.Errorf("20 answers took %s while other clients did not read, want at most %s", took, within)
	}
}

// concurrentWakes delivers two actions to each of many agents while all of them are
// woken at random, also those without an action.
func concurrentWakes(t *testing.T, s *server) {
	n := 1_000
	if s.proto == "HTTP/1.1" {
		n = 150 // each is a connection and a TLS handshake of its own
	}
	// Opens the HTTP/2 connection that all polls share; otherwise each of a thousand would
	// dial.
	s.wantAnswer(s.begin(&poll{agent: "first", check: nothing}), emptyBody)
	ids, boxes := make([]string, n), make([]mailbox, n)
	for i := range ids {
		ids[i] = fmt.Sprint("agent-", i)
	}
	var agents sync.WaitGroup
	for i := range n {
		agents.Go(func() {
			for _, want := range []string{"one", "two"} {
				p := s.begin(&poll{agent: ids[i], deadline: never, check: boxes[i].check})
				<-p.done
				if p.err != nil || p.body != want {
					t.Errorf("agent %s: got %q, error %v; want %q", ids[i], p.body, p.err, want)
				}
			}
		})
	}
	s.wantCount(n)
	var wakers sync.WaitGroup
	for range 2 {
		wakers.Go(func() {
			for range 2 * n {
				s.parker.Wake(ids[rand.IntN(n)], ids[rand.IntN(n)])
			}
		})
	}
	for _, body := range []string{"one", "two"} {
		for _, i := range rand.Perm(n) {
			boxes[i].put(body)
			s.parker.Wake(ids[i])
		}
	}
	agents.Wait()
	wakers.Wait()
	s.wantCount(0)
}

// sharedChecker checks many agents with one Checker, as the service does.
func sharedChecker(t *testing.T, s *server) {
	const n = 60
	all := &checkerOfAll{t: t, boxes: map[string]*mailbox{}, checking: map[*checkin.Wait]bool{}}
	ids, polls := make([]string, n), make([]*poll, n)
	for i := range ids {
		ids[i] = fmt.Sprint("agent-", i)
		all.boxes[ids[i]] = &mailbox{}
	}
	for i, id := range ids {
		polls[i] = s.begin(&poll{agent: id, deadline: never, checker: all})
	}
	s.eventually(func() error {
		if got := all.checks.Load(); got != n {
			return fmt.Errorf("%d polls have been checked, want %d", got, n)
		}
		return nil
	})
	s.parker.Wake(ids...) // without an action
	for i, id := range ids {
		if i%10 != 9 {
			all.boxes[id].put("for " + id)
		}
	}
	s.parker.Wake(ids...)
	for i, p := range polls {
		if i%10 != 9 {
			s.wantAnswer(p, "for "+ids[i])
		}
	}
	s.wantCount(n / 10)
	for i, p := range polls {
		if i%10 == 9 {
			s.staysParked(p)
			all.boxes[ids[i]].put("at last")
			s.parker.Wake(ids[i])
			s.wantAnswer(p, "at last")
		}
	}
}

// checkerOfAll checks every agent that has a mailbox.
type checkerOfAll struct {
	t      *testing.T
	boxes  map[string]*mailbox
	checks atomic.Int32
	most   atomic.Int32 // polls in one call

	mu       sync.Mutex
	checking map[*checkin.Wait]bool
}

func (c *checkerOfAll) PendingActions(ctx context.Context, waits []*checkin.Wait) []checkin.Pending {
	c.mark(waits, true)
	defer c.mark(waits, false)
	out := make([]checkin.Pending, len(waits))
	for i, w := range waits {
		out[i].Answer, out[i].Err = c.boxes[w.AgentID].check(ctx)
	}
	c.checks.Add(int32(len(waits)))
	for most := c.most.Load(); int(most) < len(waits) && !c.most.CompareAndSwap(most, int32(len(waits))); most = c.most.Load() {
	}
	return out
}

func (c *checkerOfAll) mark(waits []*checkin.Wait, begins bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range waits {
		if c.checking[w] && begins {
			c.t.Errorf("two checks at a time for agent %s", w.AgentID)
		}
		c.checking[w] = begins
	}
}
