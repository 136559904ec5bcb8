package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/harness"
)

// A host whose power was lost starts the component once its server has answered, and only the
// version that is in force.
func TestHostThatBootsStartsWhatIsInForce(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02")
	w.peers()
	policy := filepath.Join(w.Dir, "components.yaml")
	check(t, os.WriteFile(policy, []byte("components:\n  - {name: web, runtime: process, lockstep: true, health: {wait_seconds: 2, max_restarts: 1}}\n"), 0o600))
	_, err := w.Server.CLI(t.Context(), "policies", "update", "default", "--components", policy)
	check(t, err)
	w.rollOut(w.lockstep("1.1.0", "stage: ahead\n"), exitCompleted)
	w.allRun("1.1.0")
	if code, said := w.command("components", "upgrade", "web", w.Hosts[0].ID, "--version", "1.2.0", "--force"); code == 0 || !strings.Contains(said, "web 1.1.0 is in force for the policy") {
		t.Errorf("one host was ordered another version: %d, %s", code, said)
	}

	h := w.Hosts[1]
	check(t, h.Stop()) // with what it runs
	check(t, w.Server.Stop())
	check(t, h.Start())
	harness.Eventually(t, "the agent holds the component", func() error {
		out, err := h.CLI(t.Context(), "components", "list")
		if !strings.Contains(out, "the server has not answered yet whether it is still in force") {
			return fmt.Errorf("it lists %s, %w", out, err)
		}
		return nil
	})
	if pid := w.peerOf(h); pid != 0 {
		t.Errorf("process %d runs before the server has answered", pid)
	}
	check(t, w.Server.Start(t.Context()))
	harness.Eventually(t, "the component runs again", func() error {
		if w.peerOf(h) == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	w.allRun("1.1.0")
}

// peerOf returns the process of a host's component, 0 if none runs.
func (w *world) peerOf(h *harness.Host) int {
	w.Helper()
	entries, err := os.ReadDir(filepath.Join(w.Dir, "peers"))
	check(w, err)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // it is about to be one
		}
		command, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.Contains(string(command), h.Top+"/") {
			return pid
		}
	}
	return 0
}
