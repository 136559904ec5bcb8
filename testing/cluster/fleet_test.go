package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/testing/simagent"
)

const (
	// enrolTogether bounds the enrolments under way: each is some writes.
	enrolTogether = 12
	// firstVersion is what agents run when they enrol.
	firstVersion = "1.0.0"
	// opURI is the beginning of the source_uri of upgrades that a history follows;
	// the name of the call is behind it. Agents decline such upgrades, or take them
	// without anything coming of it, and are ready for the next.
	opURI = "https://packages.example.com/"
)

// Fleet is agents that run, each parked at a server.
type Fleet struct {
	IDs []string

	agents []*simagent.Agent
	home   map[string]int
	stop   context.CancelFunc
	all    sync.WaitGroup
}

// Watch is told of what agents see, besides the recorder; from the goroutines of
// all agents. Its functions may be nil.
type Watch struct {
	Polling func(agentID string)
	Answer  func(simagent.Answer)
	Acked   func(simagent.Ack)
}

// Enrol enrols n agents and starts them, spread over all servers. What they see
// goes to the recorder. They run until the test ends, or Close.
func (c *Cluster) Enrol(t testing.TB, n int, r *Recorder, w Watch) *Fleet {
	t.Helper()
	return c.EnrolWith(t, n, r, w, func(*simagent.Options) {})
}

// EnrolWith is Enrol of agents whose options differ from others'.
func (c *Cluster) EnrolWith(t testing.TB, n int, r *Recorder, w Watch, differ func(*simagent.Options)) *Fleet {
	t.Helper()
	f := &Fleet{IDs: make([]string, n), agents: make([]*simagent.Agent, n), home: map[string]int{}}
	urls := c.AgentURLs()
	var enrolling errgroup.Group
	enrolling.SetLimit(enrolTogether)
	for i := range n {
		enrolling.Go(func() error {
			home, host := i%len(urls), fmt.Sprintf("host-%03d", i)
			item, err := c.enrol(t.Context(), urls[home], host)
			if err != nil {
				return fmt.Errorf("enrol %s: %w", host, err)
			}
			f.IDs[i] = item.ID
			o := simagent.Options{
				ID: item.ID, Key: item.AccessAPIKey, Host: host, Version: firstVersion, Servers: urls, Home: home, TLS: c.TLS,
				Take: take, Hear: c.hearing(item.ID, r, w),
			}
			differ(&o)
			f.agents[i] = simagent.New(o)
			return nil
		})
	}
	if err := enrolling.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, id := range f.IDs {
		f.home[id] = i % len(urls)
	}
	ctx, stop := context.WithCancel(t.Context())
	f.stop = stop
	for _, a := range f.agents {
		f.all.Go(func() { a.Run(ctx) })
	}
	t.Cleanup(f.Close)
	return f
}

// enrol enrols a host, which comes again while the store is away: nodes that have just
// started do not always answer in time.
func (c *Cluster) enrol(ctx context.Context, url, host string) (agentapi.EnrollItem, error) {
	until := time.Now().Add(Patience)
	for {
		item, err := simagent.Enrol(ctx, url, c.TLS, c.Servers[0].Info.EnrollToken, host, firstVersion)
		var refusal *gateway.StatusError
		if !errors.As(err, &refusal) || refusal.HTTPStatus != http.StatusServiceUnavailable || time.Now().After(until) {
			return item, err
		}
		select {
		case <-ctx.Done():
			return item, err
		case <-time.After(poll):
		}
	}
}

// Close ends the agents and waits for them. Later calls do nothing.
func (f *Fleet) Close() {
	f.stop()
	f.all.Wait()
}

// Home is the number of the server that an agent was parked at first.
func (f *Fleet) Home(agentID string) int { return f.home[agentID] }

func (c *Cluster) hearing(agentID string, r *Recorder, w Watch) simagent.Hearing {
	return simagent.Hearing{
		Polling: func() {
			if w.Polling != nil {
				w.Polling(agentID)
			}
		},
		Answer: func(a simagent.Answer) {
			r.Answer(c.answer(a))
			if w.Answer != nil {
				w.Answer(a)
			}
		},
		Acked: func(a simagent.Ack) {
			r.Ack(Ack{Agent: a.Agent, Action: a.Action, Failed: a.Error != ""})
			if w.Acked != nil {
				w.Acked(a)
			}
		},
		Refused: r.Refusal,
	}
}

func (c *Cluster) answer(a simagent.Answer) Answer {
	out := Answer{Agent: a.Agent, Server: c.Name(a.Server), At: a.At, Shown: number(a.Shown), Token: number(a.AckToken)}
	for _, act := range a.Actions {
		out.Actions = append(out.Actions, act.ID)
	}
	return out
}

// number of a token; that of none is 0, of one that is no number -1.
func number(token string) int64 {
	if token == "" {
		return 0
	}
	n, err := strconv.ParseInt(token, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// take is what agents do with an action.
func take(ctx context.Context, a *simagent.Agent, act agentapi.Action) {
	var data agentapi.UpgradeData
	if act.Type != agentapi.ActionUpgrade || json.Unmarshal(act.Data, &data) != nil {
		a.Ack(ctx, act.ID, "")
		return
	}
	name, ok := strings.CutPrefix(data.SourceURI, opURI)
	if !ok {
		a.Upgrade(ctx, act) // of a rollout
		return
	}
	a.Ack(ctx, act.ID, verdict(a.ID(), name))
}

// verdict is the error with which an agent declines an upgrade, empty for one in
// four.
func verdict(agentID, op string) string {
	sum := 0
	for _, b := range []byte(agentID + op) {
		sum += int(b)
	}
	if sum%4 == 0 {
		return ""
	}
	return "declined: this host upgrades nothing"
}
