package parktest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/checkin"
)

func deliversWhenWoken(t *testing.T, y *yard) {
	var box mailbox
	p := y.parked(&poll{agent: "a", deadline: long, look: box.look})
	y.count(1)
	y.parker.Wake("a") // nothing is there: it goes on waiting
	y.still(p)
	box.put("upgrade")
	y.parker.Wake("b", "a")
	y.wants(p, "upgrade")
	y.count(0)
}

// The service looks, an action is created and its agents are woken, and only
// then the poll is parked: nobody will wake it any more.
func looksBeforeItWaits(t *testing.T, y *yard) {
	var box mailbox
	box.put("upgrade")
	y.wants(y.begin(&poll{agent: "a", deadline: long, look: box.look}), "upgrade")
	y.count(0)
}

func wakeDuringLook(t *testing.T, y *yard) {
	looking, release := make(chan struct{}), make(chan struct{})
	var box mailbox
	first := true
	p := y.begin(&poll{agent: "a", deadline: long, look: func(ctx context.Context) (*checkin.Answer, error) {
		if !first {
			return box.look(ctx)
		}
		first = false
		close(looking)
		<-release // the store has answered: nothing
		return nil, nil
	}})
	<-looking
	box.put("upgrade")
	y.parker.Wake("a")
	close(release)
	y.wants(p, "upgrade")
}

func newerEndsOlder(t *testing.T, y *yard) {
	var box mailbox
	older := y.parked(&poll{agent: "a", deadline: long, look: nothing})
	newer := y.parked(&poll{agent: "a", deadline: long, look: box.look})
	y.wants(older, emptyBody)
	y.still(newer)
	y.count(1)
	box.put("upgrade")
	y.parker.Wake("a")
	y.wants(newer, "upgrade")
	y.count(0)
}

func olderEndsLate(t *testing.T, y *yard) {
	looking, release := make(chan struct{}), make(chan struct{})
	older := y.begin(&poll{agent: "a", deadline: long, look: func(context.Context) (*checkin.Answer, error) {
		close(looking)
		<-release
		return answer("upgrade"), nil
	}})
	<-looking
	var box mailbox
	newer := y.parked(&poll{agent: "a", deadline: long, look: box.look})
	y.count(1)
	close(release)
	y.wants(older, emptyBody) // what it found is the newer one's to find
	y.still(newer)
	y.count(1)
	box.put("upgrade")
	y.parker.Wake("a")
	y.wants(newer, "upgrade")
	y.count(0)
}

func deadline(t *testing.T, y *yard) {
	const wait = 300 * time.Millisecond
	begin := time.Now()
	p := y.begin(&poll{agent: "a", deadline: wait, look: nothing})
	y.wants(p, emptyBody)
	if took := time.Since(begin); took < wait {
		t.Errorf("answered after %s, the deadline is %s", took, wait)
	}
	y.count(0)
}

// A proxy may hold a request back for longer than it was to be parked. What is
// there is still delivered.
func deadlinePassed(t *testing.T, y *yard) {
	y.wants(y.begin(&poll{agent: "a", deadline: -time.Second, look: nothing}), emptyBody)
	y.count(0)
}

func hangUp(t *testing.T, y *yard) {
	p := y.parked(&poll{agent: "a", deadline: long, look: nothing})
	other := y.parked(&poll{agent: "b", deadline: long, look: nothing})
	y.count(2)
	p.hangUp()
	y.count(1)
	y.parker.Wake("a") // nobody is there
	y.still(other)
	var box mailbox
	back := y.parked(&poll{agent: "a", deadline: long, look: box.look})
	y.count(2)
	box.put("upgrade")
	y.parker.Wake("a")
	y.wants(back, "upgrade")
}

func connectionReused(t *testing.T, y *yard) {
	for i := range 3 {
		var box mailbox
		p := y.parked(&poll{agent: "a", deadline: long, look: box.look})
		if i > 0 && !p.reused.Load() {
			t.Errorf("poll %d came over a new connection", i)
		}
		box.put(fmt.Sprint("upgrade ", i))
		y.parker.Wake("a")
		y.wants(p, fmt.Sprint("upgrade ", i))
	}
}

var errAway = errors.New("the store is away")

func failedLook(t *testing.T, y *yard) {
	var away atomic.Bool
	away.Store(true)
	p := y.parked(&poll{agent: "a", deadline: long, look: func(context.Context) (*checkin.Answer, error) {
		if away.Load() {
			return nil, errAway
		}
		return answer("upgrade"), nil
	}})
	y.still(p)
	y.count(1)
	y.parker.Wake("a")
	y.eventually(func() error {
		if p.looks.Load() < 2 || p.looking.Load() {
			return errors.New("it has not looked again when woken")
		}
		return nil
	})
	y.still(p)
	away.Store(false)
	y.parker.Wake("a")
	y.wants(p, "upgrade")
}

// looksAgain takes RetryLook of real time.
func looksAgain(t *testing.T, yards ...*yard) {
	var polls []*poll
	begin := time.Now()
	for _, y := range yards {
		first := true
		polls = append(polls, y.begin(&poll{agent: "a", deadline: long, look: func(context.Context) (*checkin.Answer, error) {
			if first {
				first = false
				return nil, errAway
			}
			return answer("upgrade"), nil
		}}))
	}
	for i, y := range yards {
		y.wants(polls[i], "upgrade")
		if took := time.Since(begin); took < checkin.RetryLook {
			t.Errorf("looked again after %s, want %s", took, checkin.RetryLook)
		}
	}
}

func wakeUnknown(t *testing.T, y *yard) {
	y.parker.Wake()
	y.parker.Wake("nobody", "", "nobody")
	p := y.parked(&poll{agent: "a", deadline: long, look: nothing})
	y.parker.Wake("nobody")
	y.still(p)
	if n := p.looks.Load(); n != 1 {
		t.Errorf("a look too many: %d, though another agent was woken", n)
	}
}

func namesParked(t *testing.T, y *yard) {
	want := []string{"a", "b", "c"}
	for _, id := range want {
		y.parked(&poll{agent: id, deadline: long, look: nothing})
	}
	var got []string
	y.parker.Parked(func(id string) { got = append(got, id) })
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("parked are %v, want %v", got, want)
	}
}

// storm has a thousand agents get two things each while everybody is woken at
// random, also those for whom there is nothing.
func storm(t *testing.T, y *yard) {
	n := 1_000
	if y.proto == "HTTP/1.1" {
		n = 150 // each is a connection and a TLS handshake of its own
	}
	// Else each of a thousand dials, before the first knows that it could share.
	y.wants(y.begin(&poll{agent: "first", look: nothing}), emptyBody)
	ids, boxes := make([]string, n), make([]mailbox, n)
	for i := range ids {
		ids[i] = fmt.Sprint("agent-", i)
	}
	var agents sync.WaitGroup
	for i := range n {
		agents.Go(func() {
			for _, want := range []string{"one", "two"} {
				p := y.begin(&poll{agent: ids[i], deadline: long, look: boxes[i].look})
				<-p.done
				if p.err != nil || p.body != want {
					t.Errorf("agent %s: got %q, error %v; want %q", ids[i], p.body, p.err, want)
				}
			}
		})
	}
	y.count(n)
	var wakers sync.WaitGroup
	for range 2 {
		wakers.Go(func() {
			for range 2 * n {
				y.parker.Wake(ids[rand.IntN(n)], ids[rand.IntN(n)])
			}
		})
	}
	for _, body := range []string{"one", "two"} {
		for _, i := range rand.Perm(n) {
			boxes[i].put(body)
			y.parker.Wake(ids[i])
		}
	}
	agents.Wait()
	wakers.Wait()
	y.count(0)
}

func closeAnswers(t *testing.T, y *yard) {
	polls := make([]*poll, 20)
	for i := range polls {
		polls[i] = y.parked(&poll{agent: fmt.Sprint("agent-", i), deadline: long, look: nothing})
	}
	y.count(len(polls))
	if err := y.close(patience); err != nil {
		t.Fatalf("close: %v", err)
	}
	if n := y.parker.Count(); n != 0 {
		t.Errorf("%d polls are left after close", n)
	}
	for _, p := range polls {
		y.wants(p, emptyBody)
	}
	y.wants(y.begin(&poll{agent: "late", deadline: long, look: nothing}), emptyBody)
	if err := y.close(patience); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func closeGivesUp(t *testing.T, y *yard) {
	looking, release := make(chan struct{}), make(chan struct{})
	p := y.begin(&poll{agent: "a", deadline: long, look: func(context.Context) (*checkin.Answer, error) {
		close(looking)
		<-release
		return nil, nil
	}})
	<-looking
	err := y.close(calm)
	if !errors.Is(err, context.DeadlineExceeded) || strings.TrimSpace(err.Error()) == "" {
		t.Errorf("close is %v while a look lasts, want the context's error", err)
	}
	close(release)
	y.wants(p, emptyBody)
}

// sharedLooker has many agents look through one Looker, as the service's are.
func sharedLooker(t *testing.T, y *yard) {
	const n = 60
	many := &crowd{t: t, boxes: map[string]*mailbox{}, looking: map[*checkin.Wait]bool{}}
	ids, polls := make([]string, n), make([]*poll, n)
	for i := range ids {
		ids[i] = fmt.Sprint("agent-", i)
		many.boxes[ids[i]] = &mailbox{}
	}
	for i, id := range ids {
		polls[i] = y.begin(&poll{agent: id, deadline: long, looker: many})
	}
	y.eventually(func() error {
		if got := many.looks.Load(); got != n {
			return fmt.Errorf("%d polls have looked, want %d", got, n)
		}
		return nil
	})
	y.parker.Wake(ids...) // for nothing
	for i, id := range ids {
		if i%10 != 9 {
			many.boxes[id].put("for " + id)
		}
	}
	y.parker.Wake(ids...)
	for i, p := range polls {
		if i%10 != 9 {
			y.wants(p, "for "+ids[i])
		}
	}
	y.count(n / 10)
	for i, p := range polls {
		if i%10 == 9 {
			y.still(p)
			many.boxes[ids[i]].put("at last")
			y.parker.Wake(ids[i])
			y.wants(p, "at last")
		}
	}
}

// crowd looks for whomever it is asked.
type crowd struct {
	t     *testing.T
	boxes map[string]*mailbox
	looks atomic.Int32
	most  atomic.Int32 // polls in one look

	mu      sync.Mutex
	looking map[*checkin.Wait]bool
}

func (c *crowd) Look(ctx context.Context, waits []*checkin.Wait) []checkin.Found {
	c.mark(waits, true)
	defer c.mark(waits, false)
	out := make([]checkin.Found, len(waits))
	for i, w := range waits {
		out[i].Answer, out[i].Err = c.boxes[w.AgentID].look(ctx)
	}
	c.looks.Add(int32(len(waits)))
	for most := c.most.Load(); int(most) < len(waits) && !c.most.CompareAndSwap(most, int32(len(waits))); most = c.most.Load() {
	}
	return out
}

func (c *crowd) mark(waits []*checkin.Wait, begins bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range waits {
		if c.looking[w] && begins {
			c.t.Errorf("two looks at a time for agent %s", w.AgentID)
		}
		c.looking[w] = begins
	}
}

func newerOfOtherProtocol(t *testing.T, y *yard) {
	other := map[string]string{"HTTP/1.1": "HTTP/2.0", "HTTP/2.0": "HTTP/1.1"}
	clients := map[string]*http.Client{y.proto: y.client, other[y.proto]: y.newClient(other[y.proto])}
	older := y.parked(&poll{agent: "a", deadline: long, look: nothing})
	for range 3 {
		y.proto = other[y.proto]
		y.client = clients[y.proto]
		newer := y.parked(&poll{agent: "a", deadline: long, look: nothing})
		y.wants(older, emptyBody)
		y.still(newer)
		y.count(1)
		older = newer
	}
	older.hangUp()
	y.count(0)
	for _, c := range clients {
		c.CloseIdleConnections()
	}
}

func resumed(t *testing.T, y *yard) {
	y.client.Transport.(*http.Transport).TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for i := range 2 {
		var box mailbox
		p := y.parked(&poll{agent: "a", deadline: long, look: box.look})
		box.put("upgrade")
		y.parker.Wake("a")
		y.wants(p, "upgrade")
		if p.resumed.Load() != (i > 0) {
			t.Errorf("connection %d resumed a session: %v", i, p.resumed.Load())
		}
		y.client.CloseIdleConnections()
	}
}
