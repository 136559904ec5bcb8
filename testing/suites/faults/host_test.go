package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
)

const (
	top         = "/opt/muster"
	serviceName = "muster-agent"

	// restartDelay is RestartSec of both units.
	restartDelay = 3 * time.Second
	// stopTimeout is how long a unit may take to stop before it is killed; much
	// less than systemd's 90 s, since nothing here takes longer.
	stopTimeout = 20 * time.Second
)

// opExec is the label of calls that start, stop or ask programs and units.
const opExec = "exec"

// quiet discards the log.
var quiet = slog.New(slog.DiscardHandler)

var errDead = errors.New("the process is dead")

// host is a machine from one boot to the next: its processes and the two units that start
// them. Only its disk and its server survive it.
type host struct {
	fs     *simdisk.FS
	server *fakeserver.Server
	log    *slog.Logger
	// before is called before every call of a live process that changes something. It
	// may kill processes, and its error is returned by the call.
	before func(*process, simdisk.Call) error

	// all counts every goroutine, including those of dead processes, whose calls all fail
	// and which therefore end.
	all sync.WaitGroup
	off chan struct{}

	mu       sync.Mutex
	pids     int
	started  []*process // all that may run
	agent    *process   // the last one started
	watcher  *process   // likewise
	watching bool       // the watcher's unit is active
	// unitEnded is closed when it becomes inactive; nil before its first start.
	unitEnded chan struct{}
	locks     map[string]*process
	restarts  int           // automatic restarts of the agent's unit
	ordered   chan struct{} // an order to start the agent's unit at once

	staged atomic.Bool // see script
}

// boot switches the host on and starts both units, the watcher's only if there is a marker.
func boot(f *simdisk.FS, server *fakeserver.Server, log *slog.Logger, before func(*process, simdisk.Call) error) *host {
	h := &host{
		fs: f, server: server, log: log, before: before,
		off: make(chan struct{}), locks: map[string]*process{}, ordered: make(chan struct{}, 1),
	}
	h.log.Info("host boots")
	if h.condition() { // checked before the agent can create a marker
		h.all.Go(func() {
			if err := h.startWatcherUnit(); err != nil {
				h.log.Info("the watcher's unit did not stay up", "why", err)
			}
		})
	}
	h.all.Go(h.agentUnit)
	return h
}

// powerOff kills every process at once.
func (h *host) powerOff() {
	h.mu.Lock()
	select {
	case <-h.off:
	default:
		close(h.off)
	}
	agent, watcher := h.agent, h.watcher
	h.mu.Unlock()
	agent.kill()
	watcher.kill()
}

func (h *host) isOff() bool {
	select {
	case <-h.off:
		return true
	default:
		return false
	}
}

// process is one process. After dead is closed all calls of its goroutines fail.
type process struct {
	host    *host
	pid     int
	program program
	disk    disk.Disk
	//nolint:containedctx // stands for the process's signals
	ctx    context.Context
	cancel context.CancelFunc

	once    sync.Once
	dead    chan struct{}
	control *pipes
	next    *process // the process that replaced it by exec; set before dead is closed
}

func (h *host) newProcess(p program, pid int) *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pid == 0 {
		h.pids++
		pid = h.pids
	}
	proc := &process{host: h, pid: pid, program: p, dead: make(chan struct{}), control: newPipes()}
	proc.ctx, proc.cancel = context.WithCancel(context.Background())
	proc.disk = h.fs.View(proc.ask)
	h.started = append(h.alive(), proc)
	return proc
}

// running returns the processes that run.
func (h *host) running() []*process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.alive()
}

// alive is running with mu locked.
func (h *host) alive() []*process {
	return slices.DeleteFunc(slices.Clone(h.started), func(p *process) bool { return !p.alive() })
}

func (p *process) String() string { return p.program.kind + " " + p.program.version }

func (p *process) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// ask is the hook of the process's disk and of its other calls.
func (p *process) ask(c simdisk.Call) error {
	if !p.alive() {
		return errDead
	}
	if c.Kind == simdisk.Read || p.host.before == nil {
		return nil
	}
	err := p.host.before(p, c)
	if !p.alive() {
		return errDead
	}
	return err
}

// act is ask for a call that is not to the disk.
func (p *process) act(name, path string) error {
	return p.ask(simdisk.Call{Op: opExec, Name: name, Path: path, Kind: simdisk.Change})
}

// kill is SIGKILL.
func (p *process) kill() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		h := p.host
		h.mu.Lock()
		for path, holder := range h.locks {
			if holder == p {
				delete(h.locks, path)
			}
		}
		h.mu.Unlock()
		close(p.dead)
		p.control.Close()
		p.cancel()
	})
}

// stop is SIGTERM, and SIGKILL after stopTimeout.
func (p *process) stop() {
	if !p.alive() {
		return
	}
	p.cancel()
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-p.dead:
	case <-t.C:
		p.kill()
	}
}

// lock locks a file like a non-blocking flock; the lock ends with the process.
func (p *process) lock(path, held string) (release func() error, err error) {
	if !p.alive() {
		return nil, errDead
	}
	h := p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.locks[path] != nil {
		return nil, fmt.Errorf("lock %s: %s", path, held)
	}
	h.locks[path] = p
	return func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.locks[path] == p {
			delete(h.locks, path)
		}
		return nil
	}, nil
}

// outside returns the disk as the service manager sees it.
func (h *host) outside() disk.Disk {
	return h.fs.View(func(simdisk.Call) error { return nil })
}

// load reads the program that a link in the top folder leads to.
func (h *host) load(link string) (program, error) {
	d := h.outside()
	target, err := d.Readlink(opExec, path.Join(top, link))
	if err != nil {
		return program{}, err
	}
	return loadFile(d, path.Join(top, target))
}

func loadFile(d disk.Disk, file string) (program, error) {
	fi, err := d.Lstat(opExec, file)
	if err != nil {
		return program{}, err
	}
	if fi.Mode().Perm()&0o100 == 0 {
		return program{}, fmt.Errorf("exec %s: %w", file, fs.ErrPermission)
	}
	text, err := d.ReadFile(opExec, file)
	if err != nil {
		return program{}, err
	}
	p, err := parseProgram(string(text))
	if err != nil {
		return program{}, fmt.Errorf("exec %s: %w", file, err)
	}
	p.file, p.home = file, path.Join(layout.DataDir, path.Base(path.Dir(file)))
	return p, nil
}

// agentUnit is the agent's service: started at boot, and again whenever it ends.
func (h *host) agentUnit() {
	for !h.isOff() {
		p, err := h.startAgent()
		if err != nil {
			h.log.Warn("the agent's program does not start", "error", err)
		}
		for p != nil {
			<-p.dead
			p = p.next
		}
		t := time.NewTimer(restartDelay)
		select {
		case <-h.off:
		case <-h.ordered:
		case <-t.C:
			h.mu.Lock()
			h.restarts++
			h.mu.Unlock()
		}
		t.Stop()
	}
}

func (h *host) startAgent() (*process, error) {
	prog, err := h.load(layout.AgentLink)
	if err != nil {
		return nil, err
	}
	p := h.newProcess(prog, 0)
	h.runAgent(p)
	return p, nil
}

// restartAgent is `systemctl restart` of the agent's unit.
func (h *host) restartAgent() {
	h.mu.Lock()
	p := h.agent
	h.mu.Unlock()
	p.stop()
	select {
	case h.ordered <- struct{}{}:
	default: // already pending
	}
}

// errNothing says that the watcher found nothing to watch.
var errNothing = errors.New("nothing to watch")

// startWatcherUnit is `systemctl start` of the watcher's unit. It returns when the watcher
// reports that it watches. The unit starts only while there is a marker, and restarts when
// the watcher fails.
func (h *host) startWatcherUnit() error {
	h.mu.Lock()
	if h.watching {
		h.mu.Unlock()
		return nil
	}
	h.watching = true
	ended := make(chan struct{})
	h.unitEnded = ended
	h.mu.Unlock()
	ready := make(chan error, 1)
	say := func(err error) {
		select {
		case ready <- err:
		default: // the result of the start is already sent
		}
	}
	h.all.Go(func() {
		defer func() {
			h.mu.Lock()
			h.watching = false
			h.mu.Unlock()
			close(ended)
			say(errNothing)
		}()
		for h.condition() {
			err := h.runWatcher(say)
			if err == nil {
				return
			}
			say(err)
			h.log.Warn("the watcher's unit failed", "error", err)
			t := time.NewTimer(restartDelay)
			select {
			case <-h.off:
			case <-t.C:
			}
			t.Stop()
		}
	})
	return <-ready
}

// restartWatcherUnit is `systemctl restart`, which the agent uses so that a watcher that is
// just exiting does not count as running.
func (h *host) restartWatcherUnit() error {
	h.mu.Lock()
	ended := h.unitEnded
	h.mu.Unlock()
	for wait := time.Millisecond; ended != nil; wait = min(2*wait, time.Second) {
		h.stopWatcherUnit() // nil while the unit is starting
		select {
		case <-ended:
			ended = nil
		case <-h.off:
			return errDead
		case <-time.After(wait):
		}
	}
	return h.startWatcherUnit()
}

// condition is the unit's ConditionPathExists.
func (h *host) condition() bool {
	_, err := h.outside().Lstat(opExec, path.Join(top, layout.MarkerFile))
	return err == nil && !h.isOff()
}

func (h *host) stopWatcherUnit() {
	h.mu.Lock()
	p := h.watcher
	h.mu.Unlock()
	p.stop()
}
