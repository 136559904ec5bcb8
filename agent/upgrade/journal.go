package upgrade

import (
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	recordVersion = 1
	journalKind   = "journal"
	stageKind     = "stage-journal"
	failureKind   = "failure"

	opJournal = "upgrade journal"
	opStage   = "stage journal"
	opFailure = "upgrade failure"
)

// journal holds what undoing needs. It is on disk from before the first step until the
// upgrade was undone or the new version runs. The new version reads it, which may be an
// older release: fields are added, never renamed.
type journal struct {
	steps.Progress
	Request request.Request `json:"request"`
	From    handoff.Install `json:"from"`
	// To is known once the package has been read.
	To      handoff.Install `json:"to,omitzero"`
	Archive string          `json:"archive"` // file name in the downloads folder
	// Reused means that the home of To existed before, so undoing must not remove
	// it.
	Reused bool `json:"reused,omitempty"`
	// OldPointer, OldWatcher and OldCommit are the previous values, empty if there
	// were none.
	OldPointer string `json:"old_pointer,omitempty"`
	OldWatcher string `json:"old_watcher,omitempty"`
	OldCommit  string `json:"old_commit,omitempty"`
	WatcherPID int    `json:"watcher_pid,omitempty"`

	// These describe a failure, beside Progress.
	KeepDownload    bool                  `json:"keep_download,omitempty"`
	FailedState     agentapi.UpgradeState `json:"failed_state,omitempty"`
	FailedTransient bool                  `json:"failed_for_now,omitempty"`
}

func (e *Executor) journalFile() steps.File {
	return steps.File{Disk: e.Disk, Op: opJournal, Path: e.path(layout.JournalFile), Kind: journalKind, Version: recordVersion}
}

func (e *Executor) stageFile() steps.File {
	return steps.File{Disk: e.Disk, Op: opStage, Path: e.path(layout.StageJournalFile), Kind: stageKind, Version: recordVersion}
}

// readJournal returns the journal of an earlier process, or nil if there is none.
func (e *Executor) readJournal() (*journal, error) { return steps.Read[journal](e.journalFile()) }

func saveFailure(d disk.Disk, top string, f agentapi.UpgradeDetails) error {
	return disk.WriteRecord(d, opFailure, layout.Path(top, layout.FailureFile), failureKind, recordVersion, f)
}

func removeFailure(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, opFailure, layout.Path(top, layout.FailureFile))
}

// LastFailure returns the failed upgrade to report, or nil.
func LastFailure(d disk.Disk, top string) (*agentapi.UpgradeDetails, error) {
	return disk.FindRecord[agentapi.UpgradeDetails](d, opFailure, layout.Path(top, layout.FailureFile), failureKind, recordVersion)
}
