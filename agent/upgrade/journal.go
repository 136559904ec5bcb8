package upgrade

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

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
// step acts until the upgrade has failed or the new version runs.
type journal struct {
	Request Request         `json:"request"`
	From    handoff.Install `json:"from"`
	// To is known once the package has been read.
	To      handoff.Install `json:"to,omitzero"`
	Archive string          `json:"archive"` // file name in data/downloads
	Begun   []string        `json:"begun"`
	// Reused: the home of To was on the host before, and is not ours to remove.
	Reused bool `json:"reused,omitempty"`
	// OldPointer, OldWatcher and OldCommit are what was there before; empty:
	// nothing was.
	OldPointer string `json:"old_pointer,omitempty"`
	OldWatcher string `json:"old_watcher,omitempty"`
	OldCommit  string `json:"old_commit,omitempty"`
	WatcherPID int    `json:"watcher_pid,omitempty"`

	// Undoing is set before the first undo acts, with why.
	Undoing      bool                  `json:"undoing,omitempty"`
	KeepDownload bool                  `json:"keep_download,omitempty"`
	FailedState  agentapi.UpgradeState `json:"failed_state,omitempty"`
	FailedStep   string                `json:"failed_step,omitempty"`
	FailedError  string                `json:"failed_error,omitempty"`
	FailedForNow bool                  `json:"failed_for_now,omitempty"` // Failure.Temporary
}

func (j *journal) begun(step string) bool { return slices.Contains(j.Begun, step) }

func (j *journal) write(d disk.Disk, top string) error {
	return disk.WriteRecord(d, opJournal, layout.Path(top, layout.JournalFile), journalKind, recordVersion, j)
}

func removeJournal(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, opJournal, layout.Path(top, layout.JournalFile))
}

// readJournal returns nil when there is none. A damaged one counts as none.
func readJournal(d disk.Disk, top string) (*journal, error) {
	return disk.FindRecord[journal](d, opJournal, layout.Path(top, layout.JournalFile), journalKind, recordVersion)
}

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
				fullVersion(f.Identity), f.At.UTC().Format(time.DateOnly), f.Reason)
		}
	}
	return nil
}
