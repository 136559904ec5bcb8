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
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/simagent"
)

const (
	// enrolTogether bounds the concurrent enrolments, each of which is several writes.
	enrolTogether = 12
	// firstVersion is the version of the agents when they enrol.
	firstVersion = "1.0.0"
	// opURI is the prefix of the source_uri of upgrades in a history, followed by the
	// name of the call. Agents decline such upgrades, or acknowledge them without effect,
	// and are ready for the next.
	opURI = "https://packages.example.com/"
)

// Fleet is several running agents, each parked at a server.
type Fleet struct {
	IDs []string

	agents []*simagent.Agent
	home   map[string]int
	stop   context.CancelFunc
	all    sync.WaitGroup
}

// Watch has callbacks, called besides the recorder from the goroutines of all agents. They
// may be nil.
type Watch struct {
	Polling func(agentID string)
	Answer  func(simagent.Answer)
	Acked   func(simagent.Ack)
}

// Enrol enrols n agents and starts them, spread over all servers. The recorder records
// their answers. They run until the test ends or Close is called.
func (c *Cluster) Enrol(t testing.TB, n int, r *Recorder, w Watch) *Fleet {
	t.Helper()
	return c.EnrolWith(t, n, r, w, func(*simagent.Options) {})
}

// EnrolWith is Enrol with changed options of the agents.
func (c *Cluster) EnrolWith(t testing.TB, n int, r *Recorder, w Watch, change func(*simagent.Options)) *Fleet {
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
				OnAction: handle, Callbacks: c.callbacks(item.ID, r, w),
			}
			change(&o)
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

// enrol enrols a host. It retries while the store is away, since nodes that have just
// started do not always answer in time.
func (c *Cluster) enrol(ctx context.Context, url, host string) (agentapi.EnrollItem, error) {
	until := time.Now().Add(WaitLimit)
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

// Close stops the agents and waits for them. Later calls do nothing.
func (f *Fleet) Close() {
	f.stop()
	f.all.Wait()
}

// Home returns the number of the server at which an agent was parked first.
func (f *Fleet) Home(agentID string) int { return f.home[agentID] }

func (c *Cluster) callbacks(agentID string, r *Recorder, w Watch) simagent.Callbacks {
	return simagent.Callbacks{
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

// number returns the sequence number of a token, 0 for an empty one, and -1 if it has none.
func number(token string) int64 {
	if token == "" {
		return 0
	}
	parts := strings.Split(token, "-") // the store's generation, the number, a digest of the action's id
	if len(parts) != 3 {
		return -1
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// handle is what agents do with an action.
func handle(ctx context.Context, a *simagent.Agent, act agentapi.Action) {
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

// verdict returns the error with which an agent declines an upgrade; it is empty for a
// quarter of them.
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
