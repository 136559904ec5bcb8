//go:build release && linux

package elsewhere

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
	"github.com/muster-fleet/muster/testing/kit/require"
)

const (
	// rootsVersion is part of the name of a root. Increase it when what is in it changes.
	rootsVersion = "v1"
	// rootTimeout bounds the making of one, which fetches and unpacks 80 MB of packages.
	rootTimeout = 6 * time.Minute
)

// initSystem is a Debian whose process 1 is not systemd.
type initSystem struct {
	name     string
	packages []string
	// service returns the command that does something with a service.
	service func(name, verb string) []string
}

var (
	withOpenRC = initSystem{"openrc", []string{"openrc", "sysvinit-core"}, func(name, verb string) []string { return []string{"rc-service", name, verb} }}
	withSysV   = initSystem{"sysv", []string{"sysv-rc", "sysvinit-core", "insserv"}, func(name, verb string) []string { return []string{"service", name, verb} }}
)

// root returns the folder with the system, which it makes from the package source of this machine
// if it is not in the user's cache folder yet.
func (i initSystem) root(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "muster", "elsewhere")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	root := filepath.Join(dir, i.name+"-"+rootsVersion)
	ctx, cancel := context.WithTimeout(ctx, rootTimeout)
	defer cancel()
	lock := flock.New(root + ".lock")
	if _, err := lock.TryLockContext(ctx, time.Second); err != nil {
		return "", fmt.Errorf("wait for another process that makes %s: %w", root, err)
	}
	defer lock.Unlock() //nolint:errcheck // the lock ends with the process
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	unfinished := root + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	// debootstrap cannot choose among packages that exclude each other; apt can.
	if err := nspawn.Bootstrap(ctx, unfinished); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"chroot", unfinished, "apt-get", "update"},
		{"chroot", unfinished, "env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "install", "-y", "--no-install-recommends"},
		{"chroot", unfinished, "apt-get", "clean"},
	} {
		if args[0] == "chroot" && args[len(args)-1] == "--no-install-recommends" {
			args = append(args, i.packages...)
		}
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			lines := bytes.Split(out, []byte("\n"))
			return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.Join(lines[max(0, len(lines)-8):], []byte("\n")))
		}
	}
	return root, os.Rename(unfinished, root)
}

// initMachine is a machine that runs an init system.
type initMachine struct {
	*world
	initSystem
	dir  string
	cmd  *exec.Cmd
	done chan struct{}
	init string // process 1, as this process sees it
}

func newInitMachine(t *testing.T, i initSystem) *initMachine {
	t.Helper()
	i.required(t)
	return newWorld(t).initMachine(i)
}

// required checks what a machine is made of, and makes its root if need be.
func (i initSystem) required(t *testing.T) {
	t.Helper()
	require.Root(t)
	for _, program := range []string{"debootstrap", "systemd-nspawn", "nsenter", "mount"} {
		require.Program(t, program)
	}
	_, err := i.root(t.Context())
	require.Made(t, err, "let this machine reach its own package source")
}

// initMachine starts a machine, whose init system has what it requires.
func (w *world) initMachine(i initSystem) *initMachine {
	w.Helper()
	root, err := i.root(w.Context())
	w.ok("find the system", err)
	m := &initMachine{world: w, initSystem: i, dir: filepath.Join(w.Dir, i.name)}
	for _, dir := range []string{"upper", "work", "root"} {
		w.ok("make a folder", os.MkdirAll(filepath.Join(m.dir, dir), 0o755))
	}
	w.ok("mount the system", syscall.Mount("overlay", m.root(), "overlay", 0, "lowerdir="+root+",upperdir="+filepath.Join(m.dir, "upper")+",workdir="+filepath.Join(m.dir, "work")))
	w.ok("name the machine", os.WriteFile(m.path("/etc/hostname"), []byte(i.name+"\n"), 0o644))
	w.Cleanup(func() {
		if w.Failed() {
			for _, file := range []string{layout.AgentLogFile, layout.WatcherLogFile} {
				text, _ := os.ReadFile(m.path(filepath.Join("/opt/muster", file)))
				w.Logf("%s:\n%s", file, text)
			}
		}
		if err := errors.Join(m.off(), syscall.Unmount(m.root(), 0)); err != nil {
			w.Error(err)
		}
	})
	m.on()
	return m
}

func (m *initMachine) root() string { return filepath.Join(m.dir, "root") }

// path returns where this process sees a path of the machine.
func (m *initMachine) path(inside string) string { return filepath.Join(m.root(), inside) }

// on boots the machine, and returns when it is in its multi-user runlevel.
func (m *initMachine) on() {
	m.Helper()
	log, err := os.OpenFile(filepath.Join(m.dir, "console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	m.ok("open the console", err)
	defer log.Close()
	share := filepath.Dir(m.Programs.Agent)
	c := exec.Command("systemd-nspawn", "--quiet", "--directory="+m.root(), "--boot", "--register=no", "--keep-unit", "--console=pipe",
		"--hostname="+m.name, "--bind-ro="+share, "--bind-ro="+filepath.Join(m.Dir, "packages"))
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	m.ok("boot the machine", c.Start())
	m.cmd, m.done = c, make(chan struct{})
	go func() {
		_ = c.Wait() // the console has the reason
		close(m.done)
	}()
	m.eventually("the machine is up", func() error {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
		if m.init = strings.TrimSpace(string(children)); err != nil || m.init == "" {
			return errors.Join(errStill, err)
		}
		out, err := m.try("sh", "-c", `[ "$(cat /proc/1/comm)" = init ] && ls -l /proc/[0-9]*/exe | grep -q getty`)
		if err != nil {
			console, _ := os.ReadFile(filepath.Join(m.dir, "console.log"))
			return fmt.Errorf("%w: %s %s", err, out, console)
		}
		return nil
	})
}

// off cuts the machine's power.
func (m *initMachine) off() error {
	if m.cmd == nil {
		return nil
	}
	// All processes of the machine end with its process 1.
	out, err := exec.Command("kill", "-KILL", m.init).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	select {
	case <-m.done:
	case <-time.After(patience):
		return errors.Join(err, errors.New("the machine does not end"), m.cmd.Process.Kill())
	}
	m.cmd = nil
	return err
}

// try runs a program in the machine.
func (m *initMachine) try(args ...string) (string, error) {
	enter := []string{"--target", m.init, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"}
	c := exec.CommandContext(m.Context(), "nsenter", append(enter, args...)...)
	c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	c.WaitDelay = time.Second // what a script has started may hold its output
	out, err := c.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return strings.TrimSpace(string(out)), err
}

func (m *initMachine) run(args ...string) string {
	m.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.Fatalf("%q: %v\n%s", args, err, out)
	}
	return out
}

// agent returns the process id of the agent.
func (m *initMachine) agent() string {
	text, _ := os.ReadFile(m.path("/opt/muster/data/agent.lock")) // not yet
	return strings.TrimSpace(string(text))
}

// runsAgain waits until another agent than one that has ended runs.
func (m *initMachine) runsAgain(ended string) {
	m.Helper()
	m.eventually("the agent runs again", func() error {
		pid := m.agent()
		if pid == "" || pid == ended {
			return errStill
		}
		_, err := m.try("sh", "-c", "kill -0 "+pid)
		return err
	})
}

func TestAgentUnderOpenRC(t *testing.T)  { newInitMachine(t, withOpenRC).story() }
func TestAgentUnderSystemV(t *testing.T) { newInitMachine(t, withSysV).story() }

// install installs the agent as a service, and starts it again with its settings.
func (m *initMachine) install() {
	m.Helper()
	out := m.run(slices.Concat([]string{m.Programs.Agent, "install", "--package", m.archives["1.0.0"], "--token", m.server.Info.EnrollToken}, m.enrollment())...)
	if !strings.Contains(out, "Runs as service muster-agent.") {
		m.Fatalf("install says %s", out)
	}
	m.ok("configure the agent", os.WriteFile(m.path("/opt/muster/agent.yml"), []byte(shortWatch), 0o600))
	m.run(m.service("muster-agent", "status")...)
	first := m.agent()
	m.run(m.service("muster-agent", "restart")...)
	m.runsAgain(first)
}

// story is the life of an agent as a service: installed, restarted, upgraded, rolled back, through
// a power cut, and uninstalled.
func (m *initMachine) story() {
	m.install()
	killed := m.agent()
	m.run("sh", "-c", "kill -KILL "+killed)
	m.runsAgain(killed)
	id := m.online(m.name, "1.0.0")

	m.publish("1.1.0", m.Programs.Agent)
	before := m.agent()
	m.upgrade(id, "1.1.0")
	m.upgraded(id, "1.1.0")
	if now := m.agent(); now != before {
		m.Errorf("the upgraded agent is process %s, was %s: the service manager saw it end", now, before)
	}
	m.publish("1.2.0", m.Programs.CrashLooper)
	m.upgrade(id, "1.2.0")
	m.rolledBack(id, "1.1.0", "not_started")
	m.run(m.service("muster-agent", "status")...)

	m.comesBackAfterAPowerCut(id)
	m.isUninstalled()
}

// comesBackAfterAPowerCut cuts the power while a version is watched that does not start. Nothing of
// that version can start its watcher; the host does.
func (m *initMachine) comesBackAfterAPowerCut(id string) {
	m.publish("1.3.0", m.Programs.CrashLooper)
	m.upgrade(id, "1.3.0")
	m.eventually("the pointer leads to 1.3.0", func() error {
		to, err := os.Readlink(m.path("/opt/muster/" + layout.AgentLink))
		if err == nil && !strings.Contains(to, "1.3.0") {
			err = errStill
		}
		return err
	})
	m.ok("cut the power", m.off())
	m.on()
	m.wait(id, "has 1.1.0 again", running("1.1.0", "1.3.0"))
}

func (m *initMachine) isUninstalled() {
	m.eventually("the agent is uninstalled", func() error { // the watcher may still be sending its last report
		out, err := m.try("/opt/muster/muster-agent", "uninstall", "--yes")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	if left := m.run("find", "/etc", "/run", "/opt", "/var", "/usr", "-iname", "*muster*"); left != "" {
		m.Errorf("after uninstall there are %s", left)
	}
	if left := m.run("sh", "-c", "ls -l /proc/[0-9]*/exe 2>/dev/null | grep -F /opt/muster || true"); left != "" {
		m.Errorf("after uninstall there run %s", left)
	}
}
