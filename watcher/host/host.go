// Package host implements watch.Host: access to the agent's process, the service manager if
// there is one, and the agent's control socket.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/launch"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
	"github.com/muster-fleet/muster/watcher/watch"
)

const (
	// DefaultStopTimeout: a stopping agent closes its polls and stops its components,
	// which takes seconds.
	DefaultStopTimeout = 10 * time.Second

	// killTimeout bounds the wait for a killed process to end, which only the kernel
	// can delay.
	killTimeout = 3 * time.Second

	stopPoll = 50 * time.Millisecond

	// serviceTimeout bounds one call of the service manager. systemd gives a unit 90 s
	// to stop before it kills it.
	serviceTimeout = 2 * time.Minute

	// maxAgentLog bounds the log of an agent that is started here, in bytes. A larger
	// log is rotated at the next start.
	maxAgentLog = 8 << 20
)

// Manager is the part of a service manager the watcher needs, as of
// kardianos/service.
type Manager interface {
	Start() error
	Restart() error
}

// Host is the agent of one machine. Only Top is required.
type Host struct {
	Top string // absolute
	// Service is the name of the agent's service. If it is empty no service manager
	// supervises the agent, and it is started here.
	Service string
	// Manager is the service manager; nil means the machine's own.
	Manager Manager
	// Dial connects to the control socket; nil means probe.DialSocket(Top).
	Dial probe.Dialer
	// StopTimeout is how long an agent may take to stop before it is killed; 0 means
	// DefaultStopTimeout.
	StopTimeout time.Duration

	mu       sync.Mutex
	child    *child
	exits    int
	restarts restartCount
	since    time.Time // when the watch began
	logFrom  int64     // how long the agent's log was then
}

// child is an agent that was started here, whose exit only this process learns of.
type child struct {
	process *os.Process
	done    chan struct{}
}

func (c *child) running() bool {
	if c == nil {
		return false
	}
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

var _ watch.Host = (*Host)(nil)

// Agent returns the state of the agent's process. An agent that was started here is alive
// from its start on, even before it holds its lock.
func (h *Host) Agent() watch.Process {
	p := findAgent(h.Top)
	p.Stops = handoff.Stops(disk.OS{}, h.Top)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begin()
	if !p.Alive && h.child.running() {
		p.Alive, p.PID = true, h.child.process.Pid
	}
	p.Exits = h.exits
	if h.Service != "" {
		p.Exits += h.restarts.count(h.Service, p)
	}
	return p
}

// Health requests the agent's health.
func (h *Host) Health(ctx context.Context) (probe.Health, error) {
	dial := h.Dial
	if dial == nil {
		dial = probe.DialSocket(h.Top)
	}
	return probe.Client{Dial: dial}.Health(ctx)
}

// Start starts the agent that the pointer leads to in a new session, so that it outlives the
// watcher. Its output goes to data/agent.log.
func (h *Host) Start() error {
	out, err := openAgentLog(layout.Path(h.Top, layout.AgentLogFile))
	if err != nil {
		return err
	}
	defer out.Close()
	// Resolve the link, so that the process's program shows its version.
	program, err := filepath.EvalSymlinks(layout.Path(h.Top, layout.AgentLink))
	if err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	cmd := exec.Command(program, "run", "--top", h.Top)
	cmd.Dir = h.Top
	cmd.Stdout, cmd.Stderr = out, out
	if err := launch.Detached(cmd); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	c := &child{process: cmd.Process, done: make(chan struct{})}
	h.mu.Lock()
	h.child = c
	h.mu.Unlock()
	go h.reap(cmd, c)
	return nil
}

// reap counts the exit of an agent that was started here, unless it exited because another
// agent runs.
func (h *Host) reap(cmd *exec.Cmd, c *child) {
	_ = cmd.Wait() // every exit counts, whatever its status
	other := findAgent(h.Top)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !other.Alive || other.PID == c.process.Pid {
		h.exits++
	}
	close(c.done)
}

// Restart stops the running agent and starts the one that the pointer leads to. It is a
// single call of the service manager, which completes it even if it stops the watcher
// together with the agent.
func (h *Host) Restart() error {
	if h.Service == "" {
		if err := h.stop(); err != nil {
			return err
		}
		return h.Start()
	}
	manager, err := h.manager()
	if err != nil {
		return err
	}
	err = bounded("restart", h.Service, manager.Restart)
	if err == nil {
		return nil
	}
	// Some managers restart only a running service, and one that cannot stop the agent
	// may still start it once it is gone.
	if serr := h.stop(); serr != nil {
		return errors.Join(err, serr)
	}
	if serr := bounded("start", h.Service, manager.Start); serr != nil {
		return errors.Join(err, serr)
	}
	return nil
}

func (h *Host) manager() (Manager, error) {
	if h.Manager != nil {
		return h.Manager, nil
	}
	m, err := serviceManager(h.Service)
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", h.Service, err)
	}
	return m, nil
}

// bounded calls do with serviceTimeout, since the library waits for the manager's program
// without a bound. A call that hangs ends with the watcher.
func bounded(order, name string, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	t := time.NewTimer(serviceTimeout)
	defer t.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s service %s: %w", order, name, err)
		}
		return nil
	case <-t.C:
		return fmt.Errorf("%s service %s: the service manager did not answer within %s", order, name, serviceTimeout)
	}
}

// stop stops the agent's process, and one that was started here and does not hold its lock.
// It terminates the process first, and kills it after the timeout.
func (h *Host) stop() error {
	h.mu.Lock()
	c := h.child
	h.mu.Unlock()
	if err := h.stopProcess(); err != nil {
		return err
	}
	if !c.running() {
		return nil
	}
	// It fails if the process has just ended, and on Windows.
	if err := terminate(c.process); err == nil && waitFor(h.stopTimeout(), func() bool { return !c.running() }) {
		return nil
	}
	_ = c.process.Kill()
	if !waitFor(killTimeout, func() bool { return !c.running() }) {
		return fmt.Errorf("stop the agent: process %d does not end, not even when killed", c.process.Pid)
	}
	return nil
}

func (h *Host) stopProcess() error {
	p := findAgent(h.Top)
	if !p.Alive {
		return nil
	}
	if p.PID == 0 {
		return fmt.Errorf("stop the agent: %s is held but names no process: stop the agent by hand", layout.AgentLockFile)
	}
	// The handle is opened before the process is checked again, so that it is certainly
	// the agent's: the process id may have been reused before.
	process, err := os.FindProcess(p.PID)
	if err != nil {
		return nil // no such process: it has ended
	}
	defer process.Release() //nolint:errcheck // frees memory only
	is := func() bool { now := findAgent(h.Top); return now.Alive && now.PID == p.PID }
	if !is() {
		return nil
	}
	gone := func() bool { return !is() }
	if err := terminate(process); err == nil && waitFor(h.stopTimeout(), gone) {
		return nil
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the agent: process %d: %w", p.PID, err)
	}
	if !waitFor(killTimeout, gone) {
		return fmt.Errorf("stop the agent: process %d does not end, not even when killed", p.PID)
	}
	return nil
}

func (h *Host) stopTimeout() time.Duration {
	if h.StopTimeout == 0 {
		return DefaultStopTimeout
	}
	return h.StopTimeout
}

func waitFor(d time.Duration, done func() bool) bool {
	for deadline := time.Now().Add(d); ; time.Sleep(stopPoll) {
		if done() {
			return true
		}
		if !time.Now().Before(deadline) {
			return false
		}
	}
}

func openAgentLog(path string) (*os.File, error) {
	if fi, err := os.Stat(path); err == nil && fi.Size() > maxAgentLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}
