package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

const (
	takeoverAgents = 18
	takeoverBatch  = 6
	// takeoverSlack is the extra time on a busy machine, besides the lease, the check
	// that finds it expired, and the next round.
	takeoverSlack = 6 * time.Second
)

// The server that works on a rollout is killed while it runs.
func rolloutContinuesAtAnotherReplica(t *testing.T, c *Cluster) {
	var r Recorder
	f := c.Enrol(t, takeoverAgents, &r, Watch{})
	publish(t, c, 0, "2.0.0") // the others list it after their next refresh

	o := c.Operator(t, 0, &r)
	id := start(t, o, map[string]any{
		"name": "taken over", "version": "2.0.0", "select": map[string]any{"agents": f.IDs},
		"strategy": map[string]any{"kind": "rolling", "batch_size": takeoverBatch}, "health": map[string]any{"wait": "1s"},
	})
	Eventually(t, "the second batch is offered", func(context.Context) error {
		if n := offered(&r); n <= takeoverBatch {
			return fmt.Errorf("%d agents have an offer", n)
		}
		return nil
	})
	first, ok := worksOn(c, id, -1)
	if !ok {
		t.Fatal("no server logs that it works on the rollout")
	}
	check(t, c.Servers[first].Kill())
	killed := time.Now()
	second := first
	Eventually(t, "another replica works on the rollout", func(context.Context) error {
		if second, ok = worksOn(c, id, first); !ok {
			return errors.New("none logs it")
		}
		return nil
	})
	taken, atTheKill := time.Since(killed), offered(&r)
	if most := lease.DefaultTTL + reconcile.RoundInterval + takeoverSlack; taken > most {
		t.Errorf("it was taken over after %s, want at most %s", taken, most)
	}
	o = c.Operator(t, second, &r)
	var item adminapi.RolloutItem
	Eventually(t, "the rollout is completed", func(ctx context.Context) error {
		if _, err := o.Call(ctx, http.MethodGet, "/api/v1/rollouts/"+id, nil, &item); err != nil {
			return err
		}
		if item.Item.State != "completed" {
			return fmt.Errorf("it is %s with %+v", item.Item.State, item.Item.Counts)
		}
		return nil
	})
	t.Logf("%s died when %d agents had an offer; %s went on %s later, and it was completed after %s",
		c.Name(first), atTheKill, c.Name(second), taken.Round(time.Millisecond), time.Since(killed).Round(time.Millisecond))
	if item.Item.Counts.Succeeded != takeoverAgents {
		t.Errorf("it ended with %+v", item.Item.Counts)
	}
	check(t, c.Servers[first].Start(t.Context()))
	waitConsistent(t, &r, func(ctx context.Context, h History) (History, error) {
		return c.CompleteRollout(ctx, h, id)
	})
	if n := len(r.History().Acks); n != takeoverAgents {
		t.Errorf("%d offers were acknowledged by %d agents", n, takeoverAgents)
	}
}

// offered returns how many offers were delivered.
func offered(r *Recorder) int {
	n := 0
	for _, a := range r.History().Answers {
		n += len(a.Actions)
	}
	return n
}

// worksOn returns the server, other than but, whose log says that it works on a rollout.
func worksOn(c *Cluster, rolloutID string, but int) (int, bool) {
	for i := range c.Servers {
		for line := range strings.Lines(c.Log(i)) {
			if i != but && strings.Contains(line, "works on a rollout") && strings.Contains(line, rolloutID) {
				return i, true
			}
		}
	}
	return 0, false
}

// publish pushes a package to a server. The simulated agents do not install it.
func publish(t *testing.T, c *Cluster, server int, version string) {
	t.Helper()
	archive := fakepkg.Write(t, t.TempDir(), "muster-agent-"+version+"-linux-amd64.tar.gz", fakepkg.Sound(t, fakepkg.Describe(version)))
	dir := t.TempDir()
	for _, args := range [][]string{
		{"keys", "init", "--dir", dir, "--no-password"}, {"push", archive, "--targets-key", filepath.Join(dir, "targets-1.key")},
	} {
		_, err := c.Servers[server].CLI(t.Context(), append([]string{"package"}, args...)...)
		check(t, err)
	}
}

// start creates, previews and starts a rollout.
func start(t *testing.T, o *Operator, plan map[string]any) string {
	t.Helper()
	var made adminapi.RolloutItem
	var preview adminapi.RolloutPreviewItem
	_, err := o.Call(t.Context(), http.MethodPost, "/api/v1/rollouts", map[string]any{"plan": plan}, &made)
	check(t, err)
	path := "/api/v1/rollouts/" + made.Item.ID
	_, err = o.Call(t.Context(), http.MethodPost, path+"/preview", struct{}{}, &preview)
	check(t, err)
	_, err = o.Call(t.Context(), http.MethodPost, path+"/start", map[string]any{"hash": preview.Item.Hash}, &made)
	check(t, err)
	return made.Item.ID
}
