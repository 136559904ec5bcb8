package component

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// aloneFor is how long a host waits for the server before it undoes an upgrade in lockstep, as
	// long as it may. A server gives each phase two hours at most, and undoes it then.
	aloneFor = 3 * time.Hour
	// lockstepRetry is how often a host that may not undo by itself repeats what fails.
	lockstepRetry = time.Minute
)

// proceed is what the PROCEEDs of the server say of an upgrade in lockstep since its UPGRADE.
type proceed struct {
	id    string // of the upgrade in the queue
	until agentapi.LockstepPhase
	undo  string // why it is to be undone; empty: it is not
}

// Proceed lets an upgrade in lockstep, by its id in the queue, go on until a phase, or undoes it
// if undo has a reason. It may be called before the upgrade begins, and repeatedly.
func (m *Manager) Proceed(component, id string, until agentapi.LockstepPhase, undo string) {
	c := m.component(component)
	if c == nil {
		return
	}
	c.mu.Lock()
	c.proceed = proceed{id, until, undo}
	c.mu.Unlock()
	c.stopIfUndone(id)
	select {
	case c.proceeded <- struct{}{}:
	default: // a call before has not been seen yet
	}
}

// stopIfUndone ends the upgrade under way if it is to be undone.
func (c *component) stopIfUndone(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == id && c.proceed.id == id && c.proceed.undo != "" {
		c.cancel(steps.Cancelled(c.proceed.undo))
	}
}

// until returns the last phase that an upgrade may do.
func (w *work) until() agentapi.LockstepPhase {
	out := w.j.Lockstep.Until
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if o := w.c.proceed; o.id == w.r.ID && o.until.Reaches(out) {
		out = o.until
	}
	return out
}

// undoer is who decides that an upgrade is undone.
type undoer int

const (
	byHost   undoer = iota // the host of the upgrade, which undoes what fails
	byServer               // the server, which may have let the other hosts go on: what fails is repeated until it decides
	byNobody               // the phase switch may have begun here, and has on other hosts
)

// undoneBy returns who decides that an upgrade is undone, by how far it may go and is in lockstep; nil: it is in none.
func undoneBy(l *agentapi.LockstepReport) undoer {
	switch {
	case l == nil:
		return byHost
	case l.Until.Reaches(agentapi.LockstepSwitch):
		return byNobody
	case l.Reached.Reaches(agentapi.LockstepBackup):
		return byServer
	}
	return byHost
}

func (w *work) undoneBy() undoer { return undoneBy(w.j.Lockstep) }

// await waits until a phase may begin, and records that it may.
func (w *work) await(ctx context.Context, phase agentapi.LockstepPhase) error {
	c := w.c
	limit := time.NewTimer(aloneFor)
	defer limit.Stop()
	again := time.NewTimer(0)
	defer again.Stop()
	w.report(w.state, agentapi.UpgradeMetadata{Reason: fmt.Sprintf("waits until the server lets all hosts begin %q", phase)}, false)
	for {
		if until := w.until(); until.Reaches(phase) {
			if w.j.Lockstep.Until == until {
				return nil
			}
			before := w.j.Lockstep.Until
			w.j.Lockstep.Until = until
			err := w.run.Save()
			if err == nil {
				return nil
			}
			w.j.Lockstep.Until = before
			c.m.Log.Error("a component's upgrade waits, since its journal cannot be written", "component", c.name, "error", err)
			again.Reset(lockstepRetry)
		}
		select {
		case <-c.proceeded:
		case <-again.C:
		case <-limit.C:
			if w.undoneBy() == byHost {
				return fmt.Errorf("no PROCEED until %s has come from the server within %s", phase, aloneFor)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// do does the steps. Where only the server may have them undone, it repeats them until they succeed or the
// server decides.
func (w *work) do(ctx context.Context) (failed string, err error) {
	for {
		failed, err = w.run.Do(ctx)
		if err == nil || ctx.Err() != nil || w.undoneBy() != byServer {
			return failed, err
		}
		w.report(w.state, agentapi.UpgradeMetadata{ErrorMsg: err.Error(), Reason: fmt.Sprintf("%s is repeated until the server decides", failed)}, false)
		select {
		case <-time.After(lockstepRetry):
		case <-w.c.proceeded:
		case <-ctx.Done():
			return failed, context.Cause(ctx)
		}
	}
}

// leave ends an upgrade in lockstep that has failed where nothing is undone any more. What has not
// been started yet stays stopped, since the versions of the other hosts may not run with the one
// before; what was started stays as it is.
func (w *work) leave(ctx context.Context, step string, why error) error {
	c := w.c
	f := failure(step, why, transient(step, why))
	if step == primitive.UndrainNode || step == observeHealth {
		if f.Transient {
			return f // it runs, and the step is repeated
		}
		if err := w.stays(ctx, why.Error()); err != nil {
			return err
		}
		return f
	}
	if step == primitive.StartNode {
		f.Err = w.withOutput(why, &w.j.To)
		if err := w.stopAgain(ctx); err != nil {
			f.Err = fmt.Errorf("%w; it could not be stopped either: %w", f.Err, err)
		}
	}
	f.Err = fmt.Errorf("%w; component %s stays stopped, since other hosts change to version %s: order that again to go on, or any version with force to go back first", f.Err, c.name, w.j.Desired.Version)
	c.note(func(s *state) {
		s.Broken = f.Err.Error()
		if !f.Transient { // otherwise it is repeated
			s.fail(w.j, f.Err.Error(), upgradeStates[step] == agentapi.UpgradeRestarting, time.Now().UTC())
		}
	})
	c.m.Log.Error("a component's upgrade in lockstep has failed where nothing is undone, so it stays stopped", "component", c.name, "error", f.Err)
	return f
}

// stopAgain stops a version that could not be started, so that no restart starts it.
func (w *work) stopAgain(ctx context.Context) error {
	adapter, to, err := w.to()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), primitive.StopTimeout)
	defer cancel()
	return adapter.Stop(ctx, to)
}

// ofOther decides what an order does to an upgrade in lockstep that another order has begun, and
// that this host may not undo by itself: one to the same version goes on where nobody undoes it any
// more, and one with force undoes it.
func (w *work) ofOther(r request.Request) (goesOn bool, err error) {
	name, to := w.c.name, w.j.Desired.Version
	switch {
	case r.Force:
		return false, nil
	case w.undoneBy() == byServer:
		return false, fmt.Errorf("component %s is upgraded to %s in lockstep with other hosts, and only the server's rollout decides how that ends: order with force if it is gone", name, to)
	case r.Version != to:
		return false, fmt.Errorf("component %s is stopped in the middle of its upgrade to %s in lockstep with other hosts: order %s to go on, or with force to go back first", name, to, to)
	}
	w.j.Lockstep.Until = agentapi.LockstepStart
	if r.Component.Lockstep != nil {
		w.j.Lockstep.Until = r.Component.Lockstep.Until
	}
	if !w.j.Lockstep.Until.Reaches(agentapi.LockstepSwitch) {
		w.j.Lockstep.Until = agentapi.LockstepSwitch
	}
	return true, nil
}
