package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/simagent"
)

const (
	// outageAgents is how many agents are upgraded. Half of them have acknowledged the
	// upgrade when the store goes away. As many others stay parked.
	outageAgents = 6
	// carriedOut is the prefix of the names of upgrades that agents execute while the store
	// is away.
	carriedOut = "carried-out-"
	// pollsAway is how many of a parked agent's polls must time out during an outage.
	pollsAway = 2
	// outageVariable is the environment variable with the length of each outage, such as 10m.
	outageVariable = "MUSTER_TEST_OUTAGE"
)

// outage is a way in which the store goes away, and comes back.
type outage struct {
	name       string
	begin, end func(*testing.T)
	says       string // in the reason; empty if the store is never away
}

// The store goes away during an upgrade. Parked agents stay parked, no agent is answered
// that it is unknown, and after the outage every result and every final state is stored
// once.
func TestAgentsAreUpgradedThroughOutagesOfTheStore(t *testing.T) {
	var lasts time.Duration
	if text := os.Getenv(outageVariable); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", outageVariable, err)
		}
	}
	c := Start(t, Options{Servers: 1, Nodes: 1, Proxied: true, Config: "checkin: {poll: 1s, poll_jitter: 0s}\n"})
	var r Recorder
	var gate atomic.Pointer[chan struct{}] // closed when agents may execute their upgrade
	serversPoll := func(o *simagent.Options) { o.ServersPoll = true }
	idle := c.EnrolWith(t, outageAgents, &r, Watch{}, serversPoll)
	var started atomic.Int64
	f := c.EnrolWith(t, outageAgents, &r, Watch{}, func(o *simagent.Options) {
		serversPoll(o)
		early := started.Add(1)%2 == 0
		o.OnAction = func(ctx context.Context, a *simagent.Agent, act agentapi.Action) {
			var data agentapi.UpgradeData
			if json.Unmarshal(act.Data, &data) != nil || !strings.HasPrefix(data.SourceURI, opURI+carriedOut) {
				handle(ctx, a, act)
				return
			}
			if early {
				a.Ack(ctx, act.ID, "")
			}
			select {
			case <-*gate.Load():
			case <-ctx.Done():
				return
			}
			if !early {
				a.Ack(ctx, act.ID, "")
			}
			a.Install(ctx, act.ID, data.Version)
		}
	})
	for i, o := range c.outages() {
		ok := t.Run(o.name, func(t *testing.T) {
			open := make(chan struct{})
			gate.Store(&open)
			version := fmt.Sprintf("2.%d.0", i)
			operator := c.Operator(t, 0, &r)
			actionID := order(t, operator, carriedOut+o.name, f.IDs, version)
			received(t, &r, actionID, outageAgents)
			Eventually(t, "half of the agents have acknowledged", func(context.Context) error {
				if n := acks(&r, actionID); n < outageAgents/2 {
					return fmt.Errorf("%d have", n)
				}
				return nil
			})

			o.begin(t)
			began := time.Now()
			close(open)
			Eventually(t, "the server says how it is", func(ctx context.Context) error { return c.says(ctx, o.says) })
			for first := true; first || time.Since(began) < lasts; first = false {
				parked(t, &r, idle.IDs)
			}
			// In some outages reads still work. Otherwise the error must not blame the request.
			if outcome, err := operator.Call(t.Context(), http.MethodGet, "/api/fleet/agents", struct{}{}, &struct{}{}); outcome == Refused {
				t.Errorf("listing agents failed as invalid: %v", err)
			}

			o.end(t)
			ended := time.Now()
			Eventually(t, "the server has recovered", func(ctx context.Context) error { return c.says(ctx, "") })
			for _, id := range f.IDs {
				Eventually(t, "the end of agent "+id+"'s upgrade is in the store", func(ctx context.Context) error {
					return written(ctx, c.Store, id, actionID, version)
				})
			}
			t.Logf("the store was away for %s; everything was stored %s after it", ended.Sub(began).Round(time.Millisecond), time.Since(ended).Round(time.Millisecond))
			if n := acks(&r, actionID); n != outageAgents {
				t.Errorf("%d acknowledgements were accepted of %d agents", n, outageAgents)
			}
			op, err := operator.Upgrade(t.Context(), "after-"+o.name, f.IDs, true)
			check(t, err)
			received(t, &r, op.ActionID, outageAgents)
		})
		if !ok {
			return // the state it left would fail the next one
		}
	}
	waitConsistent(t, &r, c.Complete)
}

// acks counts the acknowledgements of an action that were accepted.
func acks(r *Recorder, actionID string) (n int) {
	for _, a := range r.History().Acks {
		if a.Action == actionID {
			n++
		}
	}
	return n
}

// outages returns the outages of the only node and of the connection to it.
func (c *Cluster) outages() []outage {
	node := c.ES.Node(0)
	// agents is the folder of the only copy of that index.
	agents := filepath.Join(node.Data(), c.uuid("agents"), "0")
	broken := func(name, says string, f esnode.Fault) outage {
		return outage{name: name, says: says, begin: func(*testing.T) { c.Proxy.Break(f) }, end: func(*testing.T) { c.Proxy.Heal() }}
	}
	set := func(index, setting, value string) func(*testing.T) {
		return func(t *testing.T) {
			body := fmt.Appendf(nil, `{%q: %s}`, setting, value)
			status, answer, err := c.ES.Access().Do(t.Context(), http.MethodPut, "/"+elastic.DefaultPrefix+index+"/_settings", body)
			if err != nil || status != http.StatusOK {
				t.Fatalf("status %d: %s: %v", status, answer, err)
			}
		}
	}
	const flood, aside = "index.blocks.read_only_allow_delete", ".aside"
	return []outage{
		broken("slow", "", esnode.Slow(500*time.Millisecond)),
		broken("overloaded", "overloaded", esnode.Refuse(http.StatusTooManyRequests)),
		broken("half-open", "did not answer in time", esnode.Hang()),
		{name: "read-only", says: "takes no writes", begin: set("*", flood, "true"), end: set("*", flood, "null")},
		{
			name: "red", says: "[" + elastic.DefaultPrefix + "agents]",
			begin: func(t *testing.T) { restart(t, node, func() { check(t, os.Rename(agents, agents+aside)) }) },
			end:   func(t *testing.T) { restart(t, node, func() { check(t, os.Rename(agents+aside, agents)) }) },
		},
		{
			name: "gone", says: "cannot be reached",
			begin: func(t *testing.T) { check(t, node.Kill()) },
			end:   func(t *testing.T) { check(t, node.Start(t.Context())) },
		},
	}
}

// uuid of an index of the servers.
func (c *Cluster) uuid(index string) string {
	c.t.Helper()
	path := "/_cat/indices/" + elastic.DefaultPrefix + index + "?format=json&h=uuid"
	status, answer, err := c.ES.Access().Do(c.t.Context(), http.MethodGet, path, nil)
	c.must(err)
	var list []struct{ UUID string }
	if err := json.Unmarshal(answer, &list); err != nil || len(list) != 1 {
		c.t.Fatalf("status %d: %s: %v", status, answer, err)
	}
	return list[0].UUID
}

// restart kills a node and starts it again, with something done in between.
func restart(t *testing.T, n *esnode.Node, between func()) {
	t.Helper()
	check(t, n.Kill())
	between()
	check(t, n.Start(t.Context()))
}

// order orders an upgrade that agents execute.
func order(t *testing.T, o *Operator, name string, agents []string, version string) (actionID string) {
	t.Helper()
	op := Op{Name: name, Kind: Upgrade, Agents: agents, Server: o.Server, Invoked: time.Now()}
	var answer adminapi.ActionCreated
	var err error
	op.Outcome, err = o.Call(t.Context(), http.MethodPost, "/api/fleet/agents/bulk_upgrade", map[string]any{
		"agents": agents, "version": version, "source_uri": opURI + name, "force": true,
	}, &answer)
	check(t, err)
	return o.note(op, answer.ActionId).ActionID
}

// says returns nil if the first server's status is degraded with this reason, or healthy
// if reason is empty.
func (c *Cluster) says(ctx context.Context, reason string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Servers[0].Info.AgentURL+agentapi.PathStatus, http.NoBody)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: c.TLS.Clone()}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var s agentapi.Status
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return err
	}
	status, code := agentapi.StatusHealthy, http.StatusOK
	if reason != "" {
		status, code = agentapi.StatusDegraded, http.StatusServiceUnavailable
	}
	if s.Status != status || resp.StatusCode != code || !strings.Contains(s.Reason, reason) || strings.Contains(s.Reason, "://") {
		return fmt.Errorf("the status is %d, %s: %s", resp.StatusCode, s.Status, s.Reason)
	}
	return nil
}

// parked waits until pollsAway further polls of each agent have timed out without an
// action.
func parked(t *testing.T, r *Recorder, agents []string) {
	t.Helper()
	from := len(r.History().Answers)
	Eventually(t, "agents are parked", func(context.Context) error {
		polls := map[string]int{}
		for _, a := range r.History().Answers[from:] {
			if len(a.Actions) > 0 {
				t.Fatalf("agent %s received %v", a.Agent, a.Actions)
			}
			polls[a.Agent]++
		}
		for _, id := range agents {
			if polls[id] < pollsAway {
				return fmt.Errorf("agent %s has had %d polls answered", id, polls[id])
			}
		}
		return nil
	})
}

// written returns nil if the result and the version of an agent's upgrade are in the store,
// and its phases are in the event stream once and in order.
func written(ctx context.Context, s *elastic.Store, agentID, actionID, version string) error {
	if res, err := s.Results().Get(ctx, actionID, agentID); err != nil || res.Error != "" {
		return fmt.Errorf("the result is %+v: %w", res, err)
	}
	a, err := s.Agents().Get(ctx, agentID)
	if err != nil {
		return err
	}
	if a.Version != version || a.Upgrading() || a.UpgradeDetails != nil {
		return fmt.Errorf("it runs %s, upgrading is %t with %+v", a.Version, a.Upgrading(), a.UpgradeDetails)
	}
	phases, err := phases(ctx, s, agentID, actionID)
	if err != nil {
		return err
	}
	order := []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeReplacing, agentapi.UpgradeWatching}
	last := -1
	for _, phase := range phases {
		i := slices.Index(order, phase)
		if i <= last {
			return fmt.Errorf("its phases were %v", phases)
		}
		last = i
	}
	return nil
}

// phases returns the phases of an agent's upgrade in the event stream.
func phases(ctx context.Context, s *elastic.Store, agentID, actionID string) ([]agentapi.UpgradeState, error) {
	const batch = 500
	var out []agentapi.UpgradeState
	for after := int64(0); ; {
		events, err := s.Events().After(ctx, after, batch)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			after = e.Seq
			var data struct {
				ActionID string                   `json:"action_id"`
				Details  *agentapi.UpgradeDetails `json:"upgrade_details"`
			}
			if e.Type != fleet.EventAgentUpgrade || e.Subject != agentID {
				continue
			}
			if err := json.Unmarshal(e.Data, &data); err != nil {
				return nil, err
			}
			if data.Details != nil && data.Details.ActionID == actionID {
				out = append(out, data.Details.State)
			}
		}
		if len(events) < batch {
			return out, nil
		}
	}
}
