//go:build release && linux

package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/docker"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// patience bounds every wait: ten times what a step takes on an idle machine.
const patience = 90 * time.Second

var errStill = errors.New("not yet")

// built are the programs of all tests.
var built = sync.OnceValues(func() (toolchain.Programs, error) {
	root, err := toolchain.Root()
	if err != nil {
		return toolchain.Programs{}, err
	}
	if binDir, err = os.MkdirTemp("", "muster-elsewhere-bin-"); err != nil {
		return toolchain.Programs{}, err
	}
	packages = harness.NewCache(filepath.Join(binDir, "packages"))
	return toolchain.ProgramsForTests(context.Background(), root, binDir)
})

var (
	binDir   string
	packages *harness.Cache
)

func TestMain(m *testing.M) {
	code := docker.With(m)
	if binDir != "" {
		os.RemoveAll(binDir)
	}
	os.Exit(code)
}

// world is a server and a publisher, whose version 1.0.0 is published.
type world struct {
	*testing.T
	*harness.Fleet
	server    *harness.Server
	publisher *harness.Publisher
	archives  map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	p, err := built()
	// Not t.TempDir: its path is too long for a control socket.
	dir, derr := os.MkdirTemp("", "mels-")
	w := &world{T: t, Fleet: &harness.Fleet{Dir: dir, Programs: p, Cache: packages}, archives: map[string]string{}}
	w.ok("build the programs", errors.Join(err, derr))
	t.Cleanup(w.close)
	w.publisher = w.NewPublisher("publisher")
	w.server, err = w.StartServer(t.Context())
	w.ok("start a server", err)
	w.publish("1.0.0", p.Agent)
	return w
}

func (w *world) close() {
	if w.server != nil {
		if err := w.server.Stop(); err != nil {
			w.Error(err)
		}
	}
	if w.Failed() {
		files, _ := filepath.Glob(filepath.Join(w.Dir, "*.log"))
		for _, f := range files {
			text, _ := os.ReadFile(f)
			w.Logf("%s:\n%s", filepath.Base(f), text)
		}
	}
	os.RemoveAll(w.Dir)
}

func (w *world) ok(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

func (w *world) publish(version, agent string) {
	w.Helper()
	archive, err := w.publisher.Package(w.Context(), version, agent)
	w.ok("build "+version, err)
	w.archives[version] = archive
	w.ok("publish "+version, w.server.Publish(w.Context(), w.publisher, archive))
}

// enrollment returns the flags that enrol a host.
func (w *world) enrollment() []string {
	s := w.server.Info
	return []string{"--url", s.AgentURL, "--ca-pin", s.CAPin, "--trust-root", w.publisher.TrustRoot}
}

// online waits until a host has so many agents at the server, and returns the id of the one that
// is online with a version.
func (w *world) online(name, version string) (id string) {
	w.Helper()
	w.eventually(name+" is online with "+version, func() error {
		agents, err := w.server.Agents(w.Context())
		if err != nil {
			return err
		}
		i := slices.IndexFunc(agents, func(a adminapi.Agent) bool {
			return harness.Hostname(a) == name && a.Status == fleet.StatusOnline && a.Agent.Version == version
		})
		if i < 0 {
			return fmt.Errorf("it is not among %d agents", len(agents))
		}
		id = agents[i].Id
		return nil
	})
	return id
}

func (w *world) upgrade(id, version string) {
	w.Helper()
	_, err := w.server.CLI(w.Context(), "agents", "upgrade", "--version", version, id)
	w.ok("order the upgrade", err)
}

// wait waits until the server's view of an agent is so.
func (w *world) wait(id, what string, so func(adminapi.Agent) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	_, err := w.server.Wait(ctx, id, "the agent "+what, so)
	w.ok("wait", err)
}

// upgraded waits until an upgrade is committed.
func (w *world) upgraded(id, version string) {
	w.Helper()
	w.wait(id, "has "+version+" for good", func(a adminapi.Agent) bool {
		return a.Agent.Version == version && a.Status == fleet.StatusOnline && a.UpgradeDetails == nil && a.UpgradeStartedAt == nil &&
			a.Watch != nil && a.Watch.Stage == agentapi.BeaconCommitted
	})
}

// rolledBack waits until a version was rolled back to another. The watcher reports the reason before
// it restarts the agent, and the end of the watch after that.
func (w *world) rolledBack(id, to, reason string) {
	w.Helper()
	w.wait(id, "was rolled back to "+to+" for "+reason, func(a adminapi.Agent) bool {
		return a.Agent.Version == to && a.Status == fleet.StatusOnline && a.UpgradeStatus != nil && *a.UpgradeStatus == fleet.UpgradeRolledBack &&
			a.Watch != nil && a.Watch.Stage == agentapi.BeaconRolledBack && a.UpgradeDetails != nil && a.UpgradeDetails.Metadata != nil && a.UpgradeDetails.Metadata.ReasonCode != nil && *a.UpgradeDetails.Metadata.ReasonCode == reason
	})
}

// running returns whether an agent has a version after another was rolled back.
func running(version, rolledBack string) func(adminapi.Agent) bool {
	return func(a adminapi.Agent) bool {
		return a.Agent.Version == version && a.Status == fleet.StatusOnline && a.UpgradeDetails != nil &&
			a.Watch != nil && a.Watch.Stage == agentapi.BeaconRolledBack && a.UpgradeDetails.TargetVersion == rolledBack && a.UpgradeDetails.State == agentapi.UpgradeRollback
	}
}

// eventually calls f until it returns nil.
func (w *world) eventually(what string, f func() error) {
	w.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("timed out waiting until %s: %v", what, err)
		}
	}
}
