//go:build release && linux

package elsewhere

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
)

// machine is a host with a real systemd and no agent.
type machine struct {
	*world
	*nspawn.Machine
}

func newMachine(t *testing.T, name string) *machine {
	t.Helper()
	w := newWorld(t)
	return &machine{w, nspawn.Start(t, nspawn.Options{Name: name, Share: w.share()})}
}

// refused runs a program in the machine that must fail, and returns what it says.
func (m *machine) refused(args ...string) string {
	m.Helper()
	out, err := m.Machine.Run(m.Context(), args...)
	if err == nil {
		m.Fatalf("%q succeeded: %s", args, out)
	}
	return out + err.Error()
}

// install returns the arguments that install 1.0.0 in the machine.
func (m *machine) install(flags ...string) []string {
	return slices.Concat([]string{m.Programs.Agent, "install", "--package", m.Archives["1.0.0"]}, m.Enrollment(), flags)
}

func TestSystemWithGeneratedUnitsIsUpgradedAndRolledBack(t *testing.T) {
	m := newMachine(t, "generated")
	// As where units are links into a store: no file may be made among them.
	m.Must("sh", "-c", "mount --bind /etc/systemd/system /etc/systemd/system && mount -o remount,bind,ro /etc/systemd/system")
	says := m.refused(m.install()...)
	for _, want := range []string{"/etc/systemd/system", "read-only file system", "muster-agent units", "--service muster-agent", "--no-service"} {
		if !strings.Contains(says, want) {
			t.Errorf("the refusal does not say %q: %s", want, says)
		}
	}
	if left := m.Must("find", "/opt", "/etc", "-iname", "*muster*"); left != "" {
		t.Errorf("the refused installation leaves %s", left)
	}
	agents, err := m.Server.Agents(t.Context())
	m.ok("list the agents", err)
	if len(agents) > 0 {
		t.Errorf("the refused installation is enrolled")
	}

	// The system's configuration brings the units, here in another folder of systemd.
	m.Must("mkdir", "-p", "/usr/local/lib/systemd/system")
	m.Must(m.Programs.Agent, "units", "--out", "/usr/local/lib/systemd/system")
	m.Must("systemctl", "daemon-reload")
	if says := m.Must(m.install("--service", "muster-agent")...); !strings.Contains(says, "Start the service muster-agent when") {
		t.Errorf("install says %s", says)
	}
	m.ok("configure the agent", os.WriteFile(filepath.Join(m.Path("/opt/muster"), layout.ConfigFile), []byte(shortWatch), 0o600))
	m.Must("systemctl", "start", "muster-agent")
	h := m.online("generated", "1.0.0")
	m.Publish("1.1.0", m.Programs.Agent)
	m.Upgrade("1.1.0", h)
	m.upgraded(h, "1.1.0")
	if log := m.Must("journalctl", "--no-pager", "--unit=muster-agent-watcher"); !strings.Contains(log, "Started muster-agent-watcher.service") && !strings.Contains(log, "Started Muster upgrade watcher") {
		t.Errorf("the watcher's unit was not used: %s", log)
	}
	m.Publish("1.2.0", m.Programs.CrashLooper)
	m.Upgrade("1.2.0", h)
	// systemd waits for 3 s before it starts it again, and the agent's settings say 2 s.
	m.rolledBack(h, "1.1.0", "not_started")
	harness.Eventually(m.TB, "the watcher has ended", func() error {
		if m.Property("muster-agent-watcher", "ActiveState") != "inactive" {
			return errStill
		}
		return nil
	})

	if says := m.refused("/opt/muster/muster-agent", "uninstall", "--yes"); !strings.Contains(says, "the agent is running: stop it first") {
		t.Errorf("uninstall of a running service of the system says %s", says)
	}
	m.Must("systemctl", "stop", "muster-agent")
	m.Must("/opt/muster/muster-agent", "uninstall", "--yes")
}

// What checks of packages do in the watcher's sandbox.
func TestChecksMayBecomeAnotherUserAndWriteTemporaryFiles(t *testing.T) {
	m := newMachine(t, "checked")
	m.Must(m.install()...)
	m.ok("configure the agent", os.WriteFile(filepath.Join(m.Path("/opt/muster"), layout.ConfigFile), []byte(shortWatch), 0o600))
	m.Must("systemctl", "restart", "muster-agent")
	h := m.online("checked", "1.0.0")
	build := func(version, checks string) {
		t.Helper()
		file := filepath.Join(m.Dir, "checks-"+version+".yml")
		m.ok("write the checks", os.WriteFile(file, []byte(checks), 0o600))
		archive, err := m.Publisher.PackageOf(t.Context(), version, m.Programs.Agent, m.Programs.Watcher, "--checks", file)
		m.ok("build "+version, err)
		m.Add(version, archive)
	}
	build("1.1.0", `
- {name: another user, exec: [/sbin/runuser, -u, nobody, --, /bin/sh, -c, 'test "$(id -un)" = nobody && test -w /tmp'], threshold: 1}
- {name: setpriv, exec: [/usr/bin/setpriv, --reuid=nobody, --clear-groups, /bin/true], threshold: 1}
- {name: temporary files, exec: [/bin/sh, -c, 'f=$(mktemp) && echo x > "$f" && rm "$f"'], threshold: 1}
- {name: files of others, exec: [/usr/bin/test, -r, /etc/shadow], threshold: 1}
- {name: service manager, exec: [/usr/bin/systemctl, is-active, --quiet, muster-agent], threshold: 1}
`)
	m.Upgrade("1.1.0", h)
	m.upgraded(h, "1.1.0")
	build("1.2.0", `
- {name: changes the host, exec: [/usr/bin/touch, /etc/changed], threshold: 1}
`)
	m.Upgrade("1.2.0", h)
	m.rolledBack(h, "1.1.0", "check_failed")
}
