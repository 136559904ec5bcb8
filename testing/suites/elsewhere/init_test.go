//go:build release && linux

package elsewhere

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
)

// initSystem is one whose process 1 is not systemd.
type initSystem struct {
	nspawn.Init
	name string
	// service returns the command that does something with a service.
	service func(name, verb string) []string
}

var (
	withOpenRC = initSystem{nspawn.OpenRC, "openrc", func(name, verb string) []string { return []string{"rc-service", name, verb} }}
	withSysV   = initSystem{nspawn.SystemV, "sysv", func(name, verb string) []string { return []string{"service", name, verb} }}
)

// initMachine is a machine that runs an init system.
type initMachine struct {
	*world
	*nspawn.Machine
	initSystem
}

// initMachine starts a machine.
func (w *world) initMachine(i initSystem) *initMachine {
	w.Helper()
	return &initMachine{w, nspawn.Start(w, nspawn.Options{
		Name: i.name, Init: i.Init, Share: w.share(),
		Logs: []string{filepath.Join("/opt/muster", layout.AgentLogFile), filepath.Join("/opt/muster", layout.WatcherLogFile)},
	}), i}
}

// agent returns the process id of the agent.
func (m *initMachine) agent() string {
	text, _ := os.ReadFile(m.Path("/opt/muster/data/agent.lock")) // not yet
	return strings.TrimSpace(string(text))
}

// runsAgain waits until another agent than one that has ended runs.
func (m *initMachine) runsAgain(ended string) {
	m.Helper()
	harness.Eventually(m.TB, "the agent runs again", func() error {
		pid := m.agent()
		if pid == "" || pid == ended {
			return errStill
		}
		_, err := m.Run(m.Context(), "sh", "-c", "kill -0 "+pid)
		return err
	})
}

func TestAgentUnderOpenRC(t *testing.T)  { story(t, withOpenRC) }
func TestAgentUnderSystemV(t *testing.T) { story(t, withSysV) }

// install installs the agent as a service, and starts it again with its settings.
func (m *initMachine) install() {
	m.Helper()
	out := m.Must(slices.Concat([]string{m.Programs.Agent, "install", "--package", m.Archives["1.0.0"]}, m.Enrollment())...)
	if !strings.Contains(out, "Runs as service muster-agent.") {
		m.Fatalf("install says %s", out)
	}
	m.ok("configure the agent", os.WriteFile(m.Path("/opt/muster/agent.yml"), []byte(shortWatch), 0o600))
	// The script's process is not yet the program's in the moment in which it has been started.
	harness.Eventually(m.TB, "the service runs", func() error {
		_, err := m.Run(m.Context(), m.service("muster-agent", "status")...)
		return err
	})
	first := m.agent()
	m.Must(m.service("muster-agent", "restart")...)
	m.runsAgain(first)
}

// story is the life of an agent as a service: installed, restarted, upgraded, rolled back, through
// a power cut, and uninstalled.
func story(t *testing.T, i initSystem) {
	nspawn.Require(t, i.Init)
	m := newWorld(t).initMachine(i)
	m.install()
	killed := m.agent()
	m.Must("sh", "-c", "kill -KILL "+killed)
	m.runsAgain(killed)
	h := m.online(m.name, "1.0.0")

	m.Publish("1.1.0", m.Programs.Agent)
	before := m.agent()
	m.Upgrade("1.1.0", h)
	m.upgraded(h, "1.1.0")
	if now := m.agent(); now != before {
		m.Errorf("the upgraded agent is process %s, was %s: the service manager saw it end", now, before)
	}
	m.Publish("1.2.0", m.Programs.CrashLooper)
	m.Upgrade("1.2.0", h)
	m.rolledBack(h, "1.1.0", "not_started")
	m.Must(m.service("muster-agent", "status")...)

	m.comesBackAfterAPowerCut(h)
	m.isUninstalled()
}

// comesBackAfterAPowerCut cuts the power while a version is watched that does not start. Nothing of
// that version can start its watcher; the host does.
func (m *initMachine) comesBackAfterAPowerCut(h *harness.Host) {
	m.Publish("1.3.0", m.Programs.CrashLooper)
	m.Upgrade("1.3.0", h)
	harness.Eventually(m.TB, "the pointer leads to 1.3.0", func() error {
		to, err := os.Readlink(m.Path("/opt/muster/" + layout.AgentLink))
		if err == nil && !strings.Contains(to, "1.3.0") {
			err = errStill
		}
		return err
	})
	m.ok("cut the power", m.PowerCut())
	m.On()
	m.Wait(h, "has 1.1.0 again", running("1.1.0", "1.3.0"))
}

func (m *initMachine) isUninstalled() {
	harness.Eventually(m.TB, "the agent is uninstalled", func() error { // the watcher may still be sending its last report
		out, err := m.Run(m.Context(), "/opt/muster/muster-agent", "uninstall", "--yes")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	if left := m.Must("find", "/etc", "/run", "/opt", "/var", "/usr", "-iname", "*muster*"); left != "" {
		m.Errorf("after uninstall there are %s", left)
	}
	if left := m.Must("sh", "-c", "ls -l /proc/[0-9]*/exe 2>/dev/null | grep -F /opt/muster || true"); left != "" {
		m.Errorf("after uninstall there run %s", left)
	}
}
