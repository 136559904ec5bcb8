package daemon

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	// markerPoll is how often the marker is looked for while there is one: the
	// end of a watch is to be known within a second.
	markerPoll = 250 * time.Millisecond
	// watcherCheck is how often, at first, the watcher is looked for.
	watcherCheck = 5 * time.Second
	// reapFor is how long an ended watcher is waited for.
	reapFor = 30 * time.Second
)

// recoverJournal undoes, or takes note of, an upgrade that an earlier process left
// in the middle.
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
			d.retryOrConclude(*item, left.Request, left.Failure)
		}
	case left.Resume:
		d.log.Info("an interrupted upgrade begins again", "version", left.Request.Version)
	case left.Switched:
		return left.WatcherPID, nil
	}
	return 0, nil
}

// recoverStart reports what the files on the host mean for the version that runs.
func (d *daemon) recoverStart() {
	m, err := handoff.ReadMarker(d.Disk, d.Top)
	if err != nil {
		d.log.Warn("an unreadable upgrade marker is passed over", "error", err)
	}
	if m != nil {
		d.beginWatching(m)
		return
	}
	failure, err := upgrade.LastFailure(d.Disk, d.Top)
	if err != nil {
		d.log.Warn("an unreadable report of a failed upgrade is passed over", "error", err)
	}
	if failure != nil {
		d.setUpgrade(*failure, false)
		return
	}
	d.recoverOutcome()
}

// beginWatching says that this version is under judgement, or was put back.
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

// adopt takes over what the version that was put back from has answered: the
// server sends those actions again, and they must not be done again.
func (d *daemon) adopt(m *handoff.Marker) {
	home := layout.Path(d.Top, m.To.Home)
	if err := d.queue.Adopt(queue.Path(home)); err != nil {
		d.log.Warn("what the other version answered is not known; the server may send actions again", "version", m.To.String(), "error", err)
	}
}

// actionOf is the queue's id of a marker's action: one asked for on the host has
// none in the marker.
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
		d.log.Warn("an unreadable upgrade outcome is passed over", "error", err)
	}
	switch {
	case o == nil, o.Result == handoff.Committed, o.Result == handoff.RolledBack && d.Running != o.From,
		d.Running != o.From && d.Running != o.To:
		if o != nil && o.Result == handoff.Committed && d.Running == o.To {
			d.log.Info("this version was found good and stays", "version", o.To.FullVersion())
			d.finish(d.actionOf(o.ActionID), queue.Result{Message: "upgraded to " + o.To.FullVersion()})
		}
		d.clearUpgrade()
		return
	}
	d.recoverRollback(o)
}

func (d *daemon) recoverRollback(o *handoff.Outcome) {
	version := o.To.FullVersion()
	reason := handoff.Reason{Text: "no reason was given"}
	if o.Reason != nil {
		reason = *o.Reason
	}
	text := "version " + version + " was rolled back: " + reason.Text
	state := agentapi.UpgradeRollback
	if o.Result == handoff.RollbackFailed {
		text = "version " + version + " failed, and going back failed too: " + reason.Text
		state = agentapi.UpgradeFailed
	}
	if reason.Code != handoff.ReasonManual {
		err := upgrade.RememberFailed(d.Disk, d.Top, upgrade.FailedVersion{Identity: o.To.Identity, Reason: reason.Text, At: o.At})
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
	d.finish(d.actionOf(o.ActionID), queue.Result{Message: "upgrade to " + version + " was rolled back", Error: text})
}

// watched returns a channel that is closed when the watch ends, nil when none is
// under way.
func (d *daemon) watched() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watching == nil {
		return nil
	}
	return d.watching
}

// watchMarker waits for the watcher to finish, and sees to it that there is one.
func (d *daemon) watchMarker(ctx context.Context, watcherPID int) {
	if d.watched() == nil {
		return
	}
	again := d.backoff(watcherCheck)
	var check time.Time // of the watcher; zero is at once
	tick := time.NewTicker(markerPoll)
	defer tick.Stop()
	for d.markerThere() {
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

func (d *daemon) markerThere() bool {
	_, err := d.Disk.Lstat("upgrade marker", layout.Path(d.Top, layout.MarkerFile))
	return err == nil || !errors.Is(err, fs.ErrNotExist)
}

// ensureWatcher starts a watcher if none holds the lock: one that was killed, or
// that went with a power cut, must not leave this version unwatched.
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
		d.log.Info("watcher started, since none was at work", "pid", w.PID())
	case errors.Is(err, upgrade.ErrNothingToWatch):
		d.log.Info("watcher left again", "why", err)
	case ctx.Err() == nil:
		d.log.Error("watcher not started: this version is not watched", "error", err)
	}
}

// reap collects the watcher that the process before this one started.
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
