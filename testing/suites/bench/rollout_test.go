//go:build linux

package bench

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/simagent"
)

// rolloutRounds is less than rounds, since each round creates three fleets.
const rolloutRounds = 2

// BenchmarkRollout makes all measurements of rollouts once, with the real server on its
// embedded store and simulated agents.
func BenchmarkRollout(b *testing.B) {
	for b.Loop() {
		var t table
		for range rolloutRounds {
			t.large(b)
			t.thousand(b)
			t.restart(b)
			t.staged(b)
			if b.Failed() {
				return
			}
		}
		t.report(b, "ROLLOUTS.md", fmt.Sprintf("# What a rollout costs\n\nThe real server on its embedded store, agents that speak the protocol, loopback. %s.\nWritten by `go tool mage bench`: the median of %d rounds, and the worst.\n\n", thisMachine(), rolloutRounds))
	}
}

// seed writes enrolled agents that were seen recently into the store of a stopped server,
// and returns their credentials.
func (w *world) seed(n int) []fleet.Credential {
	w.Helper()
	w.Check(w.Server.Stop())
	s, err := sqlite.Open(w.Context(), filepath.Join(w.Server.Data, "muster.db"), sqlite.Options{})
	w.Check(err)
	now := time.Now().UTC()
	creds := make([]fleet.Credential, n)
	for i := range n {
		creds[i] = fleet.NewCredential()
		id := simID(i)
		w.Check(s.Agents().Create(w.Context(), fleet.Agent{
			ID: id, Type: "PERMANENT", Active: true, PolicyID: fleet.DefaultPolicyID, AccessKeyID: creds[i].ID, AccessKeyHash: creds[i].Hash(),
			EnrolledAt: now, Version: "1.0.0", LocalMetadata: simagent.Metadata(id, "1.0.0"), Tags: []string{fmt.Sprint("site=s", i%10)},
			Last: fleet.LastSeen{At: &now, Status: "online", Message: "Running"},
		}))
	}
	w.Check(s.Close())
	w.Check(w.Server.Start(w.Context()))
	return creds
}

func simID(i int) string { return fmt.Sprintf("agent-%06d", i) }

func (w *world) simAgents(agentURL string, creds []fleet.Credential, ids []int) []*simAgent {
	w.Helper()
	u, err := url.Parse(agentURL)
	w.Check(err)
	var config *tls.Config
	config, err = capin.TLSConfig(w.Server.Info.CAPin, u.Hostname())
	w.Check(err)
	agents := make([]*simAgent, len(ids))
	for i, id := range ids {
		agents[i] = newSimAgent(simID(id), creds[id], agentURL, config)
	}
	return agents
}

// ask calls the admin API and measures its latency.
func ask[T any](w *world, method, path string, body any) (T, time.Duration) {
	w.Helper()
	var out T
	began := time.Now()
	resp, err := w.Server.Do(w.Context(), method, path, body)
	w.Check(err)
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		var e adminapi.Error
		_ = json.NewDecoder(resp.Body).Decode(&e)
		w.Fatalf("%s %s: %s: %s", method, path, resp.Status, e.Message)
	}
	w.Check(json.NewDecoder(resp.Body).Decode(&out))
	return out, time.Since(began)
}

// begin creates, previews and starts a rollout.
func (w *world) begin(plan map[string]any, between func(adminapi.RolloutPreview)) (r adminapi.Rollout, preview, start time.Duration, began time.Time) {
	w.Helper()
	made, _ := ask[adminapi.RolloutItem](w, http.MethodPost, "/api/v1/rollouts", map[string]any{"plan": plan})
	path := "/api/v1/rollouts/" + made.Item.ID
	pre, preview := ask[adminapi.RolloutPreviewItem](w, http.MethodPost, path+"/preview", map[string]any{})
	if between != nil {
		between(pre.Item)
	}
	began = time.Now()
	made, start = ask[adminapi.RolloutItem](w, http.MethodPost, path+"/start", map[string]any{"hash": pre.Item.Hash})
	return made.Item, preview, start, began
}

func (w *world) state(id string) adminapi.Rollout {
	w.Helper()
	r, _ := ask[adminapi.RolloutItem](w, http.MethodGet, "/api/v1/rollouts/"+id, nil)
	return r.Item
}

// large previews and starts a rollout of 10,000 agents, of which only the first batch runs.
func (t *table) large(b *testing.B) {
	w := &world{harness.NewWorld(b)}
	w.publish("1.1.0", w.Programs.Agent)
	creds := w.seed(10_000)
	var f *simFleet
	r, preview, start, began := w.begin(map[string]any{
		"name": "ten thousand", "version": "1.1.0", "select": map[string]any{"all": true},
		"strategy": map[string]any{"kind": "rolling", "batch_size": 100}, "health": map[string]any{"wait": "30s"},
	}, func(p adminapi.RolloutPreview) {
		var first []int
		for _, target := range p.Targets {
			if target.Batch == 0 {
				i, err := strconv.Atoi(strings.TrimPrefix(target.AgentID, "agent-"))
				w.Check(err)
				first = append(first, i)
			}
		}
		f = startFleet(w.Context(), w.simAgents(w.Server.Info.AgentURL, creds, first))
		w.parked(len(first))
	})
	defer f.close()
	t.add("preview of 10,000 targets", preview)
	t.add("start of 10,000 targets", start)
	w.until("an offer has come", func() bool { return !f.firstOffer(began).IsZero() })
	t.add("start → first offer received", f.firstOffer(began).Sub(began.Add(start)))
	if r.Counts.Total != 10_000 {
		w.Fatalf("the rollout has %d targets", r.Counts.Total)
	}
}

// parked waits until n agents have been seen since the server started.
func (w *world) parked(n int) {
	w.Helper()
	deadline := time.Now().Add(waitLimit)
	for {
		list, err := w.Server.Agents(w.Context())
		w.Check(err)
		seen := 0
		for _, a := range list {
			if a.LastCheckin != nil && time.Since(*a.LastCheckin) < 20*time.Second && a.LastCheckin.After(a.EnrolledAt.Add(time.Second)) {
				seen++
			}
		}
		if seen >= n {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("%d of %d agents have checked in", seen, n)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// thousand runs a whole rollout of 1,000 agents in 10 batches and measures the CPU time of
// the server.
func (t *table) thousand(b *testing.B) {
	w := &world{harness.NewWorld(b)}
	w.publish("1.1.0", w.Programs.Agent)
	creds := w.seed(1_000)
	ids := make([]int, len(creds))
	for i := range ids {
		ids[i] = i
	}
	f := startFleet(w.Context(), w.simAgents(w.Server.Info.AgentURL, creds, ids))
	defer f.close()
	w.parked(len(ids))
	before := cpu(b, w.Server.PID())
	began := time.Now()
	r, _, _, _ := w.begin(map[string]any{
		"name": "one thousand", "version": "1.1.0", "select": map[string]any{"all": true},
		"strategy": map[string]any{"kind": "rolling", "batch_size": 100}, "health": map[string]any{"wait": "1s"},
	}, nil)
	w.waitState(r.ID, "completed")
	t.add("server CPU, 1,000 targets in 10 batches", cpu(b, w.Server.PID())-before)
	t.add("whole rollout, 1,000 targets in 10 batches, health wait 1 s", time.Since(began))
	t.mebibytes("server memory after it", rss(w, []int{w.Server.PID()}))
}

// waitState polls rarely, since polling costs the server CPU time.
func (w *world) waitState(id, state string) {
	w.Helper()
	deadline := time.Now().Add(waitLimit)
	for {
		r := w.state(id)
		if string(r.State) == state {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("the rollout is %s, not %s: %+v", r.State, state, r.Counts)
		}
		time.Sleep(2 * time.Second)
	}
}

// restart kills the server during a rollout and starts it again. testing/suites/cluster tests the
// takeover by another server.
func (t *table) restart(b *testing.B) {
	w := &world{harness.NewWorld(b)}
	w.publish("1.1.0", w.Programs.Agent)
	creds := w.seed(200)
	ids := make([]int, len(creds))
	for i := range ids {
		ids[i] = i
	}
	f := startFleet(w.Context(), w.simAgents(w.Server.Info.AgentURL, creds, ids))
	defer f.close()
	w.parked(len(ids))
	// A batch takes some seconds, so that one is in flight at the kill.
	r, _, _, _ := w.begin(map[string]any{
		"name": "restarted", "version": "1.1.0", "select": map[string]any{"all": true},
		"strategy": map[string]any{"kind": "rolling", "batch_size": 10}, "health": map[string]any{"wait": "1s"},
	}, nil)
	w.until("the first batch is done", func() bool { return f.finished() >= 10 })
	killed := time.Now()
	w.Check(w.Server.Kill())
	w.Check(w.Server.Start(w.Context()))
	w.until("the next offer has come", func() bool { return !f.firstOffer(killed).IsZero() })
	t.add("server killed and started again → next offer received", f.firstOffer(killed).Sub(killed))
	w.waitState(r.ID, "completed")
}

// staged has 200 agents load a package of 40 MB ahead, and then switches all of them at once.
func (t *table) staged(b *testing.B) {
	w := &world{harness.NewWorld(b)}
	creds := w.seed(200)
	w.publish("1.1.0", w.Programs.Agent)
	ids := make([]int, len(creds))
	for i := range ids {
		ids[i] = i
	}
	agents := w.simAgents(w.Server.Info.AgentURL, creds, ids)
	for _, a := range agents {
		a.staged = []string{}
	}
	f := startFleet(w.Context(), agents)
	defer f.close()
	w.parked(len(ids))
	matching := func(query string) int {
		list, _ := ask[adminapi.AgentList](w, http.MethodGet, "/api/fleet/agents?perPage=1&kuery="+url.QueryEscape(query), nil)
		return list.Total
	}
	whom := map[string]any{"version": "1.1.0", "agents": "active: true"}
	began := time.Now()
	ask[adminapi.BulkActionResponse](w, http.MethodPost, "/api/v1/stage", whom)
	for deadline := time.Now().Add(stageLimit); matching("staged_versions: 1.1.0") < len(ids); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("%d agents have staged it", matching("staged_versions: 1.1.0"))
		}
	}
	t.add("200 agents stage 40 MB: order → all have it", time.Since(began))
	began = time.Now()
	ask[adminapi.BulkActionResponse](w, http.MethodPost, "/api/fleet/agents/bulk_upgrade", whom)
	w.until("all run it", func() bool {
		time.Sleep(50 * time.Millisecond) // a query is work for the server
		return matching("agent.version: 1.1.0") == len(ids)
	})
	t.add("200 agents switch to it: order → all run it", time.Since(began))
}

// stageLimit bounds the transfer of 8 GB by two processors that encrypt, decrypt and do all else.
const stageLimit = 3 * time.Minute

// cpu returns the user and system CPU time that a process has used.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var ticks int64
	for _, i := range []int{11, 12} { // utime and stime; the state is field 0 here
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	const perSecond = 100 // USER_HZ is 100 on every architecture Go runs on
	return time.Duration(ticks) * time.Second / perSecond
}
