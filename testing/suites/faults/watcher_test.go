package faults

import (
	"context"
	"errors"
	"net"
	"path"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
	"github.com/muster-fleet/muster/watcher/watch"
)

var errKilled = errors.New("killed")

// runWatcher runs a watcher to its end, as its main does; nil means exit code 0.
func (h *host) runWatcher(report func(error)) error {
	prog, err := h.load(layout.WatcherLink)
	if err != nil {
		return err
	}
	p := h.newProcess(prog, 0)
	h.mu.Lock()
	h.watcher = p
	base := h.restarts
	h.mu.Unlock()
	if h.isOff() {
		p.kill()
	}
	end := make(chan error, 1)
	h.all.Go(func() {
		err := p.watch(report, base)
		end <- err
		p.kill()
	})
	select {
	case err = <-end:
	case <-p.dead:
		err = errKilled
	}
	<-p.dead
	return err
}

func (p *process) watch(report func(error), base int) error {
	log := p.host.log.With("process", p.String())
	m, err := handoff.ReadMarker(p.disk, top)
	if m == nil {
		log.Info("nothing to watch", "error", err)
		report(errNothing)
		return nil
	}
	release, err := p.lock(path.Join(top, layout.WatcherLockFile), "another watcher is watching")
	if err != nil {
		report(errNothing)
		return nil
	}
	defer release() //nolint:errcheck // released by the end of the process
	report(nil)
	if p.program.life == retreats {
		if err := p.retreat(*m); err != nil {
			return err
		}
	}
	w := watch.Watch{Top: top, Disk: p.disk, Host: machine{p, base}, Log: log}
	_, err = w.Run(p.ctx)
	if errors.Is(err, context.Canceled) {
		return nil // asked to stop
	}
	return err
}

// retreat decides to roll back if the pointer has moved before this watcher began, as it
// has only after a crash.
func (p *process) retreat(m handoff.Marker) error {
	prog, err := p.host.load(layout.AgentLink)
	if err != nil || prog.home != m.To.Home {
		return err
	}
	if d, err := handoff.ReadDecision(p.disk, top, m); d != nil || err != nil {
		return err
	}
	time.Sleep(restartDelay) // the agent has come up
	return handoff.WriteDecision(p.disk, top, handoff.Decide(m, handoff.RolledBack, &handoff.Reason{Code: handoff.ReasonManual, Text: "Better safe."}))
}

// machine implements the watcher's access to the host.
type machine struct {
	p    *process
	base int // the number of restarts when the watch began
}

var _ watch.Host = machine{}

func (m machine) Agent() watch.Process {
	h := m.p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	exits := h.restarts - m.base
	if !h.agent.alive() {
		return watch.Process{Exits: exits}
	}
	return watch.Process{Alive: true, PID: h.agent.pid, Home: h.agent.program.home, Exits: exits}
}

func (machine) Diagnose(context.Context, string) watch.Diagnosis { return watch.Diagnosis{} }

func (m machine) Health(ctx context.Context) (probe.Health, error) {
	if !m.p.alive() {
		return probe.Health{}, errDead
	}
	return m.p.host.health(ctx)
}

// health asks the agent that was started last.
func (h *host) health(ctx context.Context) (probe.Health, error) {
	h.mu.Lock()
	p := h.agent
	h.mu.Unlock()
	return p.health(ctx)
}

func (p *process) health(ctx context.Context) (probe.Health, error) { return p.socket().Health(ctx) }

// socket returns a client of the agent's control socket.
func (p *process) socket() probe.Client {
	dial := func(ctx context.Context) (net.Conn, error) {
		if p == nil {
			return nil, net.ErrClosed
		}
		return p.control.dial(ctx)
	}
	return probe.Client{Dial: dial}
}

// Check is no point of interruption, since a check changes nothing on the host.
func (m machine) Check(context.Context, string, manifest.Check) error {
	h := m.p.host
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !m.p.alive():
		return errDead
	case !h.agent.alive() || h.agent.program.life != sound:
		return errors.New("connection refused")
	}
	return nil
}

// Start is never called: the agent has a service manager.
func (m machine) Start() error { return errors.New("the service manager starts the agent") }

func (m machine) Restart() error {
	if err := m.p.act("restart service", serviceName); err != nil {
		return err
	}
	m.p.host.restartAgent()
	return nil
}
