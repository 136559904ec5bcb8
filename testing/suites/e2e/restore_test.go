package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/simagent"
)

// deliveries counts which agent has received which action how often.
type deliveries struct {
	mu    sync.Mutex
	count map[string]map[string]int // by action, by agent
	// An agent that has received the version heldVersion does nothing else until release
	// is closed.
	release chan struct{}
}

const heldVersion = "9.9.9"

func (d *deliveries) receive(action, agent string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count[action] == nil {
		d.count[action] = map[string]int{}
	}
	d.count[action][agent]++
}

// once returns an error unless each agent has received the action exactly once.
func (d *deliveries) once(action string, agents []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range agents {
		if n := d.count[action][id]; n != 1 {
			return fmt.Errorf("agent %s has received %s %d times", id, action, n)
		}
	}
	return nil
}

// simulated starts agents that acknowledge every action, and returns their ids.
func (w *world) simulated(n int, d *deliveries) (ids []string) {
	w.Helper()
	u, err := url.Parse(w.Server.Info.AgentURL)
	check(w, err)
	config, err := capin.TLSConfig(w.Server.Info.CAPin, u.Hostname())
	check(w, err)
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	w.Cleanup(func() { stop(); all.Wait() })
	for i := range n {
		name := fmt.Sprint("sim-", i)
		item, err := simagent.Enrol(w.Context(), w.Server.Info.AgentURL, config, w.Server.Info.EnrollToken, name, "1.0.0")
		check(w, err)
		a := simagent.New(simagent.Options{
			ID: item.ID, Key: item.AccessAPIKey, Host: name, Version: "1.0.0", Servers: []string{w.Server.Info.AgentURL}, TLS: config,
			OnAction: func(ctx context.Context, a *simagent.Agent, act agentapi.Action) {
				d.receive(act.ID, a.ID())
				var data agentapi.UpgradeData
				if json.Unmarshal(act.Data, &data) == nil && data.Version == heldVersion {
					select {
					case <-d.release:
					case <-ctx.Done():
					}
				}
				a.Ack(ctx, act.ID, "")
			},
		})
		all.Go(func() { a.Run(ctx) })
		ids = append(ids, item.ID)
	}
	return ids
}

// order orders an upgrade of agents to a version that no package has, and returns the
// action.
func (w *world) order(version string, agents []string) string {
	w.Helper()
	resp, err := w.Server.Do(w.Context(), http.MethodPost, "/api/fleet/agents/bulk_upgrade", map[string]any{
		"agents": agents, "version": version, "source_uri": "https://packages.example.com/", "force": true,
	})
	check(w, err)
	defer resp.Body.Close()
	var made adminapi.ActionCreated
	check(w, json.NewDecoder(resp.Body).Decode(&made))
	if made.ActionId == "" {
		w.Fatalf("the order of %s is refused: %s", version, resp.Status)
	}
	return made.ActionId
}

// answered waits until all agents have received an action once and answered it.
func (w *world) answered(version, action string, agents []string, d *deliveries) {
	w.Helper()
	harness.Eventually(w, "all agents have answered "+version, func() error {
		if err := d.once(action, agents); err != nil {
			return err
		}
		s, err := w.status(version)
		if err == nil && (s.NbAgentsAck != len(agents) || s.NbAgentsFailed != 0) {
			err = fmt.Errorf("%d of %d have answered", s.NbAgentsAck, len(agents))
		}
		return err
	})
}

func (w *world) status(version string) (adminapi.ActionStatus, error) {
	list, err := harness.Get[adminapi.ActionStatusList](w.Context(), w.Server, "/api/fleet/agents/action_status?perPage=100")
	for _, s := range list.Items {
		if s.Version != nil && *s.Version == version {
			return s, err
		}
	}
	if err == nil {
		err = fmt.Errorf("there is no action for %s", version)
	}
	return adminapi.ActionStatus{}, err
}

// A backup that is made while the server runs is restored after the agents have received
// more actions than it has. Every order made afterwards arrives once, and what a host has
// done is not done again.
func TestRestoredBackupLosesNoOrders(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web")
	ctx, web := t.Context(), w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)
	d := &deliveries{count: map[string]map[string]int{}, release: make(chan struct{})}
	agents := w.simulated(3, d)
	before := w.order("9.0.0", agents)
	w.answered("9.0.0", before, agents, d)

	// When the backup is made, an order is open that the host carries out later.
	check(t, web.Stop())
	w.Upgrade("1.1.0", web)
	file := filepath.Join(w.Dir, "muster.tar")
	_, err := w.Server.CLI(ctx, "backup", file, "--data", w.Server.Data)
	check(t, err)
	check(t, web.Start())
	w.upgraded(web, "1.1.0")
	for i := range 5 {
		version := fmt.Sprintf("9.0.%d", i+1)
		w.answered(version, w.order(version, agents), agents, d)
	}
	held := w.order(heldVersion, agents[:1])
	harness.Eventually(t, "an agent is busy", func() error { return d.once(held, agents[:1]) })

	_, err = w.Server.CLI(ctx, "restore", file, "--data", w.Server.Data, "--replace")
	if err == nil || !strings.Contains(err.Error(), "another `muster server` uses it") {
		t.Fatalf("a restore under a running server: %v", err)
	}
	check(t, w.Server.Stop())
	out, err := w.Server.CLI(ctx, "restore", file, "--data", w.Server.Data)
	if err == nil || !strings.Contains(err.Error(), "has data already") {
		t.Fatalf("a restore over data: %v, %s", err, out)
	}
	out, err = w.Server.CLI(ctx, "restore", file, "--data", w.Server.Data, "--replace")
	check(t, err)
	if !strings.Contains(out, "before-restore-") || !strings.Contains(out, "muster server --data") {
		t.Errorf("the restore says %q", out)
	}
	check(t, w.Server.Start(ctx))

	// The first orders have numbers that the agents have acknowledged before. One agent
	// asks for them only when there are more than it has acknowledged.
	orders := map[string]string{}
	for i := range 10 {
		version := fmt.Sprintf("8.0.%d", i)
		orders[version] = w.order(version, agents)
	}
	close(d.release)
	for version, action := range orders {
		w.answered(version, action, agents, d)
	}
	if err := d.once(before, agents); err != nil {
		t.Errorf("what was answered before the backup: %v", err)
	}
	if _, err := w.status("9.0.3"); err == nil {
		t.Error("the backup was not restored: it has an action that was made afterwards")
	}

	// The host answers the open order from its record.
	w.result(web, "1.1.0", "")
	w.Wait(web, "runs 1.1.0", func(a adminapi.Agent) bool { return a.Agent.Version == "1.1.0" && a.Status == fleet.StatusOnline })
}

// A copy of the data folder is put back without any command, after the agents have received more
// actions than it has. The numbers of new orders are those of orders that agents have
// acknowledged, and all of the new ones arrive.
func TestCopiedDataFolderLosesNoOrders(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web")
	ctx, web := t.Context(), w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)
	d := &deliveries{count: map[string]map[string]int{}, release: make(chan struct{})}
	agents := w.simulated(3, d)
	before := w.order("9.0.0", agents)
	w.answered("9.0.0", before, agents, d)

	check(t, w.Server.Stop())
	kept := filepath.Join(w.Dir, "kept")
	check(t, harness.CopyDir(w.Server.Data, kept))
	check(t, w.Server.Start(ctx))
	for i := range 5 {
		version := fmt.Sprintf("9.0.%d", i+1)
		w.answered(version, w.order(version, agents), agents, d)
	}
	w.Upgrade("1.1.0", web)
	w.upgraded(web, "1.1.0")

	check(t, w.Server.Stop())
	check(t, os.RemoveAll(w.Server.Data))
	check(t, harness.CopyDir(kept, w.Server.Data))
	check(t, w.Server.Start(ctx))
	if _, err := w.status("9.0.3"); err == nil {
		t.Fatal("the copy was not put back: it has an action that was made afterwards")
	}
	// More than there were: the agents' tokens are of the numbers 1 to 6.
	for i := range 10 {
		version := fmt.Sprintf("8.0.%d", i)
		w.answered(version, w.order(version, agents), agents, d)
	}
	if err := d.once(before, agents); err != nil {
		t.Errorf("what was answered before the copy: %v", err)
	}
	// The host runs what it has, and takes orders.
	w.Wait(web, "runs 1.1.0", func(a adminapi.Agent) bool { return a.Agent.Version == "1.1.0" && a.Status == fleet.StatusOnline })
	w.Publish("1.2.0", w.Programs.Agent)
	w.Upgrade("1.2.0", web)
	w.upgraded(web, "1.2.0")
}

// Documents that no version of the server should have stored, as earlier ones have: one that
// SQLite cannot read, and one that nothing can. Every command works for the other hosts.
func TestUnreadableDocumentBreaksNoCommand(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web")
	ctx, web := t.Context(), w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)
	d := &deliveries{count: map[string]map[string]int{}, release: make(chan struct{})}
	agents := w.simulated(3, d)
	check(t, w.Server.Stop())
	file := filepath.Join(w.Server.Data, "muster.db")
	doc := func(id, local string) string {
		return fmt.Sprintf(`{"id":%q,"type":"PERMANENT","active":true,"policy_id":"default","tags":[],"local_metadata":%s}`, id, local)
	}
	sqlitetest.DamageAgent(t, file, agents[0], doc(agents[0], strings.Repeat(`{"a":`, 1_001)+"1"+strings.Repeat("}", 1_001)))
	sqlitetest.DamageAgent(t, file, agents[1], doc(agents[1], `{"host":`))
	check(t, w.Server.Start(ctx))

	for _, args := range [][]string{
		{"agents", "list"},
		{"agents", "list", "--kuery", "local_metadata.host.hostname: sim-2"},
		{"agents", "list", "--kuery", "sim-2"},
		{"agents", "list", "--kuery", "not local_metadata.os.platform: x"},
		{"agents", "why", "sim-2"},
	} {
		out, err := w.Server.CLI(ctx, args...)
		if err != nil || !strings.Contains(out, "sim-2") {
			t.Errorf("muster %s: %v %s", strings.Join(args, " "), err, out)
		}
	}
	if out, err := w.Server.CLI(ctx, "attention"); err != nil || !strings.Contains(out, agents[1]) {
		t.Errorf("attention does not name the document that cannot be read: %v %s", err, out)
	}
	_, err := w.Server.CLI(ctx, "agents", "upgrade", "--version", "1.1.0", "web") // by host name
	check(t, err)
	w.upgraded(web, "1.1.0")
	// The host that SQLite could not read can be removed like any other.
	_, err = w.Server.CLI(ctx, "agents", "unenroll", agents[0], "--revoke")
	check(t, err)
}
