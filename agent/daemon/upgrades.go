package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/muster-fleet/muster/agent/control"
	"github.com/muster-fleet/muster/agent/queue"
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

// upgrades runs the upgrades that are due, one at a time. While a version is being
// watched all but a rollback wait in the queue. If the version is rolled back the server
// sends them again to the previous version, whose ack token is older.
func (d *daemon) upgrades(ctx context.Context) {
	for ctx.Err() == nil {
		changed := d.queue.Changed()
		watching := d.watched()
		again := time.Time{}
		if watching != nil {
			d.forwardRollback(ctx)
		} else {
			item, next, err := d.queue.Next("", time.Now())
			again = next
			switch {
			case err != nil:
				d.log.Error("the queue cannot be written", "error", err, "again_in", queueRetry.String())
				again = time.Now().Add(queueRetry)
			case item == nil:
				d.reportWaiting()
				if err := d.executor.UndoLeftover(); errors.Is(err, upgrade.ErrUnderWay) {
					again = time.Now().Add(queueRetry)
				} else if err != nil {
					d.log.Error("a failed upgrade is not undone yet", "error", err, "again_in", queueRetry.String())
					again = time.Now().Add(queueRetry)
				}
			case d.upgradeTo(ctx, *item):
				continue
			default:
				again = time.Now().Add(queueRetry)
			}
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

// reportWaiting reports the upgrade that is scheduled or postponed, and stops reporting
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
	r, err := upgrade.ParseRequest(item.Action.ID, item.ActionID(), item.Local, item.Action.Data)
	if err != nil {
		return // the error is reported when it is due
	}
	at := item.Due()
	m := agentapi.UpgradeMetadata{ScheduledAt: &at, RetryErrorMsg: item.LastError}
	if item.Retries > 0 {
		m.RetryAttempt, m.RetryLimit = item.Retries, len(d.Config.Upgrade.Retry)
	}
	if now != nil && now.State == agentapi.UpgradeScheduled && now.ActionID == r.ActionID && now.Metadata.ScheduledAt.Equal(at) {
		return
	}
	d.setUpgrade(agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: agentapi.UpgradeScheduled, Metadata: m}, false)
}

// upgradeTo runs one upgrade to its end. It returns false if the queue could not be
// written.
func (d *daemon) upgradeTo(ctx context.Context, item queue.Item) bool {
	r, err := upgrade.ParseRequest(item.Action.ID, item.ActionID(), item.Local, item.Action.Data)
	switch {
	case item.Switched && d.rolledBack(r): // before the next: both may be builds of one version
		return true
	case item.Switched && d.Running.Is(r.Version):
		return d.finish(r.ID, queue.Result{Message: "upgraded to " + r.Version})
	case item.Switched:
		err = fmt.Errorf("the host was switched to version %s, but %s runs, for no recorded reason", r.Version, d.Running.FullVersion())
	case item.Stop != "":
		// The upgrade was stopped and the agent was killed before it was undone.
		// recoverJournal has undone it since.
		err = errors.New(item.Stop)
	case r.Rollback && d.Running.Is(r.Version):
		return d.finish(r.ID, queue.Result{Message: "version " + r.Version + " runs here"})
	case err == nil && item.Attempts >= queue.MaxAttempts:
		err = fmt.Errorf("given up after it was interrupted %d times", item.Attempts)
	}
	if err != nil {
		return d.concludeUpgrade(r, upgrade.Refuse(err))
	}
	if err := d.queue.Begin(r.ID); err != nil {
		d.log.Error("upgrade not begun: the queue cannot be written", "error", err)
		return false
	}
	d.setUpgrade(agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: agentapi.UpgradeRequested}, false)

	work, cancel := stoppable(ctx)
	defer cancel()
	err = d.executor.Upgrade(work, r)
	var failure *upgrade.Failure
	switch {
	case err == nil:
		d.stop(ErrReplaced)
		return true
	case errors.Is(err, steps.ErrStopping):
		d.log.Info("upgrade interrupted; it begins again when the agent starts", "version", r.Version)
		return true
	case !errors.As(err, &failure):
		failure = upgrade.Refuse(err)
	}
	return d.retryOrConclude(item, r, failure)
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

// retryOrConclude postpones an upgrade that may succeed later, and ends any other.
func (d *daemon) retryOrConclude(item queue.Item, r upgrade.Request, f *upgrade.Failure) bool {
	delays := d.Config.Upgrade.Retry
	// The person who requested a local upgrade sees the failure and decides.
	if !f.Transient || item.Local || item.Retries >= len(delays) {
		if item.Retries > 0 {
			f.Err = fmt.Errorf("given up after %d tries: %w", item.Retries+1, f.Err)
		}
		return d.concludeUpgrade(r, f)
	}
	at := time.Now().Add(delays[item.Retries])
	d.log.Warn("upgrade failed and is tried again", "version", r.Version, "error", f, "at", at, "retry", item.Retries+1, "of", len(delays))
	if err := d.queue.Postpone(r.ID, at, f.Error()); err != nil {
		d.log.Error("an upgrade was not postponed: the queue cannot be written", "error", err)
		return false
	}
	return true
}

// concludeUpgrade ends an upgrade that failed for good.
func (d *daemon) concludeUpgrade(r upgrade.Request, f *upgrade.Failure) bool {
	d.executor.Conclude(r, f)
	return d.finish(r.ID, queue.Result{Message: "upgrade to " + r.Version + " failed", Error: f.Error()})
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

// acceptLocal accepts an upgrade or a rollback that is requested on the host.
func (d *daemon) acceptLocal(req probe.UpgradeRequest) error {
	if req.Component != "" {
		return d.acceptComponentSwitch(req)
	}
	if req.Rollback {
		return d.acceptRollback(req)
	}
	if _, err := manifest.ParseVersion(req.Version); err != nil {
		return err
	}
	if req.Version == d.Running.FullVersion() && !d.Running.Snapshot {
		return fmt.Errorf("version %s already runs here", req.Version)
	}
	if d.Identity == nil && req.SourceURI == "" {
		return errNoServer
	}
	if d.watched() != nil {
		return fmt.Errorf("%w: version %s is being watched", control.ErrBusy, d.Running.FullVersion())
	}
	return d.addLocal(req)
}

// addLocal adds a local request to the queue.
func (d *daemon) addLocal(req probe.UpgradeRequest) error {
	if item := d.queue.Waiting(""); item != nil {
		return fmt.Errorf("%w: action %s is waiting or running", control.ErrBusy, item.Action.ID)
	}
	data, err := json.Marshal(agentapi.UpgradeData{Version: req.Version, SourceURI: req.SourceURI, Force: req.Force, Rollback: req.Rollback})
	if err != nil {
		return err
	}
	// Reported before the upgrade loop reports more, so that a client which asks
	// for the health next does not see the end of an older upgrade.
	before := d.currentUpgrade()
	d.setUpgrade(agentapi.UpgradeDetails{TargetVersion: req.Version, State: agentapi.UpgradeRequested}, false)
	if err := d.queue.AddLocal("local:"+uuid.NewString(), data, time.Now()); err != nil {
		if before != nil {
			d.setUpgrade(*before, false)
		} else {
			d.clearUpgrade()
		}
		return fmt.Errorf("%w: %w", control.ErrBusy, err)
	}
	return nil
}
