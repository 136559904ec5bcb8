package systemd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

// point moves the link to the installed version as package primitive does.
func point(t testing.TB, r *runtime.Release) {
	t.Helper()
	target, err := filepath.Rel(r.Dir, r.Home)
	check(t, err)
	check(t, disk.Point(disk.OS{}, "test", target, r.Current()))
}

// upgrade does what package primitive does, without the start.
func upgrade(t testing.TB, a *Adapter, to, from *runtime.Release) {
	t.Helper()
	check(t, a.Check(t.Context(), to))
	if from != nil {
		check(t, a.Stop(t.Context(), from))
	}
	check(t, a.Install(t.Context(), to, from))
	point(t, to)
	check(t, a.ReloadDaemon(t.Context(), to))
}

func install(t testing.TB, a *Adapter, r *runtime.Release) {
	t.Helper()
	t.Cleanup(func() {
		if err := a.Remove(context.WithoutCancel(t.Context()), r); err != nil {
			t.Error(err)
		}
	})
	upgrade(t, a, r, nil)
	check(t, a.Start(t.Context(), r))
}

// show returns a property of a unit, asked of systemctl.
func show(t testing.TB, unit, property string) string {
	t.Helper()
	return run(t, "systemctl", "show", "--property="+property, "--value", unit)
}

func run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func status(t testing.TB, a *Adapter, r *runtime.Release) runtime.Status {
	t.Helper()
	s, err := a.Status(t.Context(), r)
	check(t, err)
	return s
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s still not: %s", patience, what)
		}
	}
}

func TestUnitOfThePackageFollowsItsVersion(t *testing.T) {
	if !inMachine(t) {
		return
	}
	a := newAdapter()
	web := component{t, "web", plainUnit}
	v1 := web.release("1.0.0", runsForEver)
	install(t, a, v1)
	if got := show(t, "web.service", "ExecStart"); !strings.Contains(got, "path="+top+"/components/web/current/bin/program ") {
		t.Errorf("ExecStart is %s, want the program below the link", got)
	}
	if got := show(t, "web.service", "UnitFileState"); got != "enabled" {
		t.Errorf("the unit is %s, so it does not start at boot", got)
	}

	check(t, a.Stop(t.Context(), v1))
	run(t, "systemctl", "start", "web.service")
	if s := status(t, a, v1); s.Running || !strings.Contains(s.Message, "a condition of the unit does not hold") {
		t.Errorf("started by another, while the agent has stopped it: %+v", s)
	}
	check(t, a.Start(t.Context(), v1))

	// The second version starts at boot in another way.
	web.unit = strings.Replace(strings.Replace(plainUnit, "WantedBy=multi-user", "WantedBy=graphical", 1), "A component", "The second", 1)
	v2 := web.release("2.0.0", runsForEver)
	upgrade(t, a, v2, v1)
	check(t, a.Start(t.Context(), v2))
	wants := func() string {
		return show(t, "web.service", "Description") + ", " + show(t, "web.service", "WantedBy")
	}
	if got := wants(); got != "The second, graphical.target" {
		t.Errorf("after the upgrade the unit is: %s", got)
	}
	if installed, err := a.Installed(t.Context(), v1); installed || err != nil {
		t.Errorf("Installed of the version before is %v, %v", installed, err)
	}

	check(t, a.Stop(t.Context(), v2))
	check(t, a.Restore(t.Context(), v2, v1, ""))
	point(t, v1)
	check(t, a.Start(t.Context(), v1)) // no other reload
	if got := wants(); got != "A component, multi-user.target" {
		t.Errorf("after Restore the unit is: %s", got)
	}

	// The third has another unit, without anything that starts it at boot.
	v3 := web.release("3.0.0", runsForEver)
	write(t, filepath.Join(v3.Home, "component.service"), strings.Split(plainUnit, "[Install]")[0], 0o644)
	v3.Component.Settings["unit"] = "site.service"
	upgrade(t, a, v3, v1)
	check(t, a.Start(t.Context(), v3))
	if got := show(t, "web.service", "LoadState") + " " + show(t, "site.service", "UnitFileState"); got != "not-found linked" {
		t.Errorf("the unit before and the new one are %s", got)
	}
	check(t, a.Remove(t.Context(), v3))
	links := run(t, "find", linkDir, "-name", "site.service", "-o", "-name", "web.service")
	files := run(t, "find", filepath.Join(v3.Dir, unitDir), "-type", "f")
	if links != "" || files != "" || show(t, "site.service", "LoadState") != "not-found" {
		t.Errorf("after Remove there are still %s %s", links, files)
	}
}

func TestUnitIsReadAfterAKillEvenIfTheClockWasSetBack(t *testing.T) {
	if !inMachine(t) {
		return
	}
	a := newAdapter()
	v1 := component{t, "web", plainUnit}.release("1.0.0", runsForEver)
	v2 := component{t, "web", strings.Replace(plainUnit, "A component", "The second", 1)}.release("2.0.0", runsForEver)
	upgradeBy := func(a runtime.Adapter) error { return a.Install(t.Context(), v2, v1) }
	restoreBy := func(a runtime.Adapter) error { return a.Restore(t.Context(), v2, v1, "") }
	install(t, a, v1)
	check(t, a.Stop(t.Context(), v1))
	for _, test := range []struct {
		what         string
		killed, next func(runtime.Adapter) error
		want         string
	}{
		{"Install again", upgradeBy, upgradeBy, "The second"},
		{"Restore again", restoreBy, restoreBy, "A component"},
	} {
		// What is written from now on is older than what systemd has read.
		file := filepath.Join(v1.Dir, unitDir, "web.service")
		later := time.Now().Add(time.Hour)
		check(t, os.Chtimes(file, later, later))
		run(t, "systemctl", "daemon-reload")
		before := show(t, "web.service", "Description")

		dying, died := dyingAt(func(call string) bool { return call == "reload" })
		if err := test.killed(dying); !died() || !errors.Is(err, errDied) {
			t.Fatalf("%s: %v, want that it is killed before the reload", test.what, err)
		}
		text, err := os.ReadFile(file)
		check(t, err)
		if strings.Contains(string(text), before) || show(t, "web.service", "NeedDaemonReload") != "no" {
			t.Fatalf("%s: systemd notices by itself that it has not read\n%s", test.what, text)
		}
		check(t, test.next(newAdapter()))
		if got := show(t, "web.service", "Description"); got != test.want {
			t.Errorf("%s: systemd has the unit of %s, want %s", test.what, got, test.want)
		}
	}
}

func TestUnitOfTheHostIsStartedAndReloadedButNotChanged(t *testing.T) {
	if !inMachineAsRoot(t) {
		return
	}
	a := newAdapter()
	v1 := component{t: t, name: "proxy"}.release("1.0.0", "trap 'echo has read its configuration' HUP; while :; do sleep 0.05; done")
	v1.Component.Reload = true
	hostUnit(t, "proxy.service", strings.ReplaceAll(plainUnit, currentWord, v1.Current()))
	before := run(t, "systemctl", "cat", "proxy.service")
	install(t, a, v1)
	check(t, a.Reload(t.Context(), v1))
	eventually(t, "output of the reload", func() bool {
		lines, err := a.Logs(t.Context(), v1, 100)
		check(t, err)
		return strings.Contains(strings.Join(lines, "\n"), "has read its configuration")
	})
	check(t, a.Remove(t.Context(), v1))
	if s := status(t, a, v1); s.Running {
		t.Errorf("after Remove the unit is %+v", s)
	}
	if after := run(t, "systemctl", "cat", "proxy.service"); after != before {
		t.Errorf("the unit was\n%s\nand is\n%s", before, after)
	}
	if err := a.Reload(t.Context(), v1); err == nil || !strings.Contains(err.Error(), "it does not run") {
		t.Errorf("Reload of a stopped unit: %v", err)
	}
}

// hostUnit puts a unit on the host.
func hostUnit(t testing.TB, unit, text string) {
	t.Helper()
	path := filepath.Join(linkDir, unit)
	t.Cleanup(func() { check(t, os.Remove(path)) })
	check(t, os.WriteFile(path, []byte(text), 0o644))
	run(t, "systemctl", "daemon-reload")
}

func TestUnitOfTheHostWithTheNameOfThePackagesIsLeftAlone(t *testing.T) {
	if !inMachineAsRoot(t) {
		return
	}
	a := newAdapter()
	text := strings.ReplaceAll(plainUnit, currentWord, filepath.Join(top, "theirs"))
	write(t, filepath.Join(top, "theirs", "bin", "program"), "#!/bin/sh\n"+runsForEver+"\n", 0o755)
	hostUnit(t, "theirs.service", text)
	run(t, "systemctl", "enable", "--now", "theirs.service")
	pid := show(t, "theirs.service", "MainPID")
	r := component{t, "theirs", plainUnit}.release("1.0.0", runsForEver)
	if s := status(t, a, r); s.Running || s.Message != "the host has another unit of that name in /etc/systemd/system/theirs.service" {
		t.Errorf("status is %+v", s)
	}
	check(t, a.Stop(t.Context(), r))
	check(t, a.Restore(t.Context(), r, nil, ""))
	check(t, a.Remove(t.Context(), r))
	if err := a.Install(t.Context(), r, nil); err == nil {
		t.Error("Install replaced it")
	}
	if err := a.Start(t.Context(), r); err == nil || !strings.Contains(err.Error(), "another unit of that name") {
		t.Errorf("Start: %v", err)
	}
	if got := show(t, "theirs.service", "MainPID") + show(t, "theirs.service", "UnitFileState"); got != pid+"enabled" {
		t.Errorf("it had process %s and is %s", pid, got)
	}
	run(t, "systemctl", "disable", "--now", "theirs.service")
}

func TestCheckRefusesBeforeAnythingIsStopped(t *testing.T) {
	if !inMachineAsRoot(t) {
		return
	}
	onHost := strings.ReplaceAll(plainUnit, currentWord, top)
	hostUnit(t, "alone.service", strings.Replace(onHost, "ExecReload", "#", 1))
	hostUnit(t, "muster-agent-watcher.service", onHost)
	for link, target := range map[string]string{"hidden.service": os.DevNull, "nickname.service": "muster-agent-watcher.service"} {
		link = filepath.Join(linkDir, link)
		check(t, os.Symlink(target, link))
		t.Cleanup(func() { check(t, os.Remove(link)) })
	}
	run(t, "systemctl", "daemon-reload")
	mount := filepath.Join(top, "components", "mounted")
	check(t, os.MkdirAll(mount, 0o755))
	run(t, "mount", "-t", "tmpfs", "none", mount)
	t.Cleanup(func() { check(t, unix.Unmount(mount, 0)) })

	for _, test := range []struct {
		what string
		component
		settings map[string]any
		reload   bool
		want     string
	}{
		{what: "a unit that the host lacks", component: component{name: "nothere"}, want: "does not exist on this host"},
		{what: "a masked unit", component: component{name: "hidden"}, want: "is masked on this host: run systemctl unmask hidden.service"},
		{what: "a name that the host has", component: component{name: "alone", unit: plainUnit}, want: "exists on this host in /etc/systemd/system/alone.service"},
		{what: "a reload that the host's unit cannot do", component: component{name: "alone"}, reload: true, want: "has no ExecReload"},
		{what: "a reload that the package's unit cannot do", component: component{name: "web", unit: "[Service]\nExecStart=/bin/true\n"}, reload: true, want: "has no ExecReload"},
		{what: "the agent's unit", component: component{name: "muster-agent", unit: plainUnit}, want: "runs the agent itself"},
		{what: "the watcher's unit", component: component{name: "muster-agent-watcher"}, want: "runs the agent itself"},
		{what: "its name as an alias", component: component{name: "web", unit: plainUnit + "Alias=muster-agent.service\n"}, want: "runs the agent itself"},
		{what: "another name of it", component: component{name: "nickname"}, want: "runs the agent itself"},
		{what: "a file system that is mounted later", component: component{name: "mounted", unit: plainUnit}, want: mount + " is a file system of its own"},
		{what: "an unknown setting", component: component{name: "web"}, settings: map[string]any{"unit": "web.service", "command": "rm"}, want: "settings.command: is no setting, want one of unit, unit_file"},
		{what: "a missing unit file", component: component{name: "web"}, settings: map[string]any{"unit": "web.service", "unit_file": "nothere"}, want: "unit_file nothere of component web: unit file: open"},
	} {
		test.t = t
		r := test.release("1.0.0", runsForEver)
		r.Component.Reload = test.reload
		if test.settings != nil {
			r.Component.Settings = test.settings
		}
		if err := newAdapter().Check(t.Context(), r); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q in it", test.what, err, test.want)
		}
	}
}

func TestAgentWithoutRootsRightsIsRefused(t *testing.T) {
	if !machine.Test(t, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups") {
		return
	}
	r := &runtime.Release{Name: "web", Dir: top, Home: top}
	r.Component.Settings = map[string]any{"unit": "systemd-journald.service"}
	if err := newAdapter().Check(t.Context(), r); !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), "run the agent as root") {
		t.Errorf("Check: %v", err)
	}
	if s := status(t, newAdapter(), r); !s.Running {
		t.Errorf("status, which everybody may ask for, is %+v", s)
	}
}

func TestStartSaysWhyAVersionDoesNotStart(t *testing.T) {
	if !inMachine(t) {
		return
	}
	a := newAdapter()
	once := strings.Replace(plainUnit, "Restart=always", "Restart=no", 1)
	good := component{t, "web", plainUnit}.release("1.0.0", runsForEver)
	install(t, a, good)
	for _, test := range []struct {
		what, unit, script string
		timeout            time.Duration
		want               []string
	}{
		{
			"a program that ends at once", strings.Replace(once, "Type=exec", "Type=notify", 1), endsAtOnce, patience,
			[]string{"start web.service: its job has the result failed", "it has failed: exit-code, exit status 3", `"cannot bind"`},
		},
		{
			"a program that is missing", strings.Replace(once, "bin/program", "bin/nothere", 1), endsAtOnce, patience,
			[]string{"exit status 203, with which systemd says that it could not execute the program"},
		},
		{
			"a program that is never ready", strings.Replace(once, "Type=exec", "Type=notify\nTimeoutStartSec=300ms", 1), runsForEver, patience,
			[]string{"it has failed: timeout, signal 15"},
		},
		{
			"a program that is not ready when the caller's time ends", strings.Replace(once, "Type=exec", "Type=notify", 1), "echo still loading; " + runsForEver, time.Second,
			[]string{"context deadline exceeded", "it is activating (start)", `"still loading"`},
		},
		{
			"a program that succeeds and ends", strings.Replace(once, "Type=exec", "Type=oneshot", 1), "exit 0", patience,
			[]string{"it has ended: success, exit status 0"},
		},
		{
			"a condition", strings.Replace(once, "[Service]", "ConditionPathExists=/nothere\n[Service]", 1), runsForEver, patience,
			[]string{"a condition of the unit does not hold"},
		},
		{
			"a unit that systemd cannot load", strings.Replace(once, "Type=exec", "Type=oneshot\nRestart=always", 1) + "[Service]\nRestart=always\n", runsForEver, patience,
			[]string{"systemd cannot load the unit (bad-setting)"},
		},
	} {
		bad := component{t, "web", test.unit}.release("2.0.0", test.script)
		upgrade(t, a, bad, good)
		ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
		err := a.Start(ctx, bad)
		cancel()
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", test.what, err, want)
			}
		}
		check(t, a.Stop(t.Context(), bad))
		check(t, a.Restore(t.Context(), bad, good, ""))
		point(t, good)
		check(t, a.Start(t.Context(), good))
	}
}

func TestVersionThatSystemdRestartsDoesNotRun(t *testing.T) {
	if !inMachine(t) {
		return
	}
	a := newAdapter()
	slow := strings.Replace(plainUnit, "RestartSec=100ms", "RestartSec=1h", 1)
	good := component{t, "web", plainUnit}.release("1.0.0", runsForEver)
	bad := component{t, "web", slow}.release("2.0.0", "echo cannot bind; sleep 0.1; exit 3")
	install(t, a, good)
	upgrade(t, a, bad, good)
	check(t, a.Start(t.Context(), bad)) // the program is executed, and more is not asked
	var s runtime.Status
	eventually(t, "the end of the program", func() bool { s = status(t, a, bad); return !s.Running })
	if want := "it has ended, and systemd will start it again: exit-code, exit status 3"; s.Ready || s.PID != 0 || s.Message != want {
		t.Errorf("status is %+v, want %s", s, want)
	}
	if want := "exit-code, exit status 3"; s.Ended != want {
		t.Errorf("it ended with %q, want %q", s.Ended, want)
	}
	if lines, err := a.Output(t.Context(), bad, 1); err != nil || !slices.Equal(lines, []string{"cannot bind"}) {
		t.Errorf("its output ends with %q, %v", lines, err)
	}
	// Whoever sees that it does not run may not call Stop.
	check(t, a.Restore(t.Context(), bad, good, ""))
	if got := show(t, "web.service", "ActiveState"); got != "inactive" {
		t.Errorf("after Restore the unit is %s", got)
	}

	// A version that systemd has given up leaves nothing that hinders the one before.
	bad = component{t, "web", strings.Replace(plainUnit, "RestartSec=100ms", "RestartSec=1ms", 1)}.release("3.0.0", endsAtOnce)
	upgrade(t, a, bad, good)
	_ = a.Start(t.Context(), bad)
	eventually(t, "that systemd gives up", func() bool { return strings.HasPrefix(status(t, a, bad).Message, "it has failed") })
	check(t, a.Restore(t.Context(), bad, good, ""))
	point(t, good)
	check(t, a.Start(t.Context(), good))
	if s := status(t, a, good); !s.Ready || s.Restarts != 0 {
		t.Errorf("status of the version before is %+v", s)
	}
}

func moveAway(t testing.TB, path string) {
	t.Helper()
	check(t, os.Rename(path, path+".away"))
	t.Cleanup(func() { check(t, os.Rename(path+".away", path)) })
}

func TestHostWithoutDBusIsAskedThroughSystemctl(t *testing.T) {
	if !inMachineAsRoot(t) {
		return
	}
	moveAway(t, "/run/dbus/system_bus_socket")
	m, err := connect(t.Context())
	check(t, err)
	if _, ok := m.(systemctl); !ok {
		t.Fatalf("connected through %T", m)
	}
	a := newAdapter()
	v1 := component{t, "web", plainUnit}.release("1.0.0", runsForEver)
	v2 := component{t, "web", strings.Replace(plainUnit, "A component", "The second", 1)}.release("2.0.0", runsForEver)
	bad := component{t, "web", strings.Replace(plainUnit, "Type=exec", "Type=notify", 1)}.release("3.0.0", endsAtOnce)
	if s := status(t, a, v1); s.Running || s.Message != "the unit does not exist" {
		t.Errorf("status before the installation is %+v", s)
	}
	install(t, a, v1)
	if s := status(t, a, v1); !s.Ready || s.PID == 0 || time.Since(s.Since).Abs() > patience {
		t.Errorf("status is %+v", s)
	}
	check(t, a.Reload(t.Context(), component{t, "web", plainUnit}.release("1.0.0", runsForEver)))
	upgrade(t, a, v2, v1)
	check(t, a.Start(t.Context(), v2))
	upgrade(t, a, bad, v2)
	if err := a.Start(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("start of a version that ends at once: %v", err)
	}
	check(t, a.Restore(t.Context(), bad, v2, ""))
	point(t, v2)
	check(t, a.Start(t.Context(), v2))
	if got := show(t, "web.service", "Description"); got != "The second" {
		t.Errorf("after Restore the unit is that of %s", got)
	}
}

func TestHostWithoutSystemdIsUnavailable(t *testing.T) {
	if !inMachineAsRoot(t) {
		return
	}
	r := component{t: t, name: "web"}.release("1.0.0", runsForEver)
	moveAway(t, "/run/systemd/system")
	if err := newAdapter().Check(t.Context(), r); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Check without systemd: %v", err)
	}
}
