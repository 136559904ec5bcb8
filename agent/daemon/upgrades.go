package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

// queueRetry is the wait after the queue could not be written, for instance on a full
// disk.
const queueRetry = 10 * time.Second

var errNoServer = errors.New("this host is not enrolled, so there is no server to fetch the package from: enrol it, or name a source_uri")

// upgrades runs the upgrades of the agent itself that are due, one at a time.
func (d *daemon) upgrades(ctx context.Context) {
	for ctx.Err() == nil {
		changed, watching := d.queue.Changed(), d.watched()
		item, again := d.due(ctx, "")
		if item != nil {
			if d.upgradeTo(ctx, *item) {
				continue
			}
			again = time.Now().Add(queueRetry)
		}
		wait := time.Until(again)
		if again.IsZero() {
			wait = time.Hour
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-watching: // nil while nothing is watched
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// due returns the upgrade of a component, or with an empty name of the agent itself, that is to run now, or nil and
// when to ask again (zero: only after a change). It reports the one that waits.
//
// A version of the agent that is being watched begins no upgrades. If it is rolled back, the server sends those of the
// agent again to the previous version, whose ack token is older, and that version would find those of components half
// done. It continues those that were begun.
func (d *daemon) due(ctx context.Context, component string) (*queue.Item, time.Time) {
	own, soon := component == "", time.Now().Add(queueRetry)
	if own && d.watched() != nil {
		d.forwardRollback(ctx)
		return nil, time.Time{}
	}
	item, again, err := d.queue.Next(component, time.Now())
	switch {
	case err != nil:
		d.log.Error("the queue cannot be written", "error", err, "again_in", queueRetry.String())
		return nil, soon
	case item != nil && !own && item.Attempts == 0 && d.watched() != nil:
		d.workloads.Requested(item.Request(), "waits until the agent's new version, which is being watched, is committed or rolled back")
		return nil, soon
	case item != nil:
		return item, time.Time{}
	case !own:
		if waiting := d.queue.Waiting(component); waiting != nil {
			d.workloads.Scheduled(waiting.Request(), d.scheduled(*waiting))
		}
		return nil, again
	}
	d.reportWaiting()
	if err := d.executor.UndoLeftover(); err != nil {
		if !errors.Is(err, request.ErrBusy) {
			d.log.Error("a failed upgrade is not undone yet", "error", err, "again_in", queueRetry.String())
		}
		return nil, soon
	}
	return nil, again
}

// reportWaiting reports the upgrade of the agent that is scheduled or postponed, and stops reporting
// it when it is gone.
func (d *daemon) reportWaiting() {
	item := d.queue.Waiting("")
	now := d.currentUpgrade()
	if item == nil {
		if now != nil && now.State == agentapi.UpgradeScheduled {
			d.recoverStart() // report the last upgrade again
		}
		return
	}
	r, m := item.Request(), d.scheduled(*item)
	if now != nil && now.State == agentapi.UpgradeScheduled && now.ActionID == r.ActionID && now.Metadata.ScheduledAt.Equal(*m.ScheduledAt) {
		return
	}
	d.setUpgrade(agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: agentapi.UpgradeScheduled, Metadata: m}, false)
}

// scheduled returns what is reported of an upgrade that waits.
func (d *daemon) scheduled(item queue.Item) agentapi.UpgradeMetadata {
	m := agentapi.UpgradeMetadata{ScheduledAt: new(item.Due()), RetryErrorMsg: item.LastError}
	if item.Retries > 0 {
		m.RetryAttempt, m.RetryLimit = item.Retries, len(d.Config.Upgrade.Retry)
	}
	return m
}

// upgradeTo runs one upgrade of the agent to its end. It returns false if the queue could not be
// written.
func (d *daemon) upgradeTo(ctx context.Context, item queue.Item) bool {
	r := item.Request()
	var err error
	switch {
	case item.Switched && d.rolledBack(r): // before the next: both may be builds of one version
		return true
	case item.Switched && d.Running.Is(r.Version):
		return d.finish(r.ID, queue.Result{Message: "upgraded to " + r.Version})
	case item.Switched:
		err = fmt.Errorf("the host was switched to version %s, but %s runs, for no recorded reason", r.Version, d.Running.FullVersion())
	case r.Stop != "":
		// The upgrade was stopped and the agent was killed before it was undone.
		// recoverJournal has undone it since.
		err = errors.New(r.Stop)
	case r.Rollback && d.Running.Is(r.Version):
		return d.finish(r.ID, queue.Result{Message: "version " + r.Version + " runs here"})
	case r.Interrupted >= request.MaxInterrupted:
		err = request.ErrInterrupted
	}
	if err != nil {
		return d.conclude(r, upgrade.Refuse(err))
	}
	return d.carryOut(ctx, item)
}

// engine carries out what is requested of its subjects: the agent itself, or the components.
type engine interface {
	// Upgrade returns nil, steps.ErrStopping if the upgrade goes on when the agent starts, or a
	// [*request.Failure].
	Upgrade(context.Context, request.Request) error
	// Conclude reports a failure that is not tried again.
	Conclude(request.Request, *request.Failure)
}

func (d *daemon) engineOf(r request.Request) engine {
	if r.Component.Name != "" {
		return d.workloads
	}
	return d.executor
}

// carryOut does one upgrade, of whatever subject, to its end. It returns false if the queue could
// not be written.
func (d *daemon) carryOut(ctx context.Context, item queue.Item) bool {
	r := item.Request()
	if err := d.queue.Begin(r.ID); err != nil {
		d.log.Error("upgrade not begun: the queue cannot be written", "upgrade", r.String(), "error", err, "again_in", queueRetry.String())
		return false
	}
	own := r.Component.Name == ""
	if own {
		d.setUpgrade(agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: agentapi.UpgradeRequested}, false)
	}
	work, cancel := stoppable(ctx)
	defer cancel()
	err := d.engineOf(r).Upgrade(work, r)
	var f *request.Failure
	switch {
	case err == nil && own:
		d.stop(ErrReplaced)
		return true
	case err == nil:
		return d.finish(r.ID, queue.Result{Message: fmt.Sprintf("component %s upgraded to %s", r.Component.Name, r.Version)})
	case errors.Is(err, steps.ErrStopping):
		d.log.Info("an upgrade was interrupted; it goes on when the agent starts", "upgrade", r.String())
		return true
	case !errors.As(err, &f):
		f = upgrade.Refuse(err)
	}
	return d.retryOrConclude(item, f)
}

// stoppable returns a context that ends with ctx. Its cause is that somebody has cancelled the work, or
// [steps.ErrStopping]: an agent that stops is no failure of what it was doing.
func stoppable(ctx context.Context) (context.Context, func()) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	after := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if !errors.Is(cause, steps.ErrCancelled) {
			cause = steps.ErrStopping
		}
		cancel(cause)
	})
	return work, func() {
		after()
		cancel(nil)
	}
}

// retryAfter returns after what time a request that has failed, and was tried again so often, is tried
// once more, or false. Who requests something on the host sees the failure and decides.
func (d *daemon) retryAfter(r request.Request, f *request.Failure, retries int) (time.Duration, bool) {
	delays := d.Config.Upgrade.Retry
	if !f.Transient || r.Local || retries >= len(delays) {
		return 0, false
	}
	d.log.Warn("a request has failed and is tried again", "request", r.String(), "error", f, "again_in", delays[retries].String(), "retry", retries+1, "of", len(delays))
	return delays[retries], true
}

// retryOrConclude postpones an upgrade that may succeed later, and ends any other. It returns false
// if the queue could not be written.
func (d *daemon) retryOrConclude(item queue.Item, f *request.Failure) bool {
	r := item.Request()
	after, again := d.retryAfter(r, f, item.Retries)
	if !again {
		if item.Retries > 0 {
			f.Err = fmt.Errorf("given up after %d tries: %w", item.Retries+1, f.Err)
		}
		return d.conclude(r, f)
	}
	if err := d.queue.Postpone(r.ID, time.Now().Add(after), f.Error()); err != nil {
		d.log.Error("an upgrade was not postponed: the queue cannot be written", "error", err)
		return false
	}
	return true
}

// conclude ends an upgrade that failed for good.
func (d *daemon) conclude(r request.Request, f *request.Failure) bool {
	d.engineOf(r).Conclude(r, f)
	what := "upgrade"
	if r.Component.Name != "" {
		what += " of component " + r.Component.Name
	}
	return d.finish(r.ID, queue.Result{Message: fmt.Sprintf("%s to %s failed", what, r.Version), Error: f.Error()})
}

// finish ends an action. It returns false if that could not be stored.
func (d *daemon) finish(id string, r queue.Result) bool {
	if id == "" {
		return true
	}
	if err := d.queue.Finish(id, r, time.Now()); err != nil {
		d.log.Error("the result of an action was not stored; it is tried again when the agent starts", "action", id, "error", err)
		return false
	}
	return true
}

// acceptLocal accepts an upgrade or a switch that is requested on the host.
func (d *daemon) acceptLocal(req probe.UpgradeRequest) error {
	switch {
	case req.Component != "":
		if err := d.checkSwitch(req); err != nil {
			return err
		}
		return d.addLocal(req)
	case req.Rollback:
		return d.acceptRollback(req)
	}
	if err := d.checkFetched(req.Version, req.SourceURI); err != nil {
		return err
	}
	if err := d.checkOwn(req.Version); err != nil {
		return err
	}
	return d.addLocal(req)
}

// checkFetched returns an error if a version that is requested on the host cannot be fetched.
func (d *daemon) checkFetched(version, sourceURI string) error {
	if _, err := manifest.ParseVersion(version); err != nil {
		return err
	}
	if d.Identity == nil && sourceURI == "" {
		return errNoServer
	}
	return nil
}

// checkOwn returns an error if the agent cannot become a version: it runs, or the one that runs is being watched.
func (d *daemon) checkOwn(version string) error {
	switch {
	case version == d.Running.FullVersion() && !d.Running.Snapshot:
		return fmt.Errorf("version %s already runs here", version)
	case d.watched() != nil:
		return fmt.Errorf("%w: version %s is being watched", request.ErrBusy, d.Running.FullVersion())
	}
	return nil
}

// checkSwitch returns an error unless a component can be switched to a version that is on the host.
func (d *daemon) checkSwitch(req probe.UpgradeRequest) error {
	if !req.Rollback {
		return errors.New("component: an upgrade that is requested on the host switches to a version which is there: use `muster-agent versions switch`")
	}
	var here, found bool
	for _, v := range d.workloads.Versions(req.Component) {
		here = here || v.Version == req.Version && v.State == probe.VersionRunning
		found = found || v.Version == req.Version && v.State != probe.VersionRunning
	}
	switch {
	case found, here && req.Force: // an upgrade may have been left half-way
		return nil
	case here:
		return fmt.Errorf("version %s of %s is installed here already", req.Version, req.Component)
	}
	if err := d.workloads.Known(req.Component); err != nil {
		return err
	}
	return fmt.Errorf("version %s of %s is neither staged nor kept on this host: stage it first with `muster-agent versions stage %s --component %s`", req.Version, req.Component, req.Version, req.Component)
}

// addLocal adds a local request to the queue.
func (d *daemon) addLocal(req probe.UpgradeRequest) error {
	if item := d.queue.Waiting(req.Component); item != nil {
		return fmt.Errorf("%w: action %s is waiting or running", request.ErrBusy, item.Action.ID)
	}
	data := agentapi.UpgradeData{Version: req.Version, SourceURI: req.SourceURI, Force: req.Force, Rollback: req.Rollback}
	if req.Component != "" {
		data.Component = &agentapi.ComponentData{Name: req.Component}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	// Reported before the upgrade loop reports more, so that a client which asks for the health next does not see the
	// end of an older upgrade.
	undo := d.requested(req)
	if err := d.queue.AddLocal("local:"+uuid.NewString(), text, time.Now()); err != nil {
		undo()
		return err
	}
	return nil
}

// requested reports a local request that is about to be in the queue. undo reports what was reported before.
func (d *daemon) requested(req probe.UpgradeRequest) (undo func()) {
	if req.Component != "" {
		d.workloads.Requested(request.Request{Version: req.Version, Component: agentapi.ComponentData{Name: req.Component}}, "")
		return func() { d.workloads.CalledOff(d.queue.Components()) }
	}
	before := d.currentUpgrade()
	d.setUpgrade(agentapi.UpgradeDetails{TargetVersion: req.Version, State: agentapi.UpgradeRequested}, false)
	return func() {
		if before == nil {
			d.clearUpgrade()
			return
		}
		d.setUpgrade(*before, false)
	}
}
