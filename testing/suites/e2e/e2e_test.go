package e2e

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// parallelTests is how many tests run at the same time: they mostly wait, for polls,
// watches and backoffs.
const parallelTests = 6

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(parallelTests, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	os.Exit(harness.With(esnode.With(m)).Run())
}

// world is a harness.World that also follows the server's events.
type world struct {
	*harness.World

	mu     sync.Mutex
	phases map[string][]string // by agent: its phases in the event stream, in order
}

// newWorld returns a world with hosts of version 1.0.0.
func newWorld(t *testing.T, o harness.HostOptions, hostNames ...string) *world {
	t.Helper()
	t.Parallel()
	w := &world{World: harness.NewWorld(t), phases: map[string][]string{}}
	check(t, w.Server.Follow(t.Context(), w.recordPhase))
	w.AddHosts("1.0.0", o, hostNames...)
	return w
}

// recordPhase records the phases in the event stream.
func (w *world) recordPhase(e adminapi.Event) {
	if e.Type != "agent.upgrade" || e.Data == nil {
		return
	}
	details, _ := (*e.Data)["upgrade_details"].(map[string]any)
	if details == nil {
		return
	}
	phase := fmt.Sprint(details["state"])
	w.mu.Lock()
	defer w.mu.Unlock()
	if seen := w.phases[e.Subject]; len(seen) == 0 || seen[len(seen)-1] != phase {
		w.phases[e.Subject] = append(seen, phase)
	}
}

func (w *world) seen(h *harness.Host) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.phases[h.ID])
}

// waitPhase waits until a host is in a phase.
func (w *world) waitPhase(h *harness.Host, state adminapi.UpgradeState) {
	w.Helper()
	w.Wait(h, "is in "+string(state), func(a adminapi.Agent) bool { return a.UpgradeDetails != nil && a.UpgradeDetails.State == state })
}

// upgraded waits for a successful upgrade, and checks everything that must then hold.
func (w *world) upgraded(h *harness.Host, version string) {
	w.Helper()
	a := w.Wait(h, "has been upgraded to "+version, func(a adminapi.Agent) bool {
		return a.Agent.Version == version && a.UpgradeDetails == nil && a.UpgradeStartedAt == nil
	})
	if a.UpgradedAt == nil || a.UpgradeStatus != nil || a.Status != fleet.StatusOnline {
		w.Errorf("%s after its upgrade: upgraded_at %v, upgrade_status %v, status %s", h.Name, a.UpgradedAt, a.UpgradeStatus, a.Status)
	}
	w.onDisk(h, version)
	w.result(h, version, "")
}

// diesAtStart are the reasons of a version that ends at once: on a busy machine its process can be
// gone before the watcher has looked.
var diesAtStart = []string{string(handoff.ReasonCrashLoop), string(handoff.ReasonNotStarted)}

// rolledBack waits for a rollback with one of the reasons, and checks everything that must then
// hold.
func (w *world) rolledBack(h *harness.Host, from, back string, reasons ...string) {
	w.Helper()
	a := w.Wait(h, "has been rolled back to "+back, func(a adminapi.Agent) bool {
		return a.Agent.Version == back && a.UpgradeStatus != nil && *a.UpgradeStatus == fleet.UpgradeRolledBack && reasonCode(a) != ""
	})
	if a.UpgradeStartedAt != nil || a.UpgradedAt != nil || a.Status != fleet.StatusOnline {
		w.Errorf("%s after its rollback: upgrade_started_at %v, upgraded_at %v, status %s", h.Name, a.UpgradeStartedAt, a.UpgradedAt, a.Status)
	}
	if got := reasonCode(a); !slices.Contains(reasons, got) {
		w.Errorf("%s was rolled back for %q, want one of %q", h.Name, got, reasons)
	}
	if a.UpgradeDetails.State != agentapi.UpgradeRollback || a.UpgradeDetails.TargetVersion != from {
		w.Errorf("details after the rollback: %+v", a.UpgradeDetails)
	}
	w.onDisk(h, back)
	w.result(h, from, *a.UpgradeDetails.Metadata.Reason)
}

func reasonCode(a adminapi.Agent) string {
	if d := a.UpgradeDetails; d != nil && d.Metadata != nil && d.Metadata.ReasonCode != nil {
		return *d.Metadata.ReasonCode
	}
	return ""
}

// onDisk checks that exactly this version is active on the host, and that
// nothing of the upgrade is pending.
func (w *world) onDisk(h *harness.Host, version string) {
	w.Helper()
	harness.Eventually(w, h.Name+" has its final state on disk", func() error {
		if _, err := os.Lstat(layout.Path(h.Top, layout.MarkerFile)); err == nil {
			return fmt.Errorf("the marker is still there")
		}
		runs, err := h.Runs()
		if err != nil {
			return err
		}
		if !strings.HasPrefix(runs, version+"-") {
			return fmt.Errorf("the pointer leads to %s", runs)
		}
		commit, err := os.ReadFile(layout.Path(h.Top, layout.ActiveCommitFile))
		if err != nil {
			return err
		}
		if !strings.HasSuffix(runs, "-"+string(commit[:6])) {
			return fmt.Errorf("active commit is %s, the pointer leads to %s", commit, runs)
		}
		return nil
	})
}

// result checks the result document of the newest action for a version.
func (w *world) result(h *harness.Host, version, wantError string) {
	w.Helper()
	harness.Eventually(w, "the action has "+h.Name+"'s result", func() error {
		list, err := harness.Get[adminapi.ActionStatusList](w.Context(), w.Server, "/api/fleet/agents/action_status?errorSize=100")
		if err != nil {
			return err
		}
		for _, s := range list.Items {
			if s.Version == nil || *s.Version != version {
				continue
			}
			if wantError == "" {
				if s.NbAgentsAck > 0 && s.NbAgentsFailed == 0 {
					return nil
				}
				return fmt.Errorf("acked %d, failed %d", s.NbAgentsAck, s.NbAgentsFailed)
			}
			for _, e := range s.LatestErrors {
				if e.AgentId == h.ID && strings.Contains(e.Error, wantError) {
					return nil
				}
			}
			return fmt.Errorf("its errors are %+v, want %q", s.LatestErrors, wantError)
		}
		return fmt.Errorf("there is no action for %s", version)
	})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
