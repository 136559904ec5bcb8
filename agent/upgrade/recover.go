package upgrade

import (
	"errors"
	"path/filepath"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// Leftover describes an upgrade that an earlier process left unfinished.
type Leftover struct {
	Request request.Request
	// Switched means that the pointer has moved and the watcher decides.
	// WatcherPID is the watcher's process id, or 0. It is a child of this process
	// if this process was re-executed.
	Switched   bool
	WatcherPID int
	// Resume means that all but the download was undone and the upgrade begins
	// again.
	Resume bool
	// Failure is set if the upgrade had failed and was undone.
	Failure *request.Failure
}

// Recover undoes or finishes the upgrade that an earlier process left unfinished,
// according to its journal. It returns nil if there is none. It must be called once,
// before any upgrade.
func (e *Executor) Recover() (*Leftover, error) {
	j, err := e.readJournal()
	if err != nil {
		// Without a readable journal nothing can be undone. At worst an unused
		// folder stays.
		e.log().Warn("an unreadable upgrade journal is removed", "error", err)
		return nil, e.journalFile().Remove()
	}
	if j == nil {
		return nil, nil
	}
	left := &Leftover{Request: j.Request, WatcherPID: j.WatcherPID}
	switched, err := e.switched(j)
	if err != nil {
		return nil, err
	}
	if switched {
		left.Switched = true
		// The previous process may have been killed after it moved the pointer and before
		// that was durable. Without the journal a power cut would then bring the old
		// pointer back, and the watcher would reject this version as never started.
		if err := e.Disk.SyncDir(stepPointer, e.roots().LinkDir()); err != nil {
			return nil, err
		}
		if err := e.repairCommit(j); err != nil {
			return nil, err
		}
		return left, e.journalFile().Remove()
	}
	f := leftoverFailure(j)
	if err := e.newWork(j).fail(f); !errors.Is(err, steps.ErrStopping) {
		left.Failure = f
		return left, nil
	}
	left.Resume = true
	return left, nil
}

// switched reports whether the pointer was moved, so that the watcher decides.
func (e *Executor) switched(j *journal) (bool, error) {
	if j.To.Home == "" {
		return false, nil
	}
	target, err := readlink(e.Disk, stepPointer, e.roots().Link(layout.AgentLink))
	if err != nil {
		return false, err
	}
	if e.roots().HomeOf(target) == j.To.Home && (!j.Undoing || e.Running.Home == j.To.Home) {
		// The new version may run although undoing had begun, since the pointer is
		// restored before the marker is removed. Then the marker still exists, and
		// the new version must not remove itself.
		return true, nil
	}
	if j.Undoing {
		return false, nil
	}
	// The step after the pointer had begun, so the pointer was moved durably. It
	// was not undone here, so the watcher moved it back.
	if j.HasBegun(stepCommit) {
		return true, nil
	}
	return j.HasBegun(stepPointer) && e.decided(j), nil
}

// decided reports whether a watcher has decided on the upgrade in j, so that it has
// moved the pointer back or is about to.
func (e *Executor) decided(j *journal) bool {
	if m := e.marker(); m != nil && m.To == j.To {
		d, err := handoff.ReadDecision(e.Disk, e.Top, *m)
		if err != nil {
			e.log().Warn("an unreadable decision is ignored", "error", err)
		}
		return d != nil
	}
	o, err := handoff.ReadOutcome(e.Disk, e.Top)
	if err != nil {
		e.log().Warn("an unreadable upgrade outcome is ignored", "error", err)
	}
	return o != nil && o.ActionID == j.Request.ActionID && o.To == j.To
}

// repairCommit writes the active commit if the previous version's process died after
// it moved the pointer and before it wrote the commit.
func (e *Executor) repairCommit(j *journal) error {
	if e.Running.Home != j.To.Home {
		return nil
	}
	file, want := e.path(layout.ActiveCommitFile), j.To.Hash+"\n"
	if now, err := e.Disk.ReadFile(stepCommit, file); err == nil && string(now) == want {
		// The previous process may have been killed before its name was durable.
		return e.Disk.SyncDir(stepCommit, filepath.Dir(file))
	}
	return disk.WriteFile(e.Disk, stepCommit, file, []byte(want), 0o644)
}

// leftoverFailure returns the failure in j, or steps.ErrStopping for an upgrade that was only
// interrupted and begins again.
func leftoverFailure(j *journal) *request.Failure {
	if !j.Undoing || j.FailedError == steps.ErrStopping.Error() {
		return &request.Failure{Err: steps.ErrStopping}
	}
	return &request.Failure{State: j.FailedState, Step: j.FailedStep, Err: errors.New(j.FailedError), Transient: j.FailedTransient}
}
