package daemon

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	// markerPoll is how often the agent checks whether the marker still exists, so
	// that it notices the end of a watch within a second.
	markerPoll = 250 * time.Millisecond
	// watcherCheck is the first interval at which the agent checks that a watcher
	// runs.
	watcherCheck = 5 * time.Second
	// reapFor is how long the agent waits to reap a watcher that exits.
	reapFor = 30 * time.Second
)

// recoverJournal undoes or finishes an upgrade that an earlier process left unfinished.
func (d *daemon) recoverJournal() (watcherPID int, err error) {
	left, err := d.executor.Recover()
	if err != nil {
		return 0, err
	}
	switch {
	case left == nil:
	case left.Failure != nil:
		d.log.Warn("an upgrade that had failed was undone", "version", left.Request.Version, "error", left.Failure)
		if item := d.queue.Begun(); item != nil && item.Action.ID == left.Request.ID {
			d.retryOrConclude(*item, left.Failure)
		}
	case left.Resume:
		d.log.Info("an interrupted upgrade begins again", "version", left.Request.Version)
	case left.Switched:
		return left.WatcherPID, nil
	}
	return 0, nil
}

// recoverStart reports the state of the last upgrade according to the files on the host.
func (d *daemon) recoverStart() {
	m, err := handoff.ReadMarker(d.Disk, d.Top)
	if err != nil {
		d.log.Warn("an unreadable upgrade marker is ignored", "error", err)
	}
	if m != nil {
		d.beginWatching(m)
		return
	}
	failure, err := upgrade.LastFailure(d.Disk, d.Top)
	if err != nil {
		d.log.Warn("an unreadable report of a failed upgrade is ignored", "error", err)
	}
	if failure != nil {
		d.setUpgrade(*failure, false)
		return
	}
	d.recoverOutcome()
}

// recoverPending reports the upgrade that an earlier process left in the queue. It continues soon,
// and the first check-in is not to look as if there were none.
func (d *daemon) recoverPending() {
	item := d.queue.Waiting("")
	switch {
	case item == nil, item.Switched, item.Stop != "", d.watched() != nil: // its end, or the watch, is reported
		return
	case item.Attempts == 0 && item.Due().After(time.Now()):
		d.reportWaiting()
		return
	}
	r := item.Request()
	d.setUpgrade(agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: agentapi.UpgradeRequested}, false)
}

// beginWatching reports that this version is being watched, or was restored.
func (d *daemon) beginWatching(m *handoff.Marker) {
	d.mu.Lock()
	if d.watching == nil {
		d.watching = make(chan struct{})
	}
	d.mu.Unlock()
	details := agentapi.UpgradeDetails{TargetVersion: m.To.FullVersion(), ActionID: m.ActionID}
	switch d.Running {
	case m.To:
		details.State = agentapi.UpgradeWatching
		d.setUpgrade(details, false)
		d.finish(d.actionOf(m.ActionID), queue.Result{Message: "upgraded to " + details.TargetVersion})
	case m.From:
		d.adopt(m)
		details.State = agentapi.UpgradeRollback
		details.Metadata.FailedState = agentapi.UpgradeWatching
		// The reason follows with the outcome, which the watcher is about to
		// write.
		d.setUpgrade(details, false)
	default:
		d.log.Warn("the upgrade marker is about other versions than the one that runs", "from", m.From.Home, "to", m.To.Home, "running", d.Running.Home)
	}
}

// adopt merges the queue of the version that was rolled back: the server sends the
// actions that it answered again, and they must not be done again.
func (d *daemon) adopt(m *handoff.Marker) {
	home := layout.Path(d.Top, m.To.Home)
	if err := d.queue.Adopt(queue.Path(home)); err != nil {
		d.log.Warn("the queue of the version that was rolled back was not read; the server may send actions again", "version", m.To.String(), "error", err)
	}
}

// actionOf returns the queue's id of a marker's action. A local action has no id in the
// marker.
func (d *daemon) actionOf(actionID string) string {
	if actionID != "" {
		return actionID
	}
	if item := d.queue.Begun(); item != nil && item.Local {
		return item.Action.ID
	}
	return ""
}

// recoverOutcome reports how the last watch ended.
func (d *daemon) recoverOutcome() {
	o, err := handoff.ReadOutcome(d.Disk, d.Top)
	if err != nil {
		d.log.Warn("an unreadable upgrade outcome is ignored", "error", err)
	}
	switch {
	case o == nil, o.Result == handoff.Committed, o.Result == handoff.RolledBack && d.Running != o.From,
		d.Running != o.From && d.Running != o.To:
		if o != nil && o.Result == handoff.Committed && d.Running == o.To {
			d.log.Info("this version was committed", "version", o.To.FullVersion())
			d.finish(d.actionOf(o.ActionID), queue.Result{Message: "upgraded to " + o.To.FullVersion()})
		}
		d.clearUpgrade()
		return
	}
	d.recoverRollback(o)
}

// rolledBack reports the rollback of r again if the watcher has recorded one. Its result may
// not have been stored before, as on a full disk.
func (d *daemon) rolledBack(r request.Request) bool {
	o, err := handoff.ReadOutcome(d.Disk, d.Top)
	if err != nil || o == nil || o.Result == handoff.Committed || d.Running != o.From || d.actionOf(o.ActionID) != r.ID {
		return false
	}
	return d.recoverRollback(o)
}

// recoverRollback reports a rollback. It returns false if the result could not be stored.
func (d *daemon) recoverRollback(o *handoff.Outcome) bool {
	version := o.To.FullVersion()
	reason := handoff.Reason{Text: "the watcher recorded no reason"}
	if o.Reason != nil {
		reason = *o.Reason
	}
	text := "version " + version + " was rolled back: " + reason.Text
	state := agentapi.UpgradeRollback
	if o.Result == handoff.RollbackFailed {
		text = "version " + version + " failed, and the rollback failed too: " + reason.Text
		state = agentapi.UpgradeFailed
	}
	if agentapi.IsFault(string(reason.Code)) {
		err := d.executor.RememberFailed(handoff.FailedVersion{Identity: o.To.Identity, Archive: o.Archive, Reason: reason.Text, At: o.At})
		if err != nil {
			d.log.Warn("a version that failed here was not remembered", "version", version, "error", err)
		}
	}
	d.setUpgrade(agentapi.UpgradeDetails{
		TargetVersion: version, ActionID: o.ActionID, State: state,
		Metadata: agentapi.UpgradeMetadata{
			FailedState: agentapi.UpgradeWatching, ErrorMsg: text, Reason: reason.Text, ReasonCode: string(reason.Code),
		},
	}, false)
	return d.finish(d.actionOf(o.ActionID), queue.Result{Message: "upgrade to " + version + " was rolled back", Error: text})
}

// watched returns a channel that is closed when the watch ends, or nil if there is no
// watch.
func (d *daemon) watched() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watching == nil {
		return nil
	}
	return d.watching
}

// watchMarker waits for the watch to end, and starts a watcher if none runs.
func (d *daemon) watchMarker(ctx context.Context, watcherPID int) {
	if d.watched() == nil {
		return
	}
	again := d.backoff(watcherCheck)
	var check time.Time // when to check for the watcher; zero means now
	tick := time.NewTicker(markerPoll)
	defer tick.Stop()
	for d.markerExists() {
		if now := time.Now(); !now.Before(check) {
			d.ensureWatcher(ctx)
			check = now.Add(max(watcherCheck, again.Next()))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	d.recoverStart()
	d.mu.Lock()
	close(d.watching)
	d.watching = nil
	d.mu.Unlock()
	d.reap(ctx, watcherPID, tick.C)
}

func (d *daemon) markerExists() bool {
	_, err := d.Disk.Lstat("upgrade marker", layout.Path(d.Top, layout.MarkerFile))
	return err == nil || !errors.Is(err, fs.ErrNotExist)
}

// ensureWatcher starts a watcher if none holds the lock, as after the watcher was killed
// or the power failed.
func (d *daemon) ensureWatcher(ctx context.Context) {
	release, err := d.Lock(layout.Path(d.Top, layout.WatcherLockFile), "")
	if errors.Is(err, ErrLocked) {
		return
	}
	if err == nil {
		err = release()
	}
	if err != nil {
		d.log.Warn("cannot tell whether a watcher runs", "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, upgrade.WatcherReady)
	defer cancel()
	w, err := d.Watchers.Start(ctx, layout.Path(d.Top, layout.WatcherLink), d.Top)
	switch {
	case err == nil:
		d.log.Info("watcher started, since none was running", "pid", w.PID())
	case errors.Is(err, upgrade.ErrNothingToWatch):
		d.log.Info("watcher exited at once", "why", err)
	case ctx.Err() == nil:
		d.log.Error("watcher not started: this version is not watched", "error", err)
	}
}

// reap collects the exit status of the watcher that the previous process started.
func (d *daemon) reap(ctx context.Context, pid int, tick <-chan time.Time) {
	if pid == 0 || d.Reap == nil {
		return
	}
	for end := time.Now().Add(reapFor); time.Now().Before(end) && !d.Reap(pid); {
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}
