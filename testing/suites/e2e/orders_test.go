package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/simagent"
)

const (
	// silentAgents are enough that an order for all of them takes some pages of agents, and a kill
	// in the middle of it is no matter of luck.
	silentAgents = 6000
	// killTries bounds the orders until one is interrupted.
	killTries = 4
)

// silent stores agents of this machine's platform that never check in, while the
// server is stopped.
func (w *world) silent(n int, like adminapi.Agent) {
	w.Helper()
	check(w, w.Server.Stop())
	db, err := sqlite.Open(w.Context(), filepath.Join(w.Server.Data, "muster.db"), sqlite.Options{})
	check(w, err)
	platform := strings.NewReplacer(`"amd64"`, fmt.Sprintf("%q", runtime.GOARCH), `"linux"`, fmt.Sprintf("%q", runtime.GOOS))
	now := time.Now().UTC()
	var all errgroup.Group
	all.SetLimit(64)
	for i := range n {
		id := fmt.Sprintf("silent-%05d", i)
		all.Go(func() error {
			return db.Agents().Create(w.Context(), fleet.Agent{
				ID: id, Type: "PERMANENT", Active: true, PolicyID: like.PolicyId, AccessKeyID: "key-" + id, AccessKeyHash: "hash",
				EnrolledAt: now, Version: "1.0.0", LocalMetadata: json.RawMessage(platform.Replace(string(simagent.Metadata(id, "1.0.0")))), Tags: []string{},
			})
		})
	}
	check(w, errors.Join(all.Wait(), db.Close()))
	check(w, w.Server.Start(w.Context()))
}

// killedDuringOrder orders a version for all agents as a client that gives up once the server
// carries the order out, and kills the server in the middle of it. It returns the id of the action,
// or "" if the server was done before.
func (w *world) killedDuringOrder(version string) string {
	w.Helper()
	ctx, giveUp := context.WithCancel(w.Context())
	answered := make(chan error, 1)
	go func() {
		resp, err := w.Server.Do(ctx, http.MethodPost, "/api/fleet/agents/bulk_upgrade", map[string]any{"agents": "*", "version": version})
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("the order is refused: %s", resp.Status)
			}
		}
		answered <- err
	}()
	for end := time.Now().Add(harness.WaitLimit); ; time.Sleep(5 * time.Millisecond) {
		st, err := w.status(version)
		switch {
		case time.Now().After(end):
			giveUp()
			w.Fatalf("the order is not carried out: %v, %v", err, <-answered)
		case err != nil: // it is not accepted yet
		case st.Preparing == nil:
			giveUp()
			if err := <-answered; err != nil {
				w.Logf("the order was too quick, and its client has %v", err)
			}
			return ""
		default:
			giveUp()
			if st.Preparing.Handled == 0 {
				continue
			}
			check(w, w.Server.Kill())
			if err := <-answered; err == nil {
				return ""
			}
			w.Logf("killed after %d of %d agents", st.Preparing.Handled, st.Preparing.Agents)
			return st.ActionId
		}
	}
}

// killedDuringCancel cancels an action as a client that gives up, and kills the server once it has
// begun to carry that out.
func (w *world) killedDuringCancel(id, version string) {
	w.Helper()
	ctx, giveUp := context.WithTimeout(w.Context(), harness.WaitLimit)
	defer giveUp()
	answered := make(chan error, 1)
	go func() {
		resp, err := w.Server.Do(ctx, http.MethodPost, "/api/fleet/agents/actions/"+id+"/cancel", nil)
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()
	for ctx.Err() == nil {
		if st, err := w.status(version); err == nil && st.Outcome == adminapi.CANCELLED {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	giveUp()
	check(w, w.Server.Kill())
	if err := <-answered; err == nil {
		w.Log("the cancellation was done before the server was killed")
	}
	check(w, w.Server.Start(w.Context()))
}

// waiting returns how many agents have not begun an upgrade that is ordered for them.
func (w *world) waiting() (int, error) {
	list, err := harness.Get[adminapi.AgentList](w.Context(), w.Server, "/api/fleet/agents?perPage=1&showInactive=true&kuery="+url.QueryEscape("progress: (sent or waiting_for_host)"))
	return list.Total, err
}

// An upgrade of all is ordered by a client that gives up, and the server is killed while it carries
// the order out. The next one completes it, though nobody asks again: every agent has its part once,
// a host runs the version, and the audit trail says what was done. The same goes for its cancellation.
func TestServerKilledDuringAnOrderForAllCompletesIt(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web")
	ctx, web := t.Context(), w.Hosts[0]
	d := &deliveries{count: map[string]map[string]int{}}
	like, err := w.Server.Agent(ctx, web.ID)
	check(t, err)
	w.silent(silentAgents, like)
	running := w.simulated(3, d)
	w.Online("", web)
	all := silentAgents + len(running) + 1

	var version, id string
	for try := 1; id == ""; try++ {
		if try > killTries {
			t.Fatalf("%d orders were carried out before the server could be killed", killTries)
		}
		if version != "" { // the agents are free for the next order
			w.upgraded(web, version)
			st, err := w.status(version)
			check(t, err)
			_, err = w.Server.CLI(ctx, "actions", "cancel", st.ActionId)
			check(t, err)
		}
		version = fmt.Sprintf("1.%d.0", try)
		w.Publish(version, w.Programs.Agent)
		id = w.killedDuringOrder(version)
		if w.Server.PID() == 0 {
			check(t, w.Server.Start(ctx))
		}
	}

	harness.Eventually(t, "the whole order", func() error {
		st, err := w.status(version)
		if err == nil && (st.ActionId != id || st.Preparing != nil || st.NbAgentsActioned != all || st.NbAgentsActionCreated != all || st.NbAgentsFailed != 0) {
			err = fmt.Errorf("it is %+v", st)
		}
		return err
	})
	w.upgraded(web, version)
	harness.Eventually(t, "the running agents have the order", func() error { return d.once(id, running) })
	list, err := harness.Get[adminapi.ActionStatusList](ctx, w.Server, "/api/fleet/agents/action_status?perPage=100")
	check(t, err)
	actions := 0
	for _, st := range list.Items {
		if st.Version != nil && *st.Version == version {
			actions++
		}
	}
	counts, err := harness.Get[adminapi.AgentStatusResponse](ctx, w.Server, "/api/fleet/agent_status")
	check(t, err)
	if actions != 1 || counts.Results.Updating < silentAgents {
		t.Errorf("there are %d actions for %s, and the counts of agents are %+v", actions, version, counts.Results)
	}
	harness.Eventually(t, "the audit trail says what was done", func() error {
		trail, err := harness.Get[adminapi.AuditList](ctx, w.Server, "/api/v1/audit?verb=agent.upgrade")
		var said []string
		for _, e := range trail.Items {
			if e.Subject == id {
				said = append(said, e.Text)
			}
		}
		if err == nil && (len(said) != 2 || !strings.Contains(said[1], fmt.Sprintf("ordered the upgrade to %s of %d agents", version, all)) ||
			!strings.Contains(said[0], fmt.Sprintf("is carried out: the upgrade to %s of %d of %d agents", version, all, all))) {
			err = fmt.Errorf("it says %q", said)
		}
		return err
	})

	if n, err := w.waiting(); err != nil || n < silentAgents {
		t.Fatalf("%d agents wait, %v", n, err)
	}
	w.killedDuringCancel(id, version)
	harness.Eventually(t, "no agent waits for what was cancelled", func() error {
		n, err := w.waiting()
		if err == nil && n > 0 {
			err = fmt.Errorf("%d do", n)
		}
		return err
	})
}
