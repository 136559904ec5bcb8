package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// The commands on the host itself: status, upgrade, uninstall. Two hosts are uninstalled while orders
// wait for them.
func TestUpgradeAndUninstallFromTheHostsCommandLine(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02")
	ctx, h, leaver := t.Context(), w.Hosts[0], w.Hosts[1]

	says := func(want string, args ...string) {
		t.Helper()
		if out, err := h.CLI(ctx, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("muster-agent %s: %v\n%s\nwant a word of %q", args, err, out, want)
		}
	}
	refuses := func(want string, args ...string) {
		t.Helper()
		if out, err := h.CLI(ctx, args...); err == nil || !strings.Contains(err.Error()+out, want) {
			t.Errorf("muster-agent %s: %v\n%s\nwant a refusal with %q", args, err, out, want)
		}
	}
	// Until the agent has reached its server, the exit code of status is not 0.
	harness.Eventually(t, "the agent and its connection are healthy", func() error {
		_, err := h.CLI(ctx, "status")
		return err
	})
	says("agent: healthy", "status")
	says(`"state": "healthy"`, "status", "-o", "json")
	refuses("muster package push", "upgrade", "9.9.9")
	refuses("three numbers", "upgrade", "latest")

	w.Publish("1.1.0", w.Programs.Agent)
	says("Version 1.1.0 was healthy", "upgrade", "1.1.0")
	w.onDisk(h, "1.1.0")
	// The host reports the upgrade, which the server did not order.
	w.Wait(h, "is known to run 1.1.0", func(a adminapi.Agent) bool {
		return a.Agent.Version == "1.1.0" && a.UpgradeDetails == nil && a.UpgradedAt != nil && a.Status == fleet.StatusOnline
	})
	refuses("already runs here", "upgrade", "1.1.0")

	// The watcher reports its verdict before it ends, and a removal waits for that.
	harness.Eventually(t, "only the agent keeps the host from being removed", func() error {
		out, err := h.CLI(ctx, "uninstall", "--yes")
		if err != nil && strings.Contains(err.Error()+out, "stop it first") {
			return nil
		}
		return errors.Join(fmt.Errorf("muster-agent uninstall printed %q", out), err)
	})
	check(t, errors.Join(h.Stop(), leaver.Stop()))
	w.Publish("1.2.0", w.Programs.Agent)
	w.Upgrade("1.2.0", h)
	w.post("/api/fleet/agents/"+h.ID+"/actions", map[string]any{"action": map[string]any{"type": "SETTINGS", "data": map[string]any{"log_level": "debug"}}})
	w.post("/api/fleet/agents/"+h.ID+"/request_diagnostics", map[string]any{})
	w.post("/api/fleet/agents/"+leaver.ID+"/unenroll", map[string]any{})
	refuses("not running", "status")
	says("Removed", "uninstall", "--yes")
	if _, err := os.Lstat(h.Top); !os.IsNotExist(err) {
		t.Errorf("after uninstall %s is still there: %v", h.Top, err)
	}
	w.Wait(h, "is known to be uninstalled", func(a adminapi.Agent) bool {
		return a.Status == fleet.StatusUninstalled && a.Health != nil && *a.Health == fleet.HealthUninstalled
	})
	if out, err := leaver.CLI(ctx, "uninstall", "--yes"); err != nil {
		t.Errorf("muster-agent uninstall: %v\n%s", err, out)
	}
	// It was asked to leave, and has left.
	w.Wait(leaver, "is unenrolled", func(a adminapi.Agent) bool { return a.Status == fleet.StatusUnenrolled })

	w.ended(map[string]adminapi.ActionState{"UPGRADE": "FAILED", "SETTINGS": "FAILED", "REQUEST_DIAGNOSTICS": "FAILED", "UNENROLL": "COMPLETE"})
	for _, args := range [][]string{{"agents", "list", "--kuery", "agent.id: " + h.ID}, {"agents", "why", h.ID}, {"agents", "get", h.ID}} {
		if out, err := w.Server.CLI(ctx, args...); err != nil || !strings.Contains(out, "uninstalled") {
			t.Errorf("muster %s: %v\n%s\nwant that it is uninstalled", strings.Join(args, " "), err, out)
		}
	}
	for _, order := range [][]string{
		{"agents", "upgrade", h.ID, "--version", "1.2.0"}, {"agents", "rollback", h.ID}, {"agents", "diagnostics", h.ID}, {"agents", "unenroll", h.ID},
	} {
		if out, err := w.Server.CLI(ctx, order...); err == nil || !strings.Contains(err.Error()+out, "was uninstalled on its host") {
			t.Errorf("muster %s: %v\n%s\nwant a refusal, since it was uninstalled", strings.Join(order, " "), err, out)
		}
	}
}

// post sends an order to the admin API, which must take it.
func (w *world) post(path string, body any) {
	w.Helper()
	resp, err := w.Server.Do(w.Context(), http.MethodPost, path, body)
	check(w, err)
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		w.Fatalf("POST %s is answered %s: %s", path, resp.Status, text)
	}
}

// ended waits until the latest actions of these types have ended like this.
func (w *world) ended(want map[string]adminapi.ActionState) {
	w.Helper()
	harness.Eventually(w, "the orders have ended", func() error {
		list, err := harness.Get[adminapi.ActionStatusList](w.Context(), w.Server, "/api/fleet/agents/action_status?perPage=100")
		if err != nil {
			return err
		}
		found := map[string]adminapi.ActionState{}
		for _, a := range list.Items { // the newest first
			if _, ok := found[a.Type]; !ok && want[a.Type] != "" {
				found[a.Type] = a.Outcome
			}
		}
		if !maps.Equal(found, want) {
			return fmt.Errorf("they are %v, want %v", found, want)
		}
		return nil
	})
}
