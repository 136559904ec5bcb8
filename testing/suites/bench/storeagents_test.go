//go:build linux

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/simagent"
)

// together calls f n times from concurrent workers, and measures each call.
func (s *site) together(n, workers int, f func(i int) error) timing {
	s.Helper()
	t := timing{each: make([]time.Duration, n)}
	ready := make(chan struct{})
	var all errgroup.Group
	for w := range min(workers, n) {
		all.Go(func() error {
			<-ready
			for i := w; i < n; i += workers {
				began := time.Now()
				if err := f(i); err != nil {
					return err
				}
				t.each[i] = time.Since(began)
			}
			return nil
		})
	}
	began := time.Now()
	close(ready)
	s.check(all.Wait())
	if workers > 1 {
		t.took, t.n = time.Since(began), n
	}
	return t
}

// enrol enrols one host over the connection of an installer.
func (s *site) enrol(at *server, installer *simAgent, name string) (*simAgent, error) {
	var got agentapi.EnrollResponse
	err := installer.post(s.Context(), agentapi.PathEnroll, agentapi.EnrollRequest{
		Type: "PERMANENT", Metadata: agentapi.EnrollMetadata{Local: simagent.Metadata(name, "1.0.0"), Tags: []string{"measured"}},
	}, &got)
	if err != nil {
		return nil, err
	}
	cred, err := fleet.ParseCredential(got.Item.AccessAPIKey)
	if err != nil {
		return nil, err
	}
	return newSimAgent(got.Item.ID, cred, at.AgentURL, s.tls), nil
}

// enrolments enrols new hosts from concurrent workers, each over an open connection.
func enrolments(workers int) func(s *site, _, at *server, n int) func() timing {
	return func(s *site, _, at *server, n int) func() timing {
		installers := make([]*simAgent, workers)
		for i := range installers {
			installers[i] = newSimAgent("", s.token, at.AgentURL, s.tls)
			_, err := s.enrol(at, installers[i], fmt.Sprintf("first-%d-%d", s.round, i))
			s.check(err)
		}
		s.round++
		fresh := make([]*simAgent, n)
		return func() timing {
			t := s.together(n, workers, func(i int) (err error) {
				fresh[i], err = s.enrol(at, installers[i%workers], fmt.Sprintf("host-%d-%d", s.round, i))
				return err
			})
			s.agents = append(s.agents, fresh...)
			for _, i := range installers {
				i.client.CloseIdleConnections()
			}
			return t
		}
	}
}

// enrolled returns n enrolled agents that use a server.
func (s *site) enrolled(at *server, n int) []*simAgent {
	s.Helper()
	if missing := n - len(s.agents); missing > 0 {
		enrolments(enrolTogether)(s, nil, at, missing)()
	}
	for _, a := range s.agents[:n] {
		a.url = at.AgentURL
	}
	return s.agents[:n]
}

// poll is a check-in that has been sent.
type poll struct {
	hangUp context.CancelFunc
	done   chan struct{} // closed when the other fields are set
	at     time.Time
	resp   agentapi.CheckinResponse
	err    error
}

// says is what an agent reports in a check-in, besides its token.
type says struct {
	status   string
	metadata json.RawMessage
}

func (s *site) poll(a *simAgent, what says) *poll {
	ctx, hangUp := context.WithCancel(s.Context())
	p := &poll{hangUp: hangUp, done: make(chan struct{})}
	req := agentapi.CheckinRequest{Status: what.status, Message: "Running", AckToken: a.token, LocalMeta: what.metadata, Components: json.RawMessage(`[]`)}
	go func() {
		defer close(p.done)
		p.err = a.post(ctx, agentapi.PathCheckin, req, &p.resp)
		p.at = time.Now()
	}()
	return p
}

// answered waits for the answer to a poll.
func (p *poll) answered() error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(waitLimit):
		return errors.New("a check-in is not answered")
	}
}

// usual is what stable agents report.
func usual(a *simAgent) says { return says{"online", a.metadata()} }

// parkTogether is how many agents are parked at the same time if this is not measured.
const parkTogether = 16

// park parks the agents at a server and returns their polls. Each agent polls twice, and
// the server ends the poll that arrives first.
func (s *site) park(at *server, agents []*simAgent) []*poll {
	s.Helper()
	parked := make([]*poll, len(agents))
	var mu sync.Mutex
	s.together(len(agents), parkTogether, func(i int) error {
		a := agents[i]
		a.url = at.AgentURL
		for {
			one, other := s.poll(a, usual(a)), s.poll(a, usual(a))
			var ended *poll
			select {
			case <-one.done:
				ended, parked[i] = one, other
			case <-other.done:
				ended, parked[i] = other, one
			case <-time.After(waitLimit):
				return fmt.Errorf("agent %s is not parked", a.id)
			}
			mu.Lock()
			s.polls = append(s.polls, parked[i])
			mu.Unlock()
			if ended.err != nil {
				return ended.err
			}
			if ended.resp.AckToken == "" {
				return nil
			}
			a.token = ended.resp.AckToken // an action was pending
			parked[i].hangUp()
		}
	})
	return parked
}

// hangUp ends all polls, like hosts that disconnect.
func (s *site) hangUp() {
	for _, p := range s.polls {
		p.hangUp()
		<-p.done
	}
	s.polls = nil
}

// calm ends all polls and cancels all orders, since a server checks agents that are being
// upgraded periodically.
func (s *site) calm(at *server) {
	s.Helper()
	s.hangUp()
	for actionID, agents := range s.ordered {
		ids := make([]string, len(agents))
		for i, a := range agents {
			ids[i] = a.id
		}
		stored, err := at.store.Agents().GetMany(s.Context(), ids)
		s.check(err)
		for i := range stored {
			stored[i].CancelUpgrade(actionID, time.Now().UTC())
		}
		errs, err := at.store.Agents().UpdateMany(s.Context(), stored)
		s.check(errors.Join(append(errs, err)...))
	}
	clear(s.ordered)
}

// saysNothing, saysDocument and saysStatus return what a check-in of a round reports. The
// agents are parked with their usual report.
func saysNothing(a *simAgent, _ int) says { return usual(a) }

func saysDocument(a *simAgent, round int) says { return says{"online", metadataOf(a, round)} }

func saysStatus(a *simAgent, round int) says {
	return says{[]string{"online", "degraded"}[round%2], a.metadata()}
}

// metadataOf returns metadata that differs between rounds in a field that no query uses.
func metadataOf(a *simAgent, round int) json.RawMessage {
	return json.RawMessage(strings.Replace(string(a.metadata()), `"os":{`, fmt.Sprintf(`"os":{"kernel":"6.12.%d",`, round), 1))
}

// checkIns sends check-ins of parked agents sequentially. Each ends the agent's parked poll.
func checkIns(what func(a *simAgent, round int) says) func(s *site, _, at *server, n int) func() timing {
	return func(s *site, _, at *server, n int) func() timing {
		// At most 100 agents, each several times.
		agents := s.enrolled(at, min(n, 100))
		parked := s.park(at, agents)
		s.round += s.round % 2 // the first measured round is odd
		return func() timing {
			t := s.together(n, 1, func(i int) error {
				who := i % len(agents)
				if who == 0 {
					s.round++
				}
				return s.checkIn(agents[who], &parked[who], what(agents[who], s.round))
			})
			s.polls = append(s.polls, parked...)
			return t
		}
	}
}

// checkIn replaces a parked poll by one with a report. If it is refused it is sent again, as
// agents do, which counts as its time.
func (s *site) checkIn(a *simAgent, parked **poll, what says) error {
	before := *parked
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(again) {
		*parked = s.poll(a, what)
		select {
		case <-before.done:
			return before.err
		case <-(*parked).done:
			switch err := (*parked).err; {
			case err == nil:
				return fmt.Errorf("agent %s is given something that nobody ordered: %+v", a.id, (*parked).resp)
			case time.Now().After(deadline):
				return err
			}
		case <-time.After(waitLimit):
			return fmt.Errorf("the check-in of agent %s is not parked", a.id)
		}
	}
}

// again is how long a refused agent waits.
const again = 500 * time.Millisecond

// checkInsAtOnce sends a check-in with a change from every agent of a fleet at once.
func checkInsAtOnce(s *site, _, at *server, n int) func() timing {
	agents := s.enrolled(at, n)
	parked := s.park(at, agents)
	return func() timing {
		s.round++
		t := s.together(n, n, func(i int) error { return s.checkIn(agents[i], &parked[i], saysDocument(agents[i], s.round)) })
		s.polls = append(s.polls, parked...)
		// Check that the changes are stored, with one request, since requests are counted.
		ids := make([]string, n)
		for i, a := range agents {
			ids[i] = a.id
		}
		stored, err := at.store.Agents().GetMany(s.Context(), ids)
		s.check(err)
		want := fmt.Sprintf(`6.12.%d"`, s.round)
		for _, a := range stored {
			if !strings.Contains(string(a.LocalMetadata), want) {
				s.Fatalf("agent %s has said that its kernel is %s, stored is %s", a.ID, want, a.LocalMetadata)
			}
		}
		return t
	}
}

// order orders an upgrade with source_uri, so that no package is needed, and with force, so
// that it can be ordered again.
func (s *site) order(people *server, agents ...*simAgent) (actionID string, err error) {
	ids := make([]string, len(agents))
	for i, a := range agents {
		ids[i] = a.id
	}
	var made adminapi.ActionCreated
	err = s.ask(people, http.MethodPost, "/api/fleet/agents/bulk_upgrade", map[string]any{
		"agents": ids, "version": "1.1.0", "source_uri": "https://packages.example/", "force": true,
	}, &made)
	if err == nil {
		s.ordered[made.ActionId] = agents
	}
	return made.ActionId, err
}

// received waits until a parked agent has received an action, and returns when.
func received(a *simAgent, p *poll, actionID string) (time.Time, error) {
	if err := p.answered(); err != nil {
		return time.Time{}, err
	}
	if len(p.resp.Actions) != 1 || p.resp.Actions[0].ID != actionID {
		return time.Time{}, fmt.Errorf("agent %s waits for action %s and is given %+v", a.id, actionID, p.resp.Actions)
	}
	a.token = p.resp.AckToken
	return p.at, nil
}

// deliveries orders actions for one agent each, which is parked at another server than the
// one that gets the order.
func deliveries(s *site, people, at *server, n int) func() timing {
	agents := s.enrolled(at, n)
	parked := s.park(at, agents)
	return func() timing {
		t := timing{partName: "until the order is answered"}
		for i, a := range agents {
			// The last delivery was at a tick of the server's feed. Without a random
			// pause every order would wait for a whole interval.
			time.Sleep(rand.N(action.FeedInterval))
			began := time.Now()
			id, err := s.order(people, a)
			s.check(err)
			t.part = append(t.part, time.Since(began))
			got, err := received(a, parked[i], id)
			s.check(err)
			t.each = append(t.each, got.Sub(began))
		}
		return t
	}
}

// deliveriesAtHome is deliveries with agents parked at the server that gets the orders.
func deliveriesAtHome(s *site, people, _ *server, n int) func() timing {
	return deliveries(s, people, people, n)
}

// deliveryToAll orders one action for many agents.
func deliveryToAll(s *site, people, at *server, n int) func() timing {
	agents := s.enrolled(at, n)
	parked := s.park(at, agents)
	return func() timing {
		began := time.Now()
		id, err := s.order(people, agents...)
		s.check(err)
		t := timing{partName: "until the order is answered", part: []time.Duration{time.Since(began)}}
		for i, a := range agents {
			got, err := received(a, parked[i], id)
			s.check(err)
			t.each = append(t.each, got.Sub(began))
		}
		return t
	}
}

// acknowledgements acknowledges one action by n agents, all at once or sequentially.
func acknowledgements(atOnce bool) func(s *site, people, at *server, n int) func() timing {
	return func(s *site, people, at *server, n int) func() timing {
		agents := s.enrolled(at, n)
		parked := s.park(at, agents)
		id, err := s.order(people, agents...)
		s.check(err)
		for i, a := range agents {
			_, err := received(a, parked[i], id)
			s.check(err)
		}
		workers := 1
		if atOnce {
			workers = n
		}
		return func() timing {
			t := s.together(n, workers, func(i int) error { return s.acknowledge(agents[i], id) })
			counts, err := at.store.Results().Counts(s.Context(), []string{id})
			s.check(err)
			if counts[id].Acked != n {
				s.Fatalf("%d agents have acknowledged, stored are %+v", n, counts[id])
			}
			return t
		}
	}
}

// acknowledge acknowledges the action, and retries if it is refused.
func (s *site) acknowledge(a *simAgent, actionID string) error {
	req := agentapi.AckRequest{Events: []agentapi.AckEvent{{
		Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: a.id, ActionID: actionID, Message: "taken", Timestamp: time.Now().UTC(),
	}}}
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(again) {
		var resp agentapi.AckResponse
		err := a.post(s.Context(), agentapi.PathAcks, req, &resp)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
