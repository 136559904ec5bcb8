package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/muster-fleet/muster/agent/component"
	"github.com/muster-fleet/muster/agent/control"
	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// runOrderedStages stages the versions that the server orders, one at a time, until ctx ends. A
// stage that the end interrupts is carried out after the restart.
func (d *daemon) runOrderedStages(ctx context.Context) {
	failed, tries := "", 0
	for ctx.Err() == nil {
		changed := d.queue.Changed()
		a := d.queue.Stage()
		if a == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if a.ID != failed {
			failed, tries = a.ID, 0
		}
		r, wait := d.orderedStage(ctx, *a, tries)
		if ctx.Err() != nil {
			return
		}
		if r != nil {
			if d.finish(a.ID, *r) {
				continue
			}
			wait = queueRetry
		} else if wait != queueRetry {
			tries++
		}
		waiting, cancel := context.WithTimeout(ctx, wait)
		select {
		case <-changed: // it may have been cancelled
		case <-waiting.Done():
		}
		cancel()
	}
}

// orderedStage carries out one stage. It returns its result, or nil and after what time to try
// again: queueRetry if something else is under way.
func (d *daemon) orderedStage(ctx context.Context, a agentapi.Action, tries int) (*queue.Result, time.Duration) {
	if a.Expiration != nil && time.Now().After(*a.Expiration) {
		return &queue.Result{Error: "expired at " + a.Expiration.UTC().Format(time.RFC3339) + ", before it could begin"}, 0
	}
	if d.watched() != nil {
		return nil, queueRetry
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.mu.Lock()
	d.stageAction = a.ID
	d.cancelStageAction = cancel
	d.mu.Unlock()
	what, err := d.stageOrdered(work, a)
	d.mu.Lock()
	d.stageAction = ""
	d.mu.Unlock()
	switch {
	case err == nil:
		return &queue.Result{Message: what + " is staged"}, 0
	case errors.Is(err, control.ErrBusy), errors.Is(err, component.ErrBusy), errors.Is(err, upgrade.ErrUnderWay), ctx.Err() != nil:
		return nil, queueRetry
	case transientStage(err) && tries < len(d.Config.Upgrade.Retry):
		d.log.Warn("a version is not staged, and it is tried again", "version", what, "error", err, "again_in", d.Config.Upgrade.Retry[tries].String())
		return nil, d.Config.Upgrade.Retry[tries]
	}
	return &queue.Result{Message: what + " is not staged", Error: err.Error()}, 0
}

// stageOrdered stages what an action names, and returns what that is.
func (d *daemon) stageOrdered(ctx context.Context, a agentapi.Action) (what string, err error) {
	if r, ok, err := component.ParseRequest("stage:"+a.ID, a.ID, false, a.Data); ok {
		if err != nil {
			return "the component", err
		}
		what = r.Desired.Component + " " + r.Desired.Version
		if err := d.workloads.AcceptStage(r); err != nil {
			return what, err
		}
		return what, d.stageComponent(ctx, r)
	}
	r, err := upgrade.ParseRequest(a.ID, a.ID, false, a.Data)
	if err != nil {
		return "the version", err
	}
	if d.interrupted.ID == r.ID {
		r.Interrupted = d.interrupted.Interrupted
	}
	if err := d.reserveStage(r.Version); err != nil {
		return r.Version, err
	}
	return r.Version, d.stage(ctx, r)
}

// transientStage reports whether the same stage may succeed later.
func transientStage(err error) bool {
	var own *upgrade.Failure
	var components *component.Failure
	return errors.As(err, &own) && own.Transient || errors.As(err, &components) && components.Transient
}

// cancelStage ends the ordered stage of an action, if that is under way.
func (d *daemon) cancelStage(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id != d.stageAction {
		return false
	}
	d.cancelStageAction(steps.ErrCancelled)
	return true
}

// stagedVersions returns the staged versions to report, never nil.
func (d *daemon) stagedVersions() []string {
	out := append([]string{}, staged(d.knownVersions())...)
	for _, name := range d.workloads.Names() {
		for _, version := range staged(d.workloads.Versions(name)) {
			out = append(out, name+" "+version)
		}
	}
	return out
}
