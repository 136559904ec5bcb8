//go:build linux

// Package nspawn runs machines for tests, with a real systemd or another init system. Each is
// a systemd-nspawn container on its own disk, an ext4 image, and its power can be cut. [Start]
// gives a test its own machine, and [Inside] runs the tests of a package in one that they
// share. It needs root, debootstrap and systemd-nspawn.
//
// A machine shares the network of its host, including loopback, unless it has its own. Its disk is mounted only in
// its own mount namespace, so the mounts that a killed test leaves end with the last
// process of the machine.
package nspawn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/testing/kit/child"
)

const (
	// bootTimeout bounds a boot, which takes a second on an idle host.
	bootTimeout = 60 * time.Second
	// goneTimeout bounds how long the kernel takes to end killed processes and to release
	// a disk.
	goneTimeout = 20 * time.Second
	// offTimeout bounds an orderly shutdown, in which a unit may take its whole
	// TimeoutStopSec.
	offTimeout = 60 * time.Second

	poll = 20 * time.Millisecond
)

// mountOptions make the file system write only what was synced: nothing is written
// periodically or because of a rename.
const mountOptions = "loop,noauto_da_alloc,commit=300"

// start joins the machine's control groups (0 is the shell itself), mounts the disk in its
// own mount namespace, and executes the container. It is process 1 of its own pid
// namespace, so the kernel kills everything in the machine when it ends.
const start = `set -e
for group in $GROUPS_OF_MACHINE; do echo 0 >"$group/cgroup.procs"; done
mount -t proc proc /proc
mount -o ` + mountOptions + ` "$DISK" "$ROOT"
exec "$@"
`

// Options describe a machine. Without Init it runs systemd.
type Options struct {
	Name string // its host name
	Init Init
	// Share are folders of its host that can be read inside under the same paths.
	Share []string
	// OwnNetwork gives it a network of its own, with nothing but loopback.
	OwnNetwork bool
	// Logs are the files inside that a failed test shows.
	Logs []string
}

// Machine is a machine that is on or off.
type Machine struct {
	Options
	t      testing.TB // nil unless it is a test's own
	dir    string
	groups []string

	cmd     *exec.Cmd // nil while it is off
	done    <-chan struct{}
	pid1    int
	console *os.File
}

// New returns a machine that is off. Its disk is in dir, which the caller removes after
// Close.
func New(ctx context.Context, dir string, o Options) (*Machine, error) {
	base, err := Prepare(ctx, o.Init)
	if err != nil {
		return nil, err
	}
	m := &Machine{Options: o, dir: dir}
	if err := os.MkdirAll(m.root(), 0o755); err != nil {
		return nil, err
	}
	// A sparse copy, since nine tenths of the image are empty.
	if _, err := run(ctx, "cp", "--sparse=always", "--reflink=auto", base, m.disk()); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Machine) disk() string { return filepath.Join(m.dir, "disk.ext4") }
func (m *Machine) root() string { return filepath.Join(m.dir, "root") }

// Boot switches the machine on, and returns when its init system has started everything.
func (m *Machine) Boot(ctx context.Context) error {
	if m.cmd != nil {
		return fmt.Errorf("machine %s is on", m.Name)
	}
	if err := m.switchOn(); err != nil {
		return fmt.Errorf("machine %s: %w", m.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	for {
		err := m.isUp(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(poll):
			continue
		case <-m.done:
		case <-ctx.Done():
		}
		text, _ := os.ReadFile(m.console.Name())
		return errors.Join(fmt.Errorf("machine %s did not boot: %w; its console says:\n%s", m.Name, err, text), m.cut())
	}
}

// isUp returns nil when the init system has started all that it will.
func (m *Machine) isUp(ctx context.Context) error {
	if m.pid1 == 0 {
		if m.pid1 = firstProcess(m.cmd.Process.Pid); m.pid1 == 0 {
			return errors.New("it has no first process")
		}
	}
	out, err := m.Run(ctx, "sh", "-c", m.Init.kind().isUp)
	if err != nil {
		return fmt.Errorf("it is %q: %w", strings.TrimSpace(out), err)
	}
	return nil
}

func (m *Machine) switchOn() (err error) {
	if m.groups, err = makeGroups(); err != nil {
		return err
	}
	if m.console, err = os.OpenFile(filepath.Join(m.dir, "console.txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	args := []string{
		"-c", start, "sh", "systemd-nspawn", "--quiet", "--directory", m.root(), "--boot", "--machine", m.Name, "--hostname", m.Name,
		"--register=no", "--keep-unit", "--console=pipe", "--resolv-conf=off", "--timezone=off", "--link-journal=no",
	}
	if m.OwnNetwork {
		args = append(args, "--private-network")
	}
	for _, s := range m.Share {
		args = append(args, "--bind-ro="+s)
	}
	c := exec.Command("sh", args...)
	c.Env = append(os.Environ(), "GROUPS_OF_MACHINE="+strings.Join(m.groups, " "), "DISK="+m.disk(), "ROOT="+m.root())
	c.Stdout, c.Stderr = m.console, m.console
	// The machine is killed when this process ends.
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL, Setsid: true,
	}
	ended, err := child.Start(c, nil)
	if err != nil {
		return errors.Join(err, m.console.Close(), removeGroups(m.groups))
	}
	m.cmd, m.done, m.pid1 = c, ended, 0
	return nil
}

// firstProcess returns the pid of process 1 of the machine, or 0 if there is none yet.
func firstProcess(nspawn int) int {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", nspawn))
	for _, child := range strings.Fields(string(children)) {
		status, _ := os.ReadFile("/proc/" + child + "/status")
		for line := range strings.Lines(string(status)) {
			ids, ok := strings.CutPrefix(line, "NSpid:")
			// Its pids in the three namespaces: of the host, of start, and of the container.
			if f := strings.Fields(ids); ok && len(f) == 3 && f[2] == "1" {
				pid, _ := strconv.Atoi(f[0])
				return pid
			}
		}
	}
	return 0
}

// Run runs a program in the machine, with the environment of no user, and returns its
// standard output.
func (m *Machine) Run(ctx context.Context, args ...string) (string, error) {
	if m.pid1 == 0 {
		return "", fmt.Errorf("machine %s is off", m.Name)
	}
	enter := []string{
		"nsenter", "--target", strconv.Itoa(m.pid1), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
		"env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
	}
	return run(ctx, append(enter, args...)...)
}

// Path returns the path outside of a file in the machine while it is on.
func (m *Machine) Path(inside string) string {
	return filepath.Join("/proc", strconv.Itoa(m.pid1), "root", inside)
}

const (
	// shutDownFS is FS_IOC_SHUTDOWN, and withoutJournal its argument for a crash: after
	// this call nothing reaches the disk, including the pending part of the journal.
	shutDownFS     = 0x8004587d
	withoutJournal = 2
)

// PowerCut switches the machine off like pulling the plug: every process ends at once, and
// everything that was not synced is lost. The next boot replays the file system's journal.
//
// The processes end just before the disk does. Otherwise they would see it fail and might
// report that.
func (m *Machine) PowerCut() error {
	if m.pid1 == 0 {
		return fmt.Errorf("machine %s is off", m.Name)
	}
	// The open folder keeps the disk mounted, since unmounting would write it out.
	root, err := os.Open(m.Path("/"))
	if err != nil {
		return err
	}
	if err := m.killAll(); err != nil {
		root.Close()
		return err
	}
	err = unix.IoctlSetPointerInt(int(root.Fd()), shutDownFS, withoutJournal)
	root.Close()
	if err != nil {
		err = fmt.Errorf("machine %s: stop its disk: %w", m.Name, err)
	}
	return errors.Join(err, m.off(goneTimeout))
}

// killAll kills every process and waits for their end.
func (m *Machine) killAll() error {
	_ = m.cmd.Process.Kill() // it may have ended already
	select {
	case <-m.done:
		return nil
	case <-time.After(goneTimeout):
		return fmt.Errorf("machine %s: killed processes do not end within %s", m.Name, goneTimeout)
	}
}

// cut switches the machine off without a flush of its disk.
func (m *Machine) cut() error {
	return errors.Join(m.killAll(), m.off(goneTimeout))
}

// PowerOff shuts the machine down.
func (m *Machine) PowerOff(ctx context.Context) error {
	// The connection to systemd may break before the answer.
	_, _ = m.Run(ctx, "systemctl", "--no-block", "poweroff")
	if err := m.off(offTimeout); err != nil {
		return errors.Join(err, m.cut())
	}
	return nil
}

// off waits until the machine is gone and its disk is free.
func (m *Machine) off(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	select {
	case <-m.done:
	case <-time.After(timeout):
		return fmt.Errorf("machine %s is still on after %s", m.Name, timeout)
	}
	m.cmd, m.pid1 = nil, 0
	errs := []error{m.console.Close()}
	for m.inUse() {
		if time.Now().After(deadline) {
			errs = append(errs, fmt.Errorf("machine %s: its disk is still in use after %s", m.Name, timeout))
			break
		}
		time.Sleep(poll)
	}
	return errors.Join(append(errs, removeGroups(m.groups))...)
}

// inUse reports whether a loop device still uses the disk.
func (m *Machine) inUse() bool {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if name, _ := os.ReadFile(f); strings.TrimSpace(string(name)) == m.disk() {
			return true
		}
	}
	return false
}

// Close switches the machine off, if it is on, and removes its disk.
func (m *Machine) Close() error {
	var err error
	if m.cmd != nil {
		err = m.cut()
	}
	return errors.Join(err, os.Remove(m.disk()))
}

// run runs a program; its error contains the output.
func run(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Stdout, c.Stderr = &stdout, &stderr
	c.WaitDelay = time.Second // a service that a script has started may hold its output
	if err := c.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
