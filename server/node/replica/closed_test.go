package replica_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/replica"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// poller lets agents poll servers that share the store.
type poller struct{ polling sync.WaitGroup }

type nothing struct{}

func (nothing) PendingActions(_ context.Context, waits []*checkin.Wait) []checkin.Pending {
	return make([]checkin.Pending, len(waits))
}

// poll parks a poll of an agent for five minutes, and returns the client's end of its connection.
func (p *poller) poll(at checkin.Parker, agentID string) (hangUp func()) {
	ctx, cancel := context.WithCancel(context.Background())
	p.polling.Go(func() {
		at.Park(checkin.Poll{
			Wait: checkin.Wait{AgentID: agentID}, Deadline: time.Now().Add(5 * time.Minute), Checker: nothing{},
			Writer: httptest.NewRecorder(), Request: httptest.NewRequest(http.MethodPost, "/", http.NoBody).WithContext(ctx),
		})
	})
	synctest.Wait()
	return cancel
}

// pair is two servers with one store.
type pair struct {
	parkers [2]*checkin.Blocking
	servers [2]*replica.Service
	know    [2]checkin.Connections
}

func (w *world) pair() *pair {
	p := &pair{}
	for i := range p.servers {
		p.parkers[i] = &checkin.Blocking{}
		p.servers[i] = w.process(fmt.Sprint("server-", i), fmt.Sprint("host-", i), func(c *replica.Config) {
			c.Now, c.Closed = nil, func(now time.Time) []fleet.ClosedConnection { return checkin.ClosedHere(p.parkers[i], now) }
		})
		p.know[i] = checkin.Connections{Parker: p.parkers[i], Health: &storehealth.Monitor{}, Closed: p.servers[i].ClosedAt}
	}
	return p
}

// pass lets a beat of each server pass.
func (p *pair) pass(t *testing.T) {
	t.Helper()
	for _, s := range p.servers {
		if err := s.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(fleet.ServerBeat)
}

func seenAt(id string, at time.Time) *fleet.Agent {
	return &fleet.Agent{ID: id, Last: fleet.LastSeen{At: &at}}
}

// A connection that an agent closes at one server is known to each of them within half a minute, well
// before the agent was not seen for ConnectedWithin. One that moves to the other server, was answered,
// or still polls is not away.
func TestConnectionThatIsClosedAtOneServerIsKnownToAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, agents := newWorld(t), &poller{}
		defer agents.polling.Wait()
		p := w.pair()
		p.pass(t)
		for _, id := range []string{"stays", "answered", "moves"} {
			defer agents.poll(p.parkers[0], id)()
		}
		goes, cut := agents.poll(p.parkers[0], "goes"), agents.poll(p.parkers[0], "moves")
		seen := time.Now()
		time.Sleep(time.Second)
		goes()
		cut()
		p.parkers[0].Release("answered")
		closed := time.Now()
		time.Sleep(time.Second)
		defer agents.poll(p.parkers[1], "moves")()
		moved := time.Now()
		var took time.Duration
		for range 30 {
			p.pass(t)
			for i := range p.know {
				if got := p.know[i].Of(seenAt("goes", seen)); got == fleet.ConnectionClosed && took == 0 {
					took = time.Since(closed)
				}
				for _, a := range []*fleet.Agent{seenAt("stays", seen), seenAt("answered", seen), seenAt("moves", moved)} {
					if got := p.know[i].Of(a); got == fleet.ConnectionClosed {
						t.Fatalf("%s after, agent %s is away for server %d", time.Since(closed), a.ID, i)
					}
				}
			}
		}
		if took < fleet.ReconnectWithin || took > 30*time.Second {
			t.Errorf("it is known after %s", took)
		}
		if len(w.get("server-0").Closed) != 0 {
			t.Errorf("after %s the server still says %v", time.Since(closed), w.get("server-0").Closed)
		}
		for i := range p.know {
			if got := p.know[i].Of(seenAt("moves", moved)); (got == fleet.ConnectionOpen) != (i == 1) {
				t.Errorf("server %d has a poll of the agent that has moved: %d", i, got)
			}
		}
	})
}

// A server that ends says nothing of its agents, which go elsewhere, and of a storm it says what its
// document has room for.
func TestClosedConnectionsOfAServerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, agents := newWorld(t), &poller{}
		defer agents.polling.Wait()
		p := w.pair()
		var hangUps []func()
		for i := range 3 * fleet.MaxClosedConnections {
			hangUps = append(hangUps, agents.poll(p.parkers[0], fmt.Sprint("a", i)))
		}
		later := agents.poll(p.parkers[0], "later")
		ends := agents.poll(p.parkers[1], "ends")
		for _, hangUp := range hangUps {
			hangUp()
		}
		if err := p.parkers[1].Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		ends()
		for range 4 {
			p.pass(t)
		}
		if n := len(w.get("server-0").Closed); n == 0 || n > fleet.MaxClosedConnections {
			t.Errorf("of the storm %d connections are listed", n)
		}
		if got := w.get("server-1").Closed; len(got) > 0 {
			t.Errorf("the server that ends says %v", got)
		}
		time.Sleep(fleet.ConnectedWithin)
		later()
		for range 5 {
			p.pass(t)
		}
		if got := w.get("server-0").Closed; len(got) != 1 || got[0].AgentID != "later" {
			t.Errorf("after the storm it says %v", got)
		}
	})
}
