package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
)

// machine is a host with a real systemd, where the agent is a service.
type machine struct {
	*nspawn.Machine
	t    *testing.T
	w    *world
	top  string // the path inside the machine
	host *harness.Host
	// agent and watcher are the names of the services.
	agent, watcher string
}

// newMachine installs 1.0.0 as a service on a fresh machine.
func newMachine(t *testing.T, w *world, name, top string) *machine {
	t.Helper()
	m := freshMachine(t, w, name, top)
	m.install(w.Programs.Agent, "--top", top, "--package", w.Archives["1.0.0"])
	return m
}

// freshMachine boots a machine without an agent.
func freshMachine(t *testing.T, w *world, name, top string) *machine {
	t.Helper()
	vm := nspawn.Start(t, nspawn.Options{
		Name: name, Share: []string{filepath.Dir(w.Programs.Agent), filepath.Join(w.Dir, "packages")},
		Logs: []string{filepath.Join(top, layout.AgentLogFile), filepath.Join(top, layout.WatcherLogFile)},
	})
	return &machine{Machine: vm, t: t, w: w, top: top, host: &harness.Host{Name: name, Top: vm.Path(top)}}
}

// install installs the agent as a service, and enrols it.
func (m *machine) install(program string, flags ...string) {
	m.t.Helper()
	out := m.Must(slices.Concat([]string{program, "install"}, flags, m.w.Enrollment())...)
	_, after, _ := strings.Cut(out, "Runs as service ")
	m.agent, _, _ = strings.Cut(after, ".")
	m.watcher = m.agent + "-watcher"
	m.w.Online("", m.host)
}

// on boots the machine.
func (m *machine) on() {
	m.t.Helper()
	m.On()
	m.host.Top = m.Path(m.top)
}

func (m *machine) kill(pid string) {
	m.t.Helper()
	m.Must("sh", "-c", "kill -KILL "+pid)
}

// waitProperty waits until a unit's property has one of some values.
func (m *machine) waitProperty(unit, name, want string) {
	m.t.Helper()
	harness.Eventually(m.t, fmt.Sprintf("%s of %s is %s", name, unit, want), func() error {
		if got := m.Property(unit, name); got != want {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
}

// configure writes the agent's settings and syncs only them.
func (m *machine) configure(text string) {
	m.t.Helper()
	m.write(layout.Path(m.top, layout.ConfigFile), text)
	m.Must("systemctl", "restart", m.agent)
}

// write writes a file in the machine and syncs only that one.
func (m *machine) write(path, text string) {
	m.t.Helper()
	f, err := os.Create(m.Path(path))
	check(m.t, err)
	_, err = f.WriteString(text)
	check(m.t, err)
	check(m.t, f.Sync())
	check(m.t, f.Close())
}

// processes lists what runs from the top folder.
func (m *machine) processes() string {
	out, _ := m.Run(m.t.Context(), "sh", "-c", `for p in /proc/[0-9]*; do readlink $p/exe; done | grep -F "$0/" || true`, m.top)
	return strings.TrimSpace(out)
}

// logged returns the time of the first line of the agent's or the watcher's logs that
// contains a text, or the zero time.
func (m *machine) logged(log, words string) time.Time {
	m.t.Helper()
	text, err := os.ReadFile(layout.Path(m.host.Top, log))
	check(m.t, err)
	for line := range strings.Lines(string(text)) {
		stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil && strings.Contains(line, words) {
			return at
		}
	}
	return time.Time{}
}
