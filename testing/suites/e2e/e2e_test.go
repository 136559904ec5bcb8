package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// programs are built once for all tests.
var programs = sync.OnceValues(func() (toolchain.Programs, error) {
	root, err := toolchain.Root()
	if err != nil {
		return toolchain.Programs{}, err
	}
	dir, err := os.MkdirTemp("", "muster-e2e-bin-")
	if err != nil {
		return toolchain.Programs{}, err
	}
	binDir, packageCache = dir, harness.NewCache(filepath.Join(dir, "packages"))
	return toolchain.ProgramsForTests(context.Background(), root, dir)
})

var (
	binDir string
	// packageCache caches the packages: most tests use the same few, each with its own
	// signer.
	packageCache *harness.Cache
)

// parallelTests is how many tests run at the same time: they mostly wait, for polls,
// watches and backoffs.
const parallelTests = 6

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(parallelTests, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	code := m.Run()
	if binDir != "" {
		os.RemoveAll(binDir)
	}
	os.Exit(code)
}

// waitLimit bounds every wait: ten times what a step takes on an idle machine.
const waitLimit = 60 * time.Second

// world is a server, a publisher, and some hosts with version 1.0.0.
type world struct {
	t *testing.T
	*harness.Fleet
	server    *harness.Server
	publisher *harness.Publisher
	hosts     []*harness.Host
	archives  map[string]string

	mu     sync.Mutex
	phases map[string][]string // by agent: its phases in the event stream, in order
}

func newWorld(t *testing.T, o harness.HostOptions, hostNames ...string) *world {
	t.Helper()
	t.Parallel()
	return newWorldAlone(t, o, hostNames...)
}

// newWorldAlone is newWorld of a test beside which no other of the package runs.
func newWorldAlone(t *testing.T, o harness.HostOptions, hostNames ...string) *world {
	t.Helper()
	p, err := programs()
	check(t, err)
	// Not t.TempDir: its path is too long for a control socket.
	dir, err := os.MkdirTemp("", "me2e-")
	check(t, err)
	w := &world{t: t, Fleet: &harness.Fleet{Dir: dir, Programs: p, Cache: packageCache}, archives: map[string]string{}, phases: map[string][]string{}}
	t.Cleanup(w.close)
	ctx := t.Context()
	w.publisher = w.NewPublisher("publisher")
	w.server, err = w.StartServer(ctx)
	check(t, err)
	w.publish("1.0.0", p.Agent)
	check(t, w.server.Follow(ctx, w.recordPhase))
	for _, name := range hostNames {
		h, err := w.Install(ctx, w.server, w.publisher, w.archives["1.0.0"], name, o)
		check(t, err)
		w.hosts = append(w.hosts, h)
		check(t, h.Start())
	}
	w.identify()
	return w
}

func (w *world) close() {
	for _, h := range w.hosts {
		if err := h.Stop(); err != nil {
			w.t.Error(err)
		}
	}
	if w.server != nil {
		if err := w.server.Stop(); err != nil {
			w.t.Error(err)
		}
	}
	if w.t.Failed() {
		for _, pattern := range []string{"*.log", "*/data/agent.log", "*/data/watcher.log", "*/var/lib/*/data/*.log"} {
			files, _ := filepath.Glob(filepath.Join(w.Dir, pattern))
			for _, f := range files {
				b, _ := os.ReadFile(f)
				w.t.Logf("%s:\n%s", strings.TrimPrefix(f, w.Dir), b)
			}
		}
	}
	os.RemoveAll(w.Dir)
}

// publish builds, signs and pushes a package.
func (w *world) publish(version, agent string) {
	w.t.Helper()
	archive, err := w.publisher.Package(w.t.Context(), version, agent)
	check(w.t, err)
	w.archives[version] = archive
	check(w.t, w.server.Publish(w.t.Context(), w.publisher, archive))
}

func (w *world) identify() {
	w.t.Helper()
	for _, h := range w.hosts {
		w.online(h)
	}
}

// online waits until a host is online, and stores its id.
func (w *world) online(h *harness.Host) {
	w.t.Helper()
	eventually(w.t, h.Name+" is online", func() error {
		agents, err := w.server.Agents(w.t.Context())
		if err != nil {
			return err
		}
		i := slices.IndexFunc(agents, func(a adminapi.Agent) bool {
			return harness.Hostname(a) == h.Name && a.Status == fleet.StatusOnline
		})
		if i < 0 {
			return fmt.Errorf("it is not among %d agents", len(agents))
		}
		h.ID = agents[i].Id
		return nil
	})
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

func (w *world) upgrade(version string, hosts ...*harness.Host) {
	w.t.Helper()
	args := []string{"agents", "upgrade", "--version", version}
	for _, h := range hosts {
		args = append(args, h.ID)
	}
	_, err := w.server.CLI(w.t.Context(), args...)
	check(w.t, err)
}

// wait waits until ok returns true for the server's view of a host.
func (w *world) wait(h *harness.Host, what string, ok func(adminapi.Agent) bool) adminapi.Agent {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitLimit)
	defer cancel()
	a, err := w.server.Wait(ctx, h.ID, h.Name+" "+what, ok)
	check(w.t, err)
	return a
}

// waitPhase waits until a host is in a phase.
func (w *world) waitPhase(h *harness.Host, state adminapi.UpgradeState) {
	w.t.Helper()
	w.wait(h, "is in "+string(state), func(a adminapi.Agent) bool { return a.UpgradeDetails != nil && a.UpgradeDetails.State == state })
}

// upgraded waits for a successful upgrade, and checks everything that must then hold.
func (w *world) upgraded(h *harness.Host, version string) {
	w.t.Helper()
	a := w.wait(h, "has been upgraded to "+version, func(a adminapi.Agent) bool {
		return a.Agent.Version == version && a.UpgradeDetails == nil && a.UpgradeStartedAt == nil
	})
	if a.UpgradedAt == nil || a.UpgradeStatus != nil || a.Status != fleet.StatusOnline {
		w.t.Errorf("%s after its upgrade: upgraded_at %v, upgrade_status %v, status %s", h.Name, a.UpgradedAt, a.UpgradeStatus, a.Status)
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
	w.t.Helper()
	a := w.wait(h, "has been rolled back to "+back, func(a adminapi.Agent) bool {
		return a.Agent.Version == back && a.UpgradeStatus != nil && *a.UpgradeStatus == fleet.UpgradeRolledBack && reasonCode(a) != ""
	})
	if a.UpgradeStartedAt != nil || a.UpgradedAt != nil || a.Status != fleet.StatusOnline {
		w.t.Errorf("%s after its rollback: upgrade_started_at %v, upgraded_at %v, status %s", h.Name, a.UpgradeStartedAt, a.UpgradedAt, a.Status)
	}
	if got := reasonCode(a); !slices.Contains(reasons, got) {
		w.t.Errorf("%s was rolled back for %q, want one of %q", h.Name, got, reasons)
	}
	if a.UpgradeDetails.State != agentapi.UpgradeRollback || a.UpgradeDetails.TargetVersion != from {
		w.t.Errorf("details after the rollback: %+v", a.UpgradeDetails)
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
	w.t.Helper()
	eventually(w.t, h.Name+" has its final state on disk", func() error {
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
	w.t.Helper()
	eventually(w.t, "the action has "+h.Name+"'s result", func() error {
		list, err := harness.Get[adminapi.ActionStatusList](w.t.Context(), w.server, "/api/fleet/agents/action_status?errorSize=100")
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

// eventually calls f until it returns nil, for at most waitLimit.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(waitLimit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
