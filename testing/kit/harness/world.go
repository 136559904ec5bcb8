package harness

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// WaitLimit bounds every wait of a [World], at many times what a step takes on an idle machine.
const WaitLimit = 90 * time.Second

// World is the fleet of a test: a server that has the package 1.0.0, its publisher, and hosts.
// Its methods fail the test.
type World struct {
	testing.TB
	*Fleet
	Server    *Server
	Publisher *Publisher
	Hosts     []*Host
	// Archives are the agent's published packages, by version.
	Archives map[string]string
}

// NewWorld returns a world without hosts, which ends with the test. If the test fails, it shows
// the logs of all programs.
func NewWorld(t testing.TB) *World {
	t.Helper()
	w := emptyWorld(t)
	t.Cleanup(func() {
		for _, err := range w.stop() {
			t.Error(err)
		}
		if t.Failed() {
			w.showLogs()
		}
		_ = os.RemoveAll(w.Dir) // a mount of a failed test may be left in it
	})
	w.start()
	return w
}

// emptyWorld returns a world of which nothing runs yet.
func emptyWorld(t testing.TB) *World {
	t.Helper()
	b, err := Build()
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: its path is too long for a control socket.
	dir, err := os.MkdirTemp("", "mw-")
	if err != nil {
		t.Fatal(err)
	}
	w := &World{TB: t, Fleet: &Fleet{Dir: dir, Programs: b.Programs, Cache: b.cache}, Archives: map[string]string{}}
	w.Publisher = w.NewPublisher("publisher")
	return w
}

func (w *World) start() {
	w.Helper()
	var err error
	w.Server, err = w.StartServer(w.Context())
	w.Check(err)
	w.Publish("1.0.0", w.Programs.Agent)
}

func (w *World) stop() (errs []error) {
	for _, h := range w.Hosts {
		if err := h.Stop(); err != nil {
			errs = append(errs, err)
		}
	}
	if w.Server != nil {
		if err := w.Server.Stop(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func (w *World) showLogs() {
	for _, pattern := range []string{"*.log", "*/data/agent.log", "*/data/watcher.log", "*/var/lib/*/data/*.log"} {
		files, _ := filepath.Glob(filepath.Join(w.Dir, pattern))
		for _, f := range files {
			text, _ := os.ReadFile(f)
			w.Logf("%s:\n%s", strings.TrimPrefix(f, w.Dir), text)
		}
	}
}

// Check fails the test if there is an error.
func (w *World) Check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// Publish builds and publishes a package of the agent.
func (w *World) Publish(version, agent string) {
	w.Helper()
	archive, err := w.Publisher.Package(w.Context(), version, agent)
	w.Check(err)
	w.Add(version, archive)
}

// Add publishes a package of the agent that is built already.
func (w *World) Add(version, archive string) {
	w.Helper()
	w.Archives[version] = archive
	w.Check(w.Server.Publish(w.Context(), w.Publisher, archive))
}

// AddHosts installs hosts with a published version, starts them, and waits until all hosts are
// online. It returns the new ones.
func (w *World) AddHosts(version string, o HostOptions, names ...string) []*Host {
	w.Helper()
	before := len(w.Hosts)
	for _, name := range names {
		h, err := w.Install(w.Context(), w.Server, w.Publisher, w.Archives[version], name, o)
		w.Check(err)
		w.Hosts = append(w.Hosts, h)
		w.Check(h.Start())
	}
	w.Online("", w.Hosts...)
	return w.Hosts[before:]
}

// Enrollment returns the flags that enrol a host.
func (w *World) Enrollment() []string { return HostOptions{}.enrollment(w.Server, w.Publisher) }

// Online waits until hosts are online with a version, or with any if it is empty, and learns their
// ids.
func (w *World) Online(version string, hosts ...*Host) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), WaitLimit)
	defer cancel()
	w.Check(w.Server.Online(ctx, version, hosts...))
}

// Upgrade orders an upgrade of hosts.
func (w *World) Upgrade(version string, hosts ...*Host) {
	w.Helper()
	args := []string{"agents", "upgrade", "--version", version}
	for _, h := range hosts {
		args = append(args, h.ID)
	}
	_, err := w.Server.CLI(w.Context(), args...)
	w.Check(err)
}

// Wait waits until ok returns true for the server's view of a host.
func (w *World) Wait(h *Host, what string, ok func(adminapi.Agent) bool) adminapi.Agent {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), WaitLimit)
	defer cancel()
	a, err := w.Server.Wait(ctx, h.ID, h.Name+" "+what, ok)
	w.Check(err)
	return a
}

// Eventually calls f until it returns nil, for at most WaitLimit.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(WaitLimit); ; time.Sleep(50 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s: %v", what, err)
		}
	}
}
