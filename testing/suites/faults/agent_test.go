package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/agent/gateway"
	hostinfo "github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// runAgent runs an agent program. It does what the agent's main does, with the simulated
// host.
func (h *host) runAgent(p *process) {
	h.mu.Lock()
	h.agent = p
	h.mu.Unlock()
	if h.isOff() {
		p.kill()
		return
	}
	h.log.Info("agent's process starts", "version", p.program.version, "pid", p.pid)
	switch p.program.life {
	case exits:
		p.kill()
		return
	case crashes:
		t := time.AfterFunc(crashAfter, p.kill)
		h.all.Go(func() { <-p.dead; t.Stop() })
	}
	h.all.Go(func() {
		defer p.kill()
		o, err := p.options()
		if err == nil {
			err = daemon.Agent{Options: o}.Run(p.ctx)
		}
		if p.alive() {
			h.log.Info("agent's process ends", "version", p.program.version, "error", err)
		}
	})
}

// options returns what daemon.Installed returns on a real machine, from the same files.
func (p *process) options() (daemon.Options, error) {
	o := daemon.Options{
		Top: top, GOOS: goos, GOARCH: goarch, PID: p.pid, Host: hostinfo.Info{Hostname: "host"},
		Disk: p.disk, Muster: true, HTTP: &http.Client{Transport: link{p}}, Other: &http.Client{Transport: link{p}},
		Control: p.control, Lock: p.agentLock, Watchers: units{p}, Exec: p.exec, Service: serviceName,
		Rand: func() float64 { return 0.5 }, Log: p.host.log.With("process", p.String()),
	}
	var err error
	if o.Config, err = config.Load(p.disk, top); err != nil {
		return o, err
	}
	if o.Running, err = daemon.RunningVersion(p.disk, top, p.program.file, "dev"); err != nil {
		return o, err
	}
	if o.Identity, err = identity.Load(p.disk, top); err != nil {
		return o, err
	}
	if p.program.life == unhealthy {
		o.Disk = denied{p.disk}
	}
	o.Trust = daemon.PinnedTrust(p.disk, path.Join(top, layout.TrustDir), &gateway.Client{HTTP: o.HTTP, URL: o.Identity.ServerURL}, o.Log)
	return o, nil
}

func (p *process) agentLock(path, _ string) (func() error, error) {
	release, err := p.lock(path, "held")
	if err != nil && p.alive() {
		err = fmt.Errorf("%w: %w", daemon.ErrLocked, err)
	}
	return release, err
}

// exec replaces the process by the program that the pointer leads to, with the same pid.
func (p *process) exec() error {
	if err := p.act("exec agent", path.Join(top, layout.AgentLink)); err != nil {
		return err
	}
	h := p.host
	prog, err := h.load(layout.AgentLink)
	if err != nil {
		return err
	}
	p.next = h.newProcess(prog, p.pid)
	p.kill()
	h.runAgent(p.next)
	return nil
}

// denied is the disk of a process that has started with the copy of its settings, since it may not read
// the file itself: as on a host whose security policy knows the programs of earlier versions only.
type denied struct{ disk.Disk }

func (d denied) ReadFile(op, name string) ([]byte, error) {
	if name == path.Join(top, layout.ConfigFile) {
		return nil, &disk.Error{Op: op, Err: &fs.PathError{Op: "open", Path: name, Err: syscall.EACCES}}
	}
	return d.Disk.ReadFile(op, name)
}

// units starts watchers through the simulated service manager.
type units struct{ p *process }

var _ upgrade.Watchers = units{}

func (u units) MarkerVersion(_ context.Context, file string) (int, error) {
	if err := u.p.act("ask watcher", file); err != nil {
		return 0, err
	}
	prog, err := loadFile(u.p.host.outside(), filepath.Clean(file))
	if err != nil {
		return 0, err
	}
	if prog.kind != "watcher" {
		return 0, fmt.Errorf("%s is no watcher", file)
	}
	return handoff.MarkerVersion, nil
}

func (u units) Start(_ context.Context, file, _ string) (upgrade.Watcher, error) {
	if err := u.p.act("start watcher", file); err != nil {
		return nil, err
	}
	err := u.p.host.restartWatcherUnit()
	if errors.Is(err, errNothing) {
		err = upgrade.ErrNothingToWatch
	}
	if !u.p.alive() {
		err = errDead // a dead process gets no answer
	}
	if err != nil {
		return nil, err
	}
	return u, nil
}

// PID and Stop implement upgrade.Watcher.
func (u units) PID() int { return 0 }

func (u units) Stop(context.Context) error {
	if err := u.p.act("stop watcher", layout.WatcherLink); err != nil {
		return err
	}
	u.p.host.stopWatcherUnit()
	return nil
}
