package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

// acceptStage accepts a stage that is requested on the host.
func (d *daemon) acceptStage(req probe.StageRequest) error {
	if err := d.checkFetched(req.Version, req.SourceURI); err != nil {
		return err
	}
	r := request.Request{ID: "stage", Local: true, Version: req.Version, SourceURI: req.SourceURI, Force: req.Force}
	if req.Component != "" {
		r.Component = agentapi.ComponentData{Name: req.Component, UpgradeID: "stage-" + req.Version}
		return d.addStage(r)
	}
	if err := d.checkOwn(req.Version); err != nil {
		return err
	}
	if item := d.queue.Begun(); item != nil {
		return fmt.Errorf("%w: action %s", request.ErrBusy, item.Action.ID)
	}
	return d.addStage(r)
}

// addStage gives a stage to runStages.
func (d *daemon) addStage(r request.Request) error {
	err := d.reserveStage(r)
	if err == nil {
		d.stages <- r // there is room: the one before has ended
	}
	return err
}

// beginAgain gives a stage to runStages that an earlier process left unfinished.
func (d *daemon) beginAgain(r request.Request) {
	d.log.Info("an interrupted stage begins again", "stage", r.String())
	if err := d.addStage(r); err != nil {
		d.log.Error("it does not begin again", "error", err)
	}
}

// reserveStage reports a stage that is about to begin, and returns an error while its subject has one.
func (d *daemon) reserveStage(r request.Request) error {
	if r.Component.Name != "" {
		return d.workloads.AcceptStage(r)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.staging != nil && !d.staging.State.Ended() {
		return fmt.Errorf("%w: version %s is being staged", request.ErrBusy, d.staging.TargetVersion)
	}
	d.staging = &agentapi.UpgradeDetails{TargetVersion: r.Version, State: agentapi.UpgradeRequested}
	return nil
}

// recoverStage undoes or finishes a stage that an earlier process left unfinished.
func (d *daemon) recoverStage() {
	r, err := d.executor.RecoverStage()
	switch {
	case err != nil:
		d.log.Warn("what is left of a stage could not be removed; the upgrade loop tries again", "error", err)
	case r != nil && !r.Local: // it is in the queue
		d.interrupted = *r
	case r != nil:
		d.beginAgain(*r)
	}
}

// runStages runs the stages that were accepted, each apart from the others, until ctx ends. A stage
// that was interrupted begins again by its journal.
func (d *daemon) runStages(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	for {
		select {
		case r := <-d.stages:
			parts.Go(func() { _ = d.stage(ctx, r) }) // it is reported
		case <-ctx.Done():
			return
		}
	}
}

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

// stage does a stage that was reserved.
func (d *daemon) stage(ctx context.Context, r request.Request) error {
	work, cancel := stoppable(ctx)
	defer cancel()
	do := d.stageOwn
	if r.Component.Name != "" {
		do = d.workloads.Stage
	}
	err := do(work, r)
	if errors.Is(err, steps.ErrStopping) {
		d.log.Info("a stage was interrupted; it begins again when the agent starts", "stage", r.String())
	}
	return err
}

// stageOwn stages a version of the agent.
func (d *daemon) stageOwn(ctx context.Context, r request.Request) error {
	err := d.executor.Stage(ctx, r)
	var f *request.Failure
	switch {
	case err == nil:
		d.log.Info("version is staged", "version", r.Version)
		d.checkVersions(ctx)
		d.mu.Lock()
		d.staging = nil
		d.mu.Unlock()
		return nil
	case errors.Is(err, steps.ErrStopping):
		return err
	case !errors.As(err, &f):
		f = upgrade.Refuse(err)
	}
	d.setStaging(f.Details(r), false)
	return f
}

// setStaging sets the state of the stage.
func (d *daemon) setStaging(u agentapi.UpgradeDetails, progress bool) {
	d.mu.Lock()
	d.staging = &u
	d.mu.Unlock()
	if progress {
		return
	}
	log := d.log.With("state", u.State, "version", u.TargetVersion)
	if u.Metadata.ErrorMsg != "" {
		log = log.With("error", u.Metadata.ErrorMsg)
	}
	log.Info("stage")
}

func (d *daemon) currentStage() *agentapi.UpgradeDetails {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.staging == nil {
		return nil
	}
	u := *d.staging
	return &u
}
