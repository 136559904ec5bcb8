package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// longWatch leaves time to disturb the watch, also on a busy machine. Its failure limits are
// longer than any of the disturbances.
const longWatch = `upgrade:
  watch:
    interval: 500ms
    grace: 30s
    failed_for: 1m
`

func TestServiceIsUpgradedThroughAKilledWatcherAndAReboot(t *testing.T) {
	w := newWorld(t, harness.HostOptions{})
	m := newMachine(t, w, "web-01", "/opt/muster")
	if m.agent != "muster-agent" {
		t.Errorf("in its usual place the service is called %q", m.agent)
	}
	m.configure(longWatch)
	w.Online("", m.host)
	if state := m.Property(m.watcher, "ActiveState") + "/" + m.Property(m.watcher, "UnitFileState"); state != "inactive/enabled" {
		t.Errorf("before any upgrade the watcher's unit is %s", state)
	}
	first := m.Property(m.agent, "MainPID")

	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", m.host)
	w.waitPhase(m.host, agentapi.UpgradeWatching)
	if now := m.Property(m.agent, "MainPID"); now != first || m.Property(m.agent, "NRestarts") != "0" {
		t.Errorf("the service is process %s, was %s, with %s restarts: want the same process", now, first, m.Property(m.agent, "NRestarts"))
	}
	m.standsAlone()
	m.writesOnlyItsOwnFolder()
	m.survivesAKilledWatcher()
	m.survivesTheAgentsStop()
	m.goesOnAfterAReboot()

	w.upgraded(m.host, "1.1.0")
	m.waitProperty(m.watcher, "ActiveState", "inactive")
	if result := m.Property(m.watcher, "Result"); result != "success" {
		t.Errorf("the watcher's unit ended with %s", result)
	}
	m.isUninstalled()
}

// standsAlone checks that the watcher has a control group of its own, and that the agent's
// has only the agent.
func (m *machine) standsAlone() {
	m.t.Helper()
	m.waitProperty(m.watcher, "ActiveState", "active")
	for _, unit := range []string{m.agent, m.watcher} {
		pid := m.Property(unit, "MainPID")
		own := m.Property(unit, "ControlGroup")
		if !strings.HasSuffix(own, "/"+unit+".service") {
			m.t.Errorf("%s is in the control group %s", unit, own)
		}
		if groups := m.Must("cat", "/proc/"+pid+"/cgroup"); !strings.Contains(groups+"\n", own+"\n") {
			m.t.Errorf("process %s of %s is in the groups\n%s\nwant %s", pid, unit, groups, own)
		}
		// The watcher asks systemd by a program of an instant.
		harness.Eventually(m.t, "the process of "+unit+" is alone in its control group", func() error {
			in := m.Must("sh", "-c", `cat /sys/fs/cgroup"$0"/cgroup.procs /sys/fs/cgroup/systemd"$0"/cgroup.procs 2>/dev/null | sort -u`, own)
			if in != pid {
				return fmt.Errorf("in the group are the processes %q, want %s", in, pid)
			}
			return nil
		})
	}
}

// writesOnlyItsOwnFolder checks what the services' sandboxes permit, in their view of the
// file system.
func (m *machine) writesOnlyItsOwnFolder() {
	m.t.Helper()
	for _, unit := range []string{m.agent, m.watcher} {
		got := m.Must("nsenter", "--target", m.Property(unit, "MainPID"), "--mount", "sh", "-c",
			`for d in /usr /etc /boot /var/lib /srv /home /root; do [ -d $d ] && touch $d/.probe 2>/dev/null && echo $d; done; touch "$0/.probe" && rm "$0/.probe" && echo own`, m.top)
		if got != "own" {
			m.t.Errorf("%s can write to %q, want only its own folder", unit, got)
		}
	}
}

func (m *machine) survivesAKilledWatcher() {
	m.t.Helper()
	before := m.Property(m.watcher, "MainPID")
	m.kill(before)
	harness.Eventually(m.t, "another watcher watches", func() error {
		if pid := m.Property(m.watcher, "MainPID"); pid == before || pid == "0" || m.Property(m.watcher, "ActiveState") != "active" {
			return errStillThere
		}
		return nil
	})
}

func (m *machine) survivesTheAgentsStop() {
	m.t.Helper()
	watcher := m.Property(m.watcher, "MainPID")
	m.Must("systemctl", "stop", m.agent)
	if now := m.Property(m.watcher, "MainPID"); now != watcher || m.Property(m.watcher, "ActiveState") != "active" {
		m.t.Errorf("when the agent was stopped, the watcher went from process %s to %s", watcher, now)
	}
	m.Must("systemctl", "start", m.agent)
	m.kill(m.Property(m.agent, "MainPID"))
	m.waitProperty(m.agent, "ActiveState", "active")
	if now := m.Property(m.watcher, "MainPID"); now != watcher {
		m.t.Errorf("when the agent was killed, the watcher went from process %s to %s", watcher, now)
	}
}

func (m *machine) goesOnAfterAReboot() {
	m.t.Helper()
	began := time.Now()
	check(m.t, m.PowerOff(m.t.Context()))
	// A unit that ignores its stop costs its TimeoutStopSec.
	if took := time.Since(began); took > 15*time.Second {
		m.t.Errorf("the shutdown took %s: something did not stop when it was asked to", took)
	}
	m.on()
	m.waitProperty(m.watcher, "ActiveState", "active")
}

func (m *machine) isUninstalled() {
	m.t.Helper()
	m.Must(m.top+"/muster-agent", "uninstall", "--yes")
	for what, left := range map[string]string{
		"units":      m.Must("systemctl", "list-units", "--all", "--no-legend", "--plain", "muster*"),
		"unit files": m.Must("sh", "-c", "systemctl list-unit-files --no-legend 'muster*' || true"), // it fails when there are none
		"files":      m.Must("find", "/etc", "/run", "/usr", "/opt", "/srv", "/var/lib", "-iname", "*muster*"),
		"processes":  m.processes(),
	} {
		if left != "" {
			m.t.Errorf("after uninstall there are %s: %s", what, left)
		}
	}
	m.w.Wait(m.host, "is known to be uninstalled", func(a adminapi.Agent) bool { return a.Status == fleet.StatusUninstalled })
}

// bound is the goal: with default settings, a new version that dies at every start is found
// within fifteen seconds of its first start.
const crashLoopDecided = 15 * time.Second

// An unusual folder, which service definitions must quote.
func TestCrashLoopIsFoundWithinFifteenSecondsWithDefaultSettings(t *testing.T) {
	w := newWorld(t, harness.HostOptions{})
	m := newMachine(t, w, "db-01", "/srv/100% my $HOME agent")
	w.Publish("1.2.0", w.Programs.CrashLooper)
	w.Upgrade("1.2.0", m.host)
	w.rolledBack(m.host, "1.2.0", "1.0.0", "crash_loop")
	switched, decided := m.logged(layout.AgentLogFile, "agent restarts as another version"), m.logged(layout.WatcherLogFile, "rolling back")
	if took := decided.Sub(switched); switched.IsZero() || decided.IsZero() || took > crashLoopDecided {
		t.Errorf("from the switch (%s) to the decision (%s) it took %s, want at most %s", switched, decided, took, crashLoopDecided)
	} else {
		t.Logf("from the switch to the decision: %s", took)
	}
	m.waitProperty(m.watcher, "ActiveState", "inactive")
	m.isUninstalled()
}

func TestPowerCutDuringABadUpgradeEndsWithTheOldVersion(t *testing.T) {
	for name, moment := range map[string]func(*machine) error{ // returns nil at that moment
		// This early the power cut may undo the switch itself, which is then repeated.
		"as soon as the pointer is seen to lead to the new version": pointsTo12,
		"after the new version has died once": func(m *machine) error {
			if err := pointsTo12(m); err != nil {
				return err
			}
			if m.Property(m.agent, "NRestarts") == "0" {
				return errStillThere
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, harness.HostOptions{})
			m := newMachine(t, w, "web-02", "/opt/muster")
			w.Publish("1.2.0", w.Programs.CrashLooper)
			w.Upgrade("1.2.0", m.host)
			harness.Eventually(t, "the moment of the power cut", func() error { return moment(m) })
			check(t, m.PowerCut())
			m.on()
			m.endsAt10()
		})
	}
}

func pointsTo12(m *machine) error {
	runs, err := m.host.Runs()
	if err == nil && !strings.HasPrefix(runs, "1.2.0-") {
		return errStillThere
	}
	return err
}

// endsAt10 checks that without help 1.0.0 runs, nothing is pending, and both the server
// and the host have the result of the upgrade to 1.2.0.
func (m *machine) endsAt10() {
	m.t.Helper()
	m.w.Wait(m.host, "has recovered from the power cut", func(a adminapi.Agent) bool {
		return a.Agent.Version == "1.0.0" && a.Status == fleet.StatusOnline && a.UpgradeStatus != nil && reasonCode(a) != ""
	})
	m.w.rolledBack(m.host, "1.2.0", "1.0.0", "crash_loop")
	// The watcher may have reported it before the agent is connected and healthy again.
	harness.Eventually(m.t, "muster-agent status says why", func() error {
		says, err := m.Run(m.t.Context(), m.top+"/muster-agent", "status")
		if err != nil || !strings.Contains(says, "1.0.0") || !strings.Contains(says, "1.2.0 was rolled back: The process of 1.2.0") {
			return errors.Join(fmt.Errorf("it says\n%s", says), err)
		}
		return nil
	})
	m.waitProperty(m.watcher, "ActiveState", "inactive")
	if _, err := os.Lstat(layout.Path(m.host.Top, layout.DecisionFile)); err == nil {
		m.t.Error("the decision is still there")
	}
}
