package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

// init1 is a running container.
type init1 struct {
	Container
	agent        int // its process id
	ended        unix.WaitStatus
	watcherStart time.Time // of the last watcher that was started here
}

// Run runs the agent until ctx ends, and returns nil then. If the agent ends by itself while no
// upgrade is watched, it returns an error, or nil if the agent's exit status was 0.
//
// It reaps every child of this process, so nothing else of the process may start one.
func (c Container) Run(ctx context.Context) error {
	// Orphans become children of process 1. Under another one, such as docker run --init,
	// this process has to ask for them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	p := &init1{Container: c}
	if p.watched() {
		p.ensureWatcher()
	}
	var err error
	if p.agent, err = p.start(layout.AgentLink, "run", "--top", p.Top); err != nil {
		return errors.Join(fmt.Errorf("start the agent: %w", err), p.stop(children))
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return p.stop(children)
		case <-children:
		case <-tick.C:
		}
		if done, err := p.round(); done {
			return errors.Join(err, p.stop(children))
		}
	}
}

// round reaps what has ended, and reports whether the container is to end.
func (p *init1) round() (done bool, err error) {
	p.reap()
	if alive(p.agent) {
		return false, nil
	}
	if pid := p.holder(); pid != 0 && alive(pid) {
		p.agent = pid // the watcher has started it
		return false, nil
	}
	if p.watched() {
		p.ensureWatcher() // which starts the agent
		return false, nil
	}
	switch {
	case p.ended.Exited() && p.ended.ExitStatus() == 0:
		return true, nil
	case p.ended.Signaled():
		return true, fmt.Errorf("the agent was ended by the signal %s", p.ended.Signal())
	}
	return true, fmt.Errorf("the agent has ended with exit status %d", p.ended.ExitStatus())
}

// ensureWatcher starts a watcher if none runs. A new version that does not start cannot start its
// own.
func (p *init1) ensureWatcher() {
	if time.Since(p.watcherStart) < watcherRestart || p.held(layout.WatcherLockFile) {
		return
	}
	p.watcherStart = time.Now()
	pid, err := p.start(layout.WatcherLink, "--top", p.Top)
	if err != nil {
		p.Log.Error("watcher not started: this version is not watched", "error", err)
		return
	}
	p.Log.Info("watcher started, since none was running", "pid", pid)
}

// start starts a program of the folder in a session of its own.
func (p *init1) start(link string, args ...string) (pid int, err error) {
	program := layout.Path(p.Top, link)
	process, err := os.StartProcess(program, append([]string{program}, args...), &os.ProcAttr{
		Dir: p.Top, Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, err
	}
	pid = process.Pid
	return pid, process.Release() // reap collects its status
}

// reap collects the status of all children that have ended, and reports whether any is left.
func (p *init1) reap() (left bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false
		case pid == 0:
			return true
		case pid == p.agent:
			p.ended = status
		}
	}
}

// stop ends all programs, as the shutdown of a host does, and waits for them.
func (p *init1) stop(children <-chan os.Signal) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	for p.reap() {
		select {
		case <-children:
		case <-late.C:
			p.Log.Warn("not every program ended in time", "timeout", stopTimeout.String())
			return p.signal(syscall.SIGKILL)
		}
	}
	return nil
}

// signal sends a signal to every process of the container, or only to the agent if this is not
// process 1, since then it would go to processes that are not the agent's.
func (p *init1) signal(s syscall.Signal) error {
	target := -1
	if os.Getpid() != 1 {
		target = p.agent
	}
	if target == 0 {
		return nil // the agent was not started
	}
	if err := syscall.Kill(target, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end the programs of the container: %w", err)
	}
	return nil
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
