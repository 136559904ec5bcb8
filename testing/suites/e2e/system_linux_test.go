package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// The first version is below a prefix that is mounted read-only. The agent upgrades itself to
// one that it downloads, and comes back, under the watcher and on request.
func TestVersionBelowAReadOnlyPrefixIsUpgradedAndRestored(t *testing.T) {
	require.Root(t)
	w := newWorld(t, harness.HostOptions{})
	root := filepath.Join(w.Dir, "system")
	s := layout.System{Prefix: filepath.Join(root, "usr"), SysConfDir: filepath.Join(root, "etc"), LocalStateDir: filepath.Join(root, "var")}
	placeVersion(t, w.Archives["1.0.0"], s, "1.0.0", func(path string) string { return path })
	check(t, syscall.Mount(s.Prefix, s.Prefix, "", syscall.MS_BIND, ""))
	t.Cleanup(func() {
		if err := syscall.Unmount(s.Prefix, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	check(t, syscall.Mount("", s.Prefix, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
	if err := os.WriteFile(filepath.Join(s.Versions(), "x"), nil, 0o600); err == nil {
		t.Fatal("the prefix is not read-only")
	}
	brought := names(t, s.Prefix)

	h, err := w.InstallSystem(t.Context(), w.Server, w.Publisher, s, "1.0.0", "web-01", harness.HostOptions{})
	check(t, err)
	t.Cleanup(func() { check(t, h.Stop()) }) // before the unmount
	check(t, h.Start())
	w.Hosts = append(w.Hosts, h)
	w.Online("", w.Hosts...)
	below := func(folder string) {
		t.Helper()
		program, err := filepath.EvalSymlinks(s.Roots().Link(layout.AgentLink))
		check(t, err)
		pids, err := h.Processes()
		check(t, err)
		var running []string
		for _, pid := range pids {
			exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			running = append(running, exe)
		}
		if !strings.HasPrefix(program, folder+"/") || !slices.Contains(running, program) {
			t.Errorf("the pointer leads to %s, and %s runs, want a program below %s", program, running, folder)
		}
	}
	w.onDisk(h, "1.0.0")
	below(s.Version("1.0.0"))
	if out, err := h.CLI(t.Context(), "version"); err != nil || !strings.HasPrefix(out, "muster-agent 1.0.0-") || strings.Contains(out, "development") {
		t.Errorf("muster-agent version: %v\n%s", err, out)
	}

	w.Publish("1.2.0", w.Programs.CrashLooper)
	w.Upgrade("1.2.0", h)
	w.rolledBack(h, "1.2.0", "1.0.0", "crash_loop")
	below(s.Version("1.0.0"))

	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", h)
	w.upgraded(h, "1.1.0")
	below(filepath.Join(s.Roots().Top, layout.DataDir))

	// The command finds the installation from a program in either place.
	harness.Eventually(t, "the host can be rolled back", func() error {
		out, err := h.CLI(t.Context(), "versions", "list")
		if err == nil && !strings.Contains(out, "1.0.0") {
			err = fmt.Errorf("it has\n%s", out)
		}
		return err
	})
	if out, err := h.CLI(t.Context(), "rollback"); err != nil || !strings.Contains(out, "Version 1.0.0 runs again") {
		t.Errorf("muster-agent rollback: %v\n%s", err, out)
	}
	w.onDisk(h, "1.0.0")
	below(s.Version("1.0.0"))
	if out, err := h.CLI(t.Context(), "status"); err != nil || !strings.HasPrefix(out, "muster-agent 1.0.0-") {
		t.Errorf("muster-agent status: %v\n%s", err, out)
	}

	check(t, h.Stop())
	if out, err := h.CLI(t.Context(), "uninstall", "--yes"); err != nil || !strings.Contains(out, "Removed the agent from "+h.Top) {
		t.Errorf("muster-agent uninstall: %v\n%s", err, out)
	}
	w.Wait(h, "is known to be uninstalled", func(a adminapi.Agent) bool { return a.Status == fleet.StatusUninstalled })
	if after := names(t, s.Prefix); !slices.Equal(after, brought) {
		t.Errorf("below the prefix there was %q and is %q", brought, after)
	}
	settings := filepath.Join(s.Roots().Links, layout.ConfigFile) // changed by the test
	if left := slices.Concat(names(t, s.SysConfDir), names(t, s.LocalStateDir)); !slices.Equal(left, []string{settings}) {
		t.Errorf("the removal leaves %q, want %s", left, settings)
	}
}

// readOnlyUsr is a unit: systemd would remount the whole file system for a line in fstab.
const readOnlyUsr = `[Unit]
DefaultDependencies=no
After=local-fs.target
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/mount --bind /usr /usr
ExecStart=/bin/mount -o remount,bind,ro /usr
[Install]
WantedBy=sysinit.target
`

// The same as a service, with /usr mounted read-only, through a power cut.
func TestServiceBelowAReadOnlyUsrIsUpgradedThroughAPowerCut(t *testing.T) {
	w := newWorld(t, harness.HostOptions{})
	s := layout.System{Prefix: "/usr", SysConfDir: "/etc", LocalStateDir: "/var"}
	m := freshMachine(t, w, "web-01", s.Roots().Top)
	placeVersion(t, w.Archives["1.0.0"], s, "1.0.0", m.Path)
	m.write("/etc/systemd/system/read-only-usr.service", readOnlyUsr)
	m.Must("systemctl", "enable", "read-only-usr")
	m.Must("mkdir", s.Roots().Links)
	m.write(s.Roots().Link(layout.ConfigFile), longWatch)
	m.Must("sync")
	check(t, m.PowerOff(t.Context()))
	m.on()
	if out, err := m.Run(t.Context(), "touch", "/usr/x"); err == nil {
		t.Fatalf("/usr is not read-only: %s", out)
	}
	m.install(s.Version("1.0.0")+"/muster-agent", "--prefix", "/usr", "--sysconfdir", "/etc")
	if m.agent != "muster-agent" {
		t.Errorf("in the usual folders of a system the service is called %q", m.agent)
	}
	runs := func(folder string) {
		t.Helper()
		harness.Eventually(t, "the service runs a program below "+folder, func() error {
			exe, err := m.Run(t.Context(), "readlink", "/proc/"+m.Property(m.agent, "MainPID")+"/exe")
			if err == nil && !strings.HasPrefix(exe, folder+"/") {
				err = fmt.Errorf("it runs %s", exe)
			}
			return err
		})
	}
	runs(s.Version("1.0.0"))

	w.Publish("1.2.0", w.Programs.CrashLooper)
	w.Upgrade("1.2.0", m.host)
	harness.Eventually(t, "the new version has died", func() error {
		if m.Property(m.agent, "NRestarts") == "0" {
			return errStillThere
		}
		return nil
	})
	check(t, m.PowerCut())
	m.on()
	w.Wait(m.host, "has been rolled back", func(a adminapi.Agent) bool {
		return a.Agent.Version == "1.0.0" && a.Status == fleet.StatusOnline && reasonCode(a) == "crash_loop"
	})
	runs(s.Version("1.0.0"))
	m.waitProperty(m.watcher, "ActiveState", "inactive")

	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", m.host)
	w.waitPhase(m.host, agentapi.UpgradeWatching)
	m.waitProperty(m.watcher, "ActiveState", "active")
	m.writesOnlyItsOwnFolder()
	w.Wait(m.host, "has been upgraded to 1.1.0", func(a adminapi.Agent) bool {
		return a.Agent.Version == "1.1.0" && a.UpgradeDetails == nil && a.UpgradeStartedAt == nil
	})
	w.result(m.host, "1.1.0", "")
	runs(s.Roots().Top)
	m.waitProperty(m.watcher, "ActiveState", "inactive")

	m.Must("muster-agent", "uninstall", "--yes")
	left := strings.Fields(m.Must("find", "/etc", "/run", "/usr", "/opt", "/srv", "/var/lib", "-iname", "*muster*"))
	slices.Sort(left)
	want := []string{
		s.Roots().Links, "/usr/bin/muster-agent", s.Versions(), s.Version("1.0.0") + "/muster-agent", s.Version("1.0.0") + "/muster-watcher",
	}
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("after uninstall there is %q, want what the system's package has brought and the settings: %q", left, want)
	}
}

// placeVersion places what is in an archive below the prefix of a system, with the links that
// do not change, as a package of the system does. at returns where this process sees a path of
// the system.
func placeVersion(t *testing.T, archive string, system layout.System, version string, at func(path string) string) {
	t.Helper()
	home := at(system.Version(version))
	check(t, os.MkdirAll(home, 0o755))
	for strip, files := range map[string]string{"3": "*/data/*/*", "1": "*/" + manifest.FileName} {
		out, err := exec.CommandContext(t.Context(), "tar", "-xzf", archive, "-C", home, "--strip-components="+strip, "--wildcards", files).CombinedOutput()
		if err != nil {
			t.Fatalf("unpack %s: %v\n%s", archive, err, out)
		}
	}
	command, target := system.Command()
	check(t, os.MkdirAll(at(filepath.Dir(command)), 0o755))
	check(t, os.Symlink(target, at(command)))
	check(t, os.Symlink(system.Roots().Links, at(system.Default())))
}

// names returns the files and links below a folder.
func names(t *testing.T, folder string) (list []string) {
	t.Helper()
	check(t, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			list = append(list, path)
		}
		return err
	}))
	return list
}
