package upgrade

import (
	"errors"
	"path"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// Leftover is what an earlier process left behind.
type Leftover struct {
	Request Request
	// Switched: the pointer was moved, and the watcher decides. WatcherPID is
	// the watcher that was started, a child of this process if it was replaced
	// in place; 0 if unknown.
	Switched   bool
	WatcherPID int
	// Resume: what had begun was undone, all but the download; the upgrade begins
	// again.
	Resume bool
	// Failure: the upgrade had failed, and was undone.
	Failure *Failure
}

// Recover undoes, or finishes, the upgrade that an earlier process left in the
// middle, by its journal; nil when there is none. It is called once, before any
// upgrade.
func (e *Executor) Recover() (*Leftover, error) {
	j, err := e.readJournal()
	if err != nil {
		// Unreadable means that no upgrade is pending; what it would have
		// undone is at worst an unused folder.
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
		if err := e.repairCommit(j); err != nil {
			return nil, err
		}
		return left, e.journalFile().Remove()
	}
	f := leftoverFailure(j)
	if err := e.newWork(j).fail(f); !errors.Is(err, ErrStopping) {
		left.Failure = f
		return left, nil
	}
	left.Resume = true
	return left, nil
}

// switched says whether the watcher owns what is on the host.
func (e *Executor) switched(j *journal) (bool, error) {
	if j.To.Home == "" {
		return false, nil
	}
	target, err := readlink(e.Disk, stepPointer, e.path(layout.AgentLink))
	if err != nil {
		return false, err
	}
	if path.Dir(filepath.ToSlash(target)) == j.To.Home && (!j.Undoing || e.Running.Home == j.To.Home) {
		// Also where undoing had begun: the pointer goes back before the marker
		// goes, so the new version runs with its marker in place, and must not
		// remove itself.
		return true, nil
	}
	if j.Undoing {
		return false, nil
	}
	// The pointer leads back, and not by our undoing: the watcher moved it. The
	// step after the pointer had begun, so the pointer had been moved durably.
	if j.HasBegun(stepCommit) {
		return true, nil
	}
	return j.HasBegun(stepPointer) && e.decided(j), nil
}

// decided says whether a watcher has judged the switch in j, and so moved the
// pointer back, or is about to.
func (e *Executor) decided(j *journal) bool {
	if m := e.marker(); m != nil && m.To == j.To {
		d, err := handoff.ReadDecision(e.Disk, e.Top, *m)
		if err != nil {
			e.log().Warn("an unreadable decision is passed over", "error", err)
		}
		return d != nil
	}
	o, err := handoff.ReadOutcome(e.Disk, e.Top)
	if err != nil {
		e.log().Warn("an unreadable upgrade outcome is passed over", "error", err)
	}
	return o != nil && o.ActionID == j.Request.ActionID && o.To == j.To
}

// repairCommit writes the active commit of a new version that came up although
// the one before died between the pointer and the commit.
func (e *Executor) repairCommit(j *journal) error {
	if e.Running.Home != j.To.Home {
		return nil
	}
	file, want := e.path(layout.ActiveCommitFile), j.To.Hash+"\n"
	if now, err := e.Disk.ReadFile(stepCommit, file); err == nil && string(now) == want {
		return nil
	}
	return disk.WriteFile(e.Disk, stepCommit, file, []byte(want), 0o644)
}

// leftoverFailure says why the upgrade in j did not happen. One that was only
// interrupted is begun again.
func leftoverFailure(j *journal) *Failure {
	if !j.Undoing || j.FailedError == ErrStopping.Error() {
		return &Failure{Err: ErrStopping}
	}
	return &Failure{State: j.FailedState, Step: j.FailedStep, Err: errors.New(j.FailedError), Transient: j.FailedTransient}
}
