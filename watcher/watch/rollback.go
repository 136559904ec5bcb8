package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	// startTimeout bounds the wait for the previous version to answer: it
	// started within seconds before, and a host under load gets a minute.
	startTimeout = 60 * time.Second

	// startRetry is the time between two orders to start it. A service manager
	// that refuses because of too many starts forgets them within seconds.
	startRetry = 15 * time.Second

	// startPoll is the time between two questions whether it answers.
	startPoll = time.Second

	// rollbackDeadline bounds a whole rollback: verdictAttempts, each with its
	// start timeout and a stop that may take as long. What hangs longer is the
	// disk, and the next watcher goes on.
	rollbackDeadline = 10 * time.Minute
)

// rollBack brings the version before back. Every step may be repeated, and a
// watcher killed between any two goes on with the same list:
//
//  1. decision       why, so that a watcher started after a crash can still say it
//  2. pointer        back to the previous version
//  3. watcher link   likewise, if that version brought a watcher
//  4. active commit  likewise
//  5. restart        until the previous version answers
//  6. outcome        for the agent, which reports it
//  7. home           of the bad version removed, and the record of a kept
//     version if that was it
//  8. marker         removed, between the request and the decision
//
// The pointer moves while the bad version may still run, not after it was
// stopped: from step 2 on, whoever starts the agent (this watcher, the service
// manager, a reboot) starts the good version. Stopping first would leave, after
// a crash in between, a stopped host with a pointer to a broken program. The
// outcome waits for the good version to answer, since only then is it true. The
// marker goes last: as long as it stands the next watcher repeats what is left,
// and the agent begins no other upgrade whose files the removal could meet.
func (w *Watch) rollBack(ctx context.Context, m handoff.Marker, reason handoff.Reason, keep keepHome) (handoff.Outcome, error) {
	result := handoff.RolledBack
	outcome := func() handoff.Outcome {
		return handoff.Outcome{ActionID: m.ActionID, From: m.From, To: m.To, Result: result, Reason: &reason, At: time.Now()}
	}
	w.writeDecision(handoff.Decide(m, handoff.RolledBack, &reason))
	runnable, err := w.has(opPointer, layout.AgentLink, m.From.Home)
	if err != nil {
		return outcome(), err
	}
	if !runnable {
		result = handoff.RollbackFailed
		reason.Text += fmt.Sprintf(" %s could not be put back: %s/%s is missing.", m.From, m.From.Home, layout.AgentLink)
		return outcome(), w.conclude(outcome(), keepBad)
	}
	if err := w.point(opPointer, layout.AgentLink, m.From.Home); err != nil {
		return outcome(), err
	}
	// A disk too full for a file still has room to move a link: what fails here
	// does not keep the good version from starting, the caller tries it again.
	late := errors.Join(w.pointWatcher(m), w.writeActiveCommit(m.From.Hash))

	if err := w.startPrevious(ctx, m); err != nil {
		if ctx.Err() != nil {
			return outcome(), err
		}
		result = handoff.RollbackFailed
		reason.Text += fmt.Sprintf(" %s was put back but did not start: %s.", m.From, cause(err))
		// Neither runs: whoever repairs the host wants both.
		keep = keepBad
	}
	if late != nil {
		return outcome(), late
	}
	return outcome(), w.conclude(outcome(), keep)
}

// keepHome says whether the home of the version that lost stays on the host.
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

// startPrevious returns when the version before answers on its control socket.
// It does not ask for good health: the host is as it was before the upgrade.
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
		// A process that is there and silent may be the good version starting:
		// only the first order is given whatever is there.
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

// conclude ends a rollback on the disk.
func (w *Watch) conclude(o handoff.Outcome, keep keepHome) error {
	if err := handoff.WriteOutcome(w.Disk, w.Top, o); err != nil {
		return err
	}
	if keep == removeBad {
		// A home that cannot be removed costs space, a marker that stays costs
		// the next upgrade: it is left for the clean-up of the next commit.
		if err := w.removeHome(o.To.Home); err != nil {
			w.Log.Warn("home is left, it cannot be removed", "home", o.To.Home, "error", err)
		}
	}
	if err := w.dropPrevious(); err != nil {
		return err
	}
	return w.removeMarker()
}

// writeDecision: one that cannot be written, on a full disk say, must not hold
// up a rollback. It is missed only if somebody is killed as well.
func (w *Watch) writeDecision(d handoff.Decision) {
	if err := handoff.WriteDecision(w.Disk, w.Top, d); err != nil {
		w.Log.Warn("the decision cannot be recorded, going on without", "error", err)
	}
}

// removeMarker: the decision goes after the marker. The other way round a crash
// in between would have the next watcher judge again what is already decided. A
// request to go back goes before it: left behind, it would end the next watch of
// the same version.
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

// pause waits, or returns why ctx ended.
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
