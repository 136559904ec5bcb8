package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// declare applies a file to the server and waits until its object is ready.
func (w *world) declare(text string) {
	w.Helper()
	path := filepath.Join(w.Dir, "fleet.yaml")
	check(w, os.WriteFile(path, []byte(text), 0o600))
	if code, out := w.command("apply", "-f", path, "--wait", "--timeout", "3m"); code != 0 {
		w.Fatalf("apply ended with %d:\n%s", code, out)
	}
}

// An older client declares real hosts, a newer one changes the object, reverts it, and asks again:
// each change of the hash is one rollout, and nothing else is.
func TestDeclaredFleetIsBroughtToItsSpecAndBack(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02")
	w.Publish("1.1.0", w.Programs.Agent)
	wantRollouts := func(n int) {
		t.Helper()
		list, err := harness.Get[adminapi.RolloutList](t.Context(), w.Server, "/api/v1/rollouts")
		check(t, err)
		if list.Total != n {
			t.Errorf("there are %d rollouts, want %d", list.Total, n)
		}
	}
	w.declare(`
apiVersion: muster.dev/v1alpha1
kind: Fleet
metadata: {name: edge}
spec:
  requestRollout: 7a9c1a46-5a21-4f3b-8f7e-1d8c1ad8a001
  selector: {all: true}
  agentVersion: 1.1.0
  strategy: {kind: canary, canary: {size: 1}}
  health: {wait: 1s}
`)
	w.upgraded(w.Hosts[0], "1.1.0")
	w.upgraded(w.Hosts[1], "1.1.0")
	wantRollouts(1)
	const v1alpha2 = `
apiVersion: muster.dev/v1alpha2
kind: Fleet
metadata: {name: edge}
spec:
  selector: {all: true}
  agent: {version: VERSION}
  strategy: {kind: canary, canary: {size: 1}}
  health: {wait: 1s}
  limits: {max_parallel: 2}
`
	w.declare(strings.Replace(v1alpha2, "VERSION", "1.1.0", 1)) // the same, and a limit
	w.declare(strings.Replace(v1alpha2, "VERSION", "1.0.0", 1))
	for _, h := range w.Hosts {
		if v, err := h.Runs(); err != nil || !strings.HasPrefix(v, "1.0.0-") {
			t.Errorf("%s runs %s, %v", h.Name, v, err)
		}
	}
	wantRollouts(2)
}
