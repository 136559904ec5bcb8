package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	// startTimeout bounds the wait for the previous version to answer. It started
	// within seconds before; a loaded host gets a minute.
	startTimeout = 60 * time.Second

	// startRetry is the time between two attempts to start it. A service manager that
	// refuses because of too many starts allows them again within seconds.
	startRetry = 15 * time.Second

	// startPoll is the time between two health requests.
	startPoll = time.Second

	// rollbackDeadline bounds a whole rollback: verdictAttempts, each with its start
	// timeout and a stop that may take as long. If the disk hangs longer, the next
	// watcher continues.
	rollbackDeadline = 10 * time.Minute
)

// rollBack restores the previous version. Every step may be repeated, and after a crash the
// next watcher runs the same list:
//
//  1. decision       the reason, for a watcher started after a crash
//  2. pointer        back to the previous version
//  3. watcher link   likewise, if that version brought a watcher
//  4. active commit  likewise
//  5. restart        until the previous version answers
//  6. outcome        for the agent, which reports it
//  7. home           of the bad version removed, unless it never had a turn, and
//     the version from the records of those on the host
//  8. marker         removed, between the request and the decision
//
// The pointer moves before the bad version is stopped, so that from step 2 on this watcher,
// the service manager or a reboot starts the good version. A crash after stopping first
// would leave no agent running and a pointer to a broken program. The outcome is written
// when the good version answers, since only then is it certain. The marker is removed last:
// as long as it exists the next watcher repeats the remaining steps, and the agent begins no
// other upgrade whose files the removal could affect.
func (w *Watch) rollBack(ctx context.Context, m handoff.Marker, reason handoff.Reason, keep keepHome) (handoff.Outcome, error) {
	result := handoff.RolledBack
	outcome := func() handoff.Outcome {
		return handoff.Outcome{ActionID: m.ActionID, From: m.From, To: m.To, Archive: m.Archive, Result: result, Reason: &reason, At: time.Now()}
	}
	decision := handoff.Decide(m, handoff.RolledBack, &reason)
	decision.KeepHome = bool(keep)
	w.writeDecision(decision)
	runnable, err := w.has(opPointer, layout.AgentLink, m.From.Home)
	if err != nil {
		return outcome(), err
	}
	if !runnable {
		result = handoff.RollbackFailed
		reason.Text += fmt.Sprintf(" %s could not be restored: %s/%s is missing.", m.From, m.From.Home, layout.AgentLink)
		return outcome(), w.conclude(outcome(), keepBad)
	}
	if err := w.point(opPointer, layout.AgentLink, m.From.Home); err != nil {
		return outcome(), err
	}
	// A disk that is too full for a file may still move a link. An error here does
	// not keep the good version from starting; the caller tries again.
	finish := func() error { return errors.Join(w.pointWatcher(m), w.writeActiveCommit(m.From.Hash)) }
	late := finish()

	if err := w.startPrevious(ctx, m); err != nil {
		if ctx.Err() != nil {
			return outcome(), err
		}
		result = handoff.RollbackFailed
		reason = explain(handoff.Reason{Code: reason.Code, Text: reason.Text + fmt.Sprintf(" %s was restored but did not start: %s.", m.From, cause(err))},
			w.Host.Diagnose(ctx, m.From.Home))
		// Neither version runs. Both stay for the repair.
		keep = keepBad
	}
	if disk.IsFull(late) && w.makeRoom(m.To.Home, keep) {
		late = finish()
	}
	if late != nil {
		return outcome(), late
	}
	return outcome(), w.conclude(outcome(), keep)
}

// keepHome is whether the home of the rejected version stays on the host.
type keepHome bool

const (
	removeBad keepHome = false
	keepBad   keepHome = true
)

func (w *Watch) pointWatcher(m handoff.Marker) error {
	has, err := w.has(opWatcherLink, layout.WatcherLink, m.From.Home)
	if err != nil || !has {
		return err
	}
	return w.point(opWatcherLink, layout.WatcherLink, m.From.Home)
}

func (w *Watch) writeActiveCommit(hash string) error {
	return disk.WriteFile(w.Disk, opActiveCommit, layout.Path(w.Top, layout.ActiveCommitFile), []byte(hash+"\n"), 0o644)
}

// startPrevious starts the previous version and returns when it answers on its control
// socket, whatever its health.
func (w *Watch) startPrevious(ctx context.Context, m handoff.Marker) error {
	var (
		last     error
		ordered  time.Time
		deadline = time.Now().Add(startTimeout)
	)
	for {
		c := condition{}.next(m, w.sample(ctx, true), false)
		if c.kind == previous {
			return nil
		}
		// A process that does not answer may be the good version starting, so only
		// the first restart ignores it.
		if ordered.IsZero() || (time.Since(ordered) >= startRetry && c.kind != silent) {
			if err := w.Host.Restart(); err != nil {
				last = err
				w.Log.Error("the agent could not be restarted", "version", m.From.String(), "error", err)
			}
			ordered = time.Now()
		} else if c.kind == silent {
			last = c.err
		}
		if !time.Now().Before(deadline) {
			if last == nil {
				last = errors.New("no process was there")
			}
			return fmt.Errorf("no answer within %s: %w", startTimeout, last)
		}
		if err := pause(ctx, startPoll); err != nil {
			return err
		}
	}
}

// conclude writes the outcome of a rollback and cleans up.
func (w *Watch) conclude(o handoff.Outcome, keep keepHome) error {
	err := handoff.WriteOutcome(w.Disk, w.Top, o)
	if disk.IsFull(err) && w.makeRoom(o.To.Home, keep) {
		err = handoff.WriteOutcome(w.Disk, w.Top, o)
	}
	if err != nil {
		return err
	}
	if keep == removeBad {
		// A home that cannot be removed is left for the clean-up of the next commit:
		// it only takes space, while a marker that stays blocks the next upgrade.
		if err := w.removeHome(o.To.Home); err != nil {
			w.Log.Warn("home is left, it cannot be removed", "home", o.To.Home, "error", err)
		}
	}
	if err := handoff.DropGone(w.Disk, w.Top); err != nil {
		return err
	}
	return w.removeMarker()
}

// makeRoom removes the home of the rejected version before its time, on a disk that is full. The previous
// version answers by then, and the decision has the reason. It returns false if the home stays.
func (w *Watch) makeRoom(home string, keep keepHome) bool {
	if keep == keepBad {
		return false
	}
	w.Log.Warn("the disk is full: the home of the rejected version is removed first", "home", home)
	if err := w.removeHome(home); err != nil {
		w.Log.Warn("home is left, it cannot be removed", "home", home, "error", err)
		return false
	}
	return true
}

// writeDecision writes the decision, and only logs an error: a full disk must not delay a
// rollback, and the decision is needed only after a crash.
func (w *Watch) writeDecision(d handoff.Decision) {
	if err := handoff.WriteDecision(w.Disk, w.Top, d); err != nil {
		w.Log.Warn("the decision cannot be recorded, going on without", "error", err)
	}
}

// dropReserved removes the space for a decision once there is no marker. With a marker the next watcher
// uses it.
func (w *Watch) dropReserved() {
	if m, err := handoff.ReadMarker(w.Disk, w.Top); m != nil || err != nil {
		return
	}
	if err := handoff.RemoveDecision(w.Disk, w.Top); err != nil {
		w.Log.Warn("the space for a decision cannot be removed and is left", "error", err)
	}
}

// removeMarker removes request, marker and decision in this order. A request left behind
// would end the next watch of the same version; without its decision, a marker left behind
// would be watched again.
func (w *Watch) removeMarker() error {
	if err := handoff.RemoveRequest(w.Disk, w.Top); err != nil {
		return err
	}
	if err := handoff.RemoveMarker(w.Disk, w.Top); err != nil {
		return err
	}
	if err := handoff.RemoveDecision(w.Disk, w.Top); err != nil {
		w.Log.Warn("the decision that was carried out cannot be removed and is left", "error", err)
	}
	return nil
}

// pause waits for d, or returns ctx's error when it ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
