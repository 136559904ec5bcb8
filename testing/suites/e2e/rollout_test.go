package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// Rollouts are followed with --wait, as in a CI pipeline.
const (
	exitCompleted = 0
	exitFailed    = 3
	exitPaused    = 4
)

// plan writes a plan for the whole fleet to version; the rest of it is YAML.
func (w *world) plan(version, rest string) string {
	w.Helper()
	path := filepath.Join(w.Dir, fmt.Sprintf("plan-%s-%d.yaml", version, time.Now().UnixNano()))
	text := fmt.Sprintf("name: to %s\nversion: %s\n%s", version, version, rest)
	check(w, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// command runs a command line to its end, within the limit for a whole rollout, and
// returns its exit code and its output.
func (w *world) command(args ...string) (code int, output string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 3*harness.WaitLimit)
	defer cancel()
	out, err := w.Server.CLI(ctx, args...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, out
	case errors.As(err, &exit):
		return exit.ExitCode(), out + err.Error()
	}
	w.Fatal(err)
	return 0, ""
}

// rollOut creates, starts and follows a rollout until it ends or waits.
func (w *world) rollOut(plan string, wantCode int) adminapi.Rollout {
	w.Helper()
	if code, said := w.command("rollouts", "create", "--file", plan, "--start", "--yes", "--wait", "--timeout", "3m"); code != wantCode {
		w.Fatalf("it ended with %d, want %d:\n%s", code, wantCode, said)
	}
	return w.newestRollout()
}

func (w *world) newestRollout() adminapi.Rollout {
	w.Helper()
	list, err := harness.Get[adminapi.RolloutList](w.Context(), w.Server, "/api/v1/rollouts")
	check(w, err)
	if len(list.Items) == 0 {
		w.Fatal("there is no rollout")
	}
	return w.rollout(list.Items[0].ID) // lists have no batches
}

func (w *world) rollout(id string) adminapi.Rollout {
	w.Helper()
	r, err := harness.Get[adminapi.RolloutItem](w.Context(), w.Server, "/api/v1/rollouts/"+id)
	check(w, err)
	return r.Item
}

func TestRollingRolloutUpgradesOneHostAtATime(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02", "web-03")
	w.Publish("1.1.0", w.Programs.Agent)
	r := w.rollOut(w.plan("1.1.0", `
select: {all: true}
strategy: {kind: rolling, batch_size: 1}
health: {wait: 2s}
`), exitCompleted)
	for _, h := range w.Hosts {
		w.upgraded(h, "1.1.0")
	}
	if r.State != "completed" || r.Counts.Succeeded != 3 || len(r.Batches) != 3 {
		t.Errorf("the rollout ended as %s with %+v in %d batches", r.State, r.Counts, len(r.Batches))
	}
	// Each batch began after the one before had ended.
	for i := 1; i < len(r.Batches); i++ {
		before, b := r.Batches[i-1], r.Batches[i]
		if before.EndedAt == nil || b.StartedAt == nil || b.StartedAt.Before(*before.EndedAt) {
			t.Errorf("batch %d began at %v, the one before ended at %v", i, b.StartedAt, before.EndedAt)
		}
	}
	// A second rollout to the same version has no targets.
	if code, said := w.command("rollouts", "create", "--file", w.plan("1.1.0", "select: {all: true}\nstrategy: {kind: rolling}\n"), "--start", "--yes"); code != exitCompleted || !strings.Contains(said, "nothing to do") {
		t.Errorf("a rollout to the version that all run ends with %d:\n%s", code, said)
	}
}

func TestFailingCanaryStopsTheRollout(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02", "web-03", "web-04")
	w.Publish("1.2.0", w.Programs.Crasher)
	r := w.rollOut(w.plan("1.2.0", `
select: {all: true}
strategy: {kind: canary, canary: {size: 1}}
health: {wait: 2s}
`), exitPaused)
	if r.State != "paused" || r.Stop == nil || r.Stop.Kind != "canary" {
		t.Fatalf("the rollout is %s, stopped by %+v", r.State, r.Stop)
	}
	var canary, rest []*harness.Host
	targets, err := harness.Get[adminapi.TargetList](t.Context(), w.Server, "/api/v1/rollouts/"+r.ID+"/targets?perPage=100")
	check(t, err)
	for _, h := range w.Hosts {
		i := slices.IndexFunc(targets.Items, func(target adminapi.Target) bool { return target.AgentID == h.ID })
		if targets.Items[i].OfferedAt != nil {
			canary = append(canary, h)
		} else {
			rest = append(rest, h)
		}
	}
	if len(canary) != 1 || len(rest) != 3 {
		t.Fatalf("%d hosts were offered the bad version", len(canary))
	}
	w.rolledBack(canary[0], "1.2.0", "1.0.0", diesAtStart...)
	code, said := w.command("agents", "why", rest[0].ID)
	if code != 0 || !strings.Contains(said, "canary") {
		t.Errorf("why not %s? It says:\n%s", rest[0].Name, said)
	}
	// The rollout has locked the host: a single upgrade is refused with its name.
	w.Publish("1.2.1", w.Programs.Agent)
	resp, err := w.Server.Do(t.Context(), http.MethodPost, "/api/fleet/agents/"+rest[0].ID+"/upgrade", map[string]string{"version": "1.2.1"})
	check(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusConflict {
		t.Errorf("a single upgrade of a locked agent was answered %s", resp.Status)
	}
	// Overriding a failed gate needs a reason.
	if code, said := w.command("rollouts", "resume", r.ID); code == 0 {
		t.Errorf("it was resumed without a reason:\n%s", said)
	}
	if code, said := w.command("rollouts", "cancel", r.ID, "--why", "1.2.0 crashes", "--wait"); code != 5 {
		t.Errorf("cancel ended with %d:\n%s", code, said)
	}
	w.Upgrade("1.2.1", rest[0])
	w.upgraded(rest[0], "1.2.1")
}

func TestRingWaitsForLowerRings(t *testing.T) {
	w := newWorld(t, harness.HostOptions{})
	for ring, name := range []string{"first", "second"} {
		w.AddHosts("1.0.0", harness.HostOptions{Tags: []string{fmt.Sprint("ring=", ring)}}, name)
	}
	w.Publish("1.1.0", w.Programs.Agent)
	ring := func(n int) string {
		return w.plan("1.1.0", fmt.Sprintf("select: {all: true}\nstrategy: {kind: rings, rings: {only: [%d]}}\nhealth: {wait: 2s}\n", n))
	}
	code, said := w.command("rollouts", "create", "--file", ring(1), "--start", "--yes", "--wait")
	if code == 0 || !strings.Contains(said, "first") {
		t.Fatalf("ring 1 went before ring 0, or the refusal does not name the host (%d):\n%s", code, said)
	}
	w.rollOut(ring(0), exitCompleted)
	w.upgraded(w.Hosts[0], "1.1.0")
	w.onDisk(w.Hosts[1], "1.0.0")
	w.rollOut(ring(1), exitCompleted)
	w.upgraded(w.Hosts[1], "1.1.0")
}

func TestRolloutIsRolledBack(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02")
	w.Publish("1.1.0", w.Programs.Agent)
	r := w.rollOut(w.plan("1.1.0", "select: {all: true}\nstrategy: {kind: all_at_once}\nhealth: {wait: 2s}\n"), exitCompleted)
	for _, h := range w.Hosts {
		w.upgraded(h, "1.1.0")
	}
	if code, said := w.command("rollouts", "rollback", r.ID, "--scope", "all", "--why", "customers complain", "--wait", "--timeout", "3m"); code != exitCompleted {
		t.Fatalf("the rollback ended with %d:\n%s", code, said)
	}
	for _, h := range w.Hosts {
		w.onDisk(h, "1.0.0")
	}
	back := w.newestRollout()
	if back.RollbackOf == "" || back.RollbackOf != r.ID || back.Counts.Succeeded != 2 {
		t.Errorf("the rollback is %+v", back)
	}
	harness.Eventually(t, "the first rollout is rolled back", func() error {
		if now := w.rollout(r.ID); now.State != "rolled_back" {
			return fmt.Errorf("it is %s", now.State)
		}
		return nil
	})
}

func TestRolloutContinuesAfterTheServerIsKilled(t *testing.T) {
	w := newWorld(t, slow, "web-01", "web-02")
	w.Publish("1.1.0", w.Programs.Agent)
	code, said := w.command("rollouts", "create", "--file", w.plan("1.1.0", `
select: {all: true}
strategy: {kind: rolling, batch_size: 1}
health: {wait: 2s}
`), "--start", "--yes")
	if code != 0 {
		t.Fatal(said)
	}
	r := w.newestRollout()
	harness.Eventually(t, "a host downloads", func() error {
		agents, err := w.Server.Agents(t.Context())
		if err == nil && !slices.ContainsFunc(agents, func(a adminapi.Agent) bool {
			return a.UpgradeDetails != nil && a.UpgradeDetails.State == agentapi.UpgradeDownloading
		}) {
			err = errors.New("none does")
		}
		return err
	})
	check(t, w.Server.Kill())
	check(t, w.Server.Start(t.Context()))
	harness.Eventually(t, "the rollout is completed", func() error {
		if now := w.rollout(r.ID); now.State != "completed" {
			return fmt.Errorf("it is %s with %+v", now.State, now.Counts)
		}
		return nil
	})
	for _, h := range w.Hosts {
		w.upgraded(h, "1.1.0")
	}
}

// A cancel while one host downloads and another one watches the version: whatever a host does with
// it, the server says what the host is, and a rollback afterwards brings back exactly those that
// have committed the version.
func TestCancelDuringADownloadEndsAsItsHost(t *testing.T) {
	w := newWorld(t, harness.HostOptions{DownloadRate: 1 << 20}, "web-01")
	quick := w.AddHosts("1.0.0", harness.HostOptions{}, "web-02")[0]
	w.Publish("1.1.0", w.Programs.Agent)
	if code, said := w.command("rollouts", "create", "--file", w.plan("1.1.0", `
select: {all: true}
strategy: {kind: all_at_once}
health: {wait: 2s}
`), "--start", "--yes"); code != 0 {
		t.Fatal(said)
	}
	w.waitPhase(quick, agentapi.UpgradeWatching)
	id := w.newestRollout().ID
	if code, said := w.command("rollouts", "cancel", id, "--wait", "--timeout", "3m"); code != 5 {
		t.Fatalf("the cancelled rollout ended with %d:\n%s", code, said)
	}
	var ran []*harness.Host
	for _, h := range w.Hosts {
		a := w.Wait(h, "to be idle", func(a adminapi.Agent) bool { return a.UpgradeStartedAt == nil })
		targets, err := harness.Get[adminapi.TargetList](t.Context(), w.Server, "/api/v1/rollouts/"+id+"/targets?agent="+h.ID)
		check(t, err)
		_, why := w.command("agents", "why", h.ID, "--rollout", id)
		runs := a.Agent.Version == "1.1.0"
		if runs {
			ran = append(ran, h)
		}
		if said := string(targets.Items[0].State); (said == "succeeded") != runs || runs == strings.Contains(why, "was not brought to 1.1.0") {
			t.Errorf("%s runs %s, its target is %s, and why says:\n%s", h.Name, a.Agent.Version, said, why)
		}
		w.onDisk(h, a.Agent.Version)
	}
	if r := w.rollout(id); r.State != "cancelled" || r.Counts.Succeeded != len(ran) {
		t.Errorf("the rollout is %s with %+v, %d hosts run the version", r.State, r.Counts, len(ran))
	}
	if !slices.Contains(ran, quick) { // its watcher had the version before the cancel
		t.Fatalf("%s does not run the version that it watched", quick.Name)
	}

	if code, said := w.command("rollouts", "rollback", id, "--scope", "all", "--why", "1.1.0 is bad", "--wait", "--timeout", "3m"); code != exitCompleted {
		t.Fatalf("the rollback after the cancel ended with %d:\n%s", code, said)
	}
	if back := w.newestRollout(); back.RollbackOf == "" || back.RollbackOf != id || back.Counts.Succeeded != len(ran) {
		t.Errorf("%d hosts ran the version, the rollback is %+v", len(ran), back)
	}
	for _, h := range w.Hosts {
		w.Wait(h, "runs 1.0.0", func(a adminapi.Agent) bool { return a.Agent.Version == "1.0.0" && a.UpgradeStartedAt == nil })
		w.onDisk(h, "1.0.0")
	}
}
