package upgrade

import (
	"context"
	"errors"
	"time"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// Stage fetches, verifies and unpacks a version, and changes nothing that runs. It returns nil
// if the version is on the host and intact. A later upgrade to it fetches nothing. Otherwise the
// error is a [*request.Failure] and the host is as before, or [steps.ErrStopping] if the stage is to begin again
// later. An upgrade that begins ends it.
func (e *Executor) Stage(ctx context.Context, r request.Request) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if r.Interrupted > request.MaxInterrupted {
		return Refuse(request.ErrInterrupted)
	}
	if !e.beginStage(cancel) {
		return Refuse(errUnderWay)
	}
	defer e.beginStage(nil)
	e.changing.Lock()
	defer e.changing.Unlock()
	r.Stage = true
	w, err := e.do(ctx, r)
	if err != nil {
		return err
	}
	if err := e.concludeStage(w.j); err != nil {
		// The version is staged. The next upgrade or start removes what is left.
		e.log().Warn("what is left of a stage could not be removed", "version", r.Version, "error", err)
	}
	return nil
}

// beginStage stores what ends the stage; nil is its end. It returns false while an upgrade runs.
func (e *Executor) beginStage(cancel context.CancelCauseFunc) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if cancel != nil && e.running != "" {
		return false
	}
	e.endStage = cancel
	return true
}

// RecoverStage undoes or finishes the stage that an earlier process left unfinished, and returns
// its request if it is to begin again. It must be called once, after [Executor.Recover].
func (e *Executor) RecoverStage() (*request.Request, error) {
	j, err := steps.Read[journal](e.stageFile())
	if err != nil {
		e.log().Warn("an unreadable journal of a stage is removed", "error", err)
		return nil, e.stageFile().Remove()
	}
	if j == nil {
		return nil, e.stageFile().RemoveCopies()
	}
	if e.isStaged(j) {
		return nil, e.concludeStage(j)
	}
	// An error of undoing stays with the journal. The next upgrade or stage tries again.
	gaveUp := j.Request.Interrupted >= request.MaxInterrupted && j.Request.Local // the queue has the server's orders, and Stage gives up
	if err := e.newWork(j).fail(leftoverFailure(j)); !errors.Is(err, steps.ErrStopping) || gaveUp {
		e.log().Warn("an unfinished stage was undone", "version", j.Request.Version, "error", err, "interrupted", j.Request.Interrupted)
		return nil, nil
	}
	r := j.Request
	r.Interrupted++
	return &r, nil
}

// isStaged reports whether j is of a stage that has only its journal to remove.
func (e *Executor) isStaged(j *journal) bool {
	return j.Request.Stage && !j.Undoing && j.HasBegun(stepRecord) && handoff.Holds(e.versions(), j.To.Home)
}

// concludeStage removes the archive, which is not needed any more, and the journal.
func (e *Executor) concludeStage(j *journal) error {
	j.KeepDownload = false
	return errors.Join(change{e, j}.undoDownload(context.Background()), e.stageFile().Remove())
}

// record records the version as staged. It first removes the versions that have to make room.
func (w *work) record(context.Context) error {
	v := handoff.Version{Install: w.j.To, Archive: w.source, StagedAt: time.Now().UTC()}
	var err error
	if v.Bytes, err = disk.Size(w.Disk, stepRecord, w.path(v.Home)); err != nil {
		return err
	}
	return w.edit(func(on *handoff.Versions) error {
		gone, err := w.j.Request.StageIn(on, v, w.Keep)
		if err != nil {
			return err
		}
		return w.removeHomes(gone)
	})
}

// undoRecord removes the version from the record. A version that was on the host before stays.
func (c change) undoRecord(context.Context) error {
	if c.j.Reused {
		return nil
	}
	return c.edit(func(v *handoff.Versions) error {
		v.Remove(c.j.To.Home)
		return nil
	})
}
