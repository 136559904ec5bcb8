package upgrade

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	recordVersion = 1
	journalKind   = "journal"
	failureKind   = "failure"
	failedKind    = "failed-versions"

	opJournal = "upgrade journal"
	opFailure = "upgrade failure"
	opFailed  = "failed versions"

	// maxFailedVersions: nobody tries more broken versions on one host and
	// still wants to know about the first.
	maxFailedVersions = 50
)

// journal is what undoing needs to know. It is on disk from before the first
// step acts until the upgrade has failed or the new version runs. The version
// that is switched to reads it, and that may be an older one: fields are added,
// never renamed.
type journal struct {
	steps.Progress
	Request Request         `json:"request"`
	From    handoff.Install `json:"from"`
	// To is known once the package has been read.
	To      handoff.Install `json:"to,omitzero"`
	Archive string          `json:"archive"` // file name in the downloads folder
	// Reused: the home of To was on the host before, and is not ours to remove.
	Reused bool `json:"reused,omitempty"`
	// OldPointer, OldWatcher and OldCommit are what was there before; empty:
	// nothing was.
	OldPointer string `json:"old_pointer,omitempty"`
	OldWatcher string `json:"old_watcher,omitempty"`
	OldCommit  string `json:"old_commit,omitempty"`
	WatcherPID int    `json:"watcher_pid,omitempty"`

	// What is known of the failure beside what Progress says.
	KeepDownload    bool                  `json:"keep_download,omitempty"`
	FailedState     agentapi.UpgradeState `json:"failed_state,omitempty"`
	FailedTransient bool                  `json:"failed_for_now,omitempty"`
}

func (e *Executor) journalFile() steps.File {
	return steps.File{Disk: e.Disk, Op: opJournal, Path: e.path(layout.JournalFile), Kind: journalKind, Version: recordVersion}
}

// readJournal returns nil when there is none. A damaged one counts as none.
func (e *Executor) readJournal() (*journal, error) { return steps.Read[journal](e.journalFile()) }

func saveFailure(d disk.Disk, top string, f agentapi.UpgradeDetails) error {
	return disk.WriteRecord(d, opFailure, layout.Path(top, layout.FailureFile), failureKind, recordVersion, f)
}

func removeFailure(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, opFailure, layout.Path(top, layout.FailureFile))
}

// LastFailure is the failed upgrade to report, nil when there is none.
func LastFailure(d disk.Disk, top string) (*agentapi.UpgradeDetails, error) {
	return disk.FindRecord[agentapi.UpgradeDetails](d, opFailure, layout.Path(top, layout.FailureFile), failureKind, recordVersion)
}

// FailedVersion is a version that was rolled back on this host.
type FailedVersion struct {
	manifest.Identity
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// RememberFailed notes that a version was rolled back here. Noting it again
// changes nothing.
func RememberFailed(d disk.Disk, top string, f FailedVersion) error {
	list, err := failedVersions(d, top)
	if err != nil && !errors.Is(err, disk.ErrDamaged) {
		return err
	}
	if slices.ContainsFunc(list, func(k FailedVersion) bool { return k.Identity == f.Identity && k.At.Equal(f.At) }) {
		return nil
	}
	list = append(slices.DeleteFunc(list, func(k FailedVersion) bool { return k.Identity == f.Identity }), f)
	if extra := len(list) - maxFailedVersions; extra > 0 {
		list = list[extra:]
	}
	return disk.WriteRecord(d, opFailed, layout.Path(top, layout.FailedVersionsFile), failedKind, recordVersion, list)
}

func failedVersions(d disk.Disk, top string) ([]FailedVersion, error) {
	var list []FailedVersion
	err := disk.ReadRecord(d, opFailed, layout.Path(top, layout.FailedVersionsFile), failedKind, recordVersion, &list)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, err
}

// refuseFailed refuses a version that was rolled back here before. A damaged
// list refuses nothing.
func refuseFailed(d disk.Disk, top string, match func(manifest.Identity) bool) error {
	list, err := failedVersions(d, top)
	if err != nil && !errors.Is(err, disk.ErrDamaged) {
		return err
	}
	for _, f := range list {
		if match(f.Identity) {
			return fmt.Errorf("version %s failed here before, on %s: %s (muster-agent upgrade --force installs it all the same)",
				f.FullVersion(), f.At.UTC().Format(time.DateOnly), f.Reason)
		}
	}
	return nil
}
