package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
)

// runOrderedStages stages the versions that the server orders, one at a time, until ctx ends. A
// stage that the end interrupts is carried out after the restart.
func (d *daemon) runOrderedStages(ctx context.Context) {
	failed, tries := "", 0
	for ctx.Err() == nil {
		changed := d.queue.Changed()
		item := d.queue.Stage()
		if item == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if item.Action.ID != failed {
			failed, tries = item.Action.ID, 0
		}
		r, wait := d.orderedStage(ctx, *item, &tries)
		if ctx.Err() != nil {
			return
		}
		if r != nil {
			if d.finish(item.Action.ID, *r) {
				continue
			}
			wait = queueRetry
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
// again: queueRetry if something else is under way. It counts in tries how often the stage has failed.
func (d *daemon) orderedStage(ctx context.Context, item queue.Item, tries *int) (*queue.Result, time.Duration) {
	if e := item.Action.Expiration; e != nil && time.Now().After(*e) {
		return &queue.Result{Error: "expired at " + e.UTC().Format(time.RFC3339) + ", before it could begin"}, 0
	}
	if d.watched() != nil {
		return nil, queueRetry
	}
	r := item.Request()
	if d.interrupted.ID == r.ID {
		r.Interrupted = d.interrupted.Interrupted
	}
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d.mu.Lock()
	d.stageAction = r.ID
	d.cancelStageAction = cancel
	d.mu.Unlock()
	err := d.reserveStage(r)
	if err == nil {
		err = d.stage(work, r)
	}
	d.mu.Lock()
	d.stageAction = ""
	d.mu.Unlock()
	var f *request.Failure
	switch {
	case err == nil:
		return &queue.Result{Message: r.String() + " is staged"}, 0
	case errors.Is(err, request.ErrBusy), ctx.Err() != nil:
		return nil, queueRetry
	case errors.As(err, &f):
		if after, again := d.retryAfter(r, f, *tries); again {
			*tries++
			return nil, after
		}
	}
	return &queue.Result{Message: r.String() + " is not staged", Error: err.Error()}, 0
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
