package selfupgrade

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/manifest"
)

// KeptBackups is how many of the backups that upgrades made stay after an upgrade that has
// succeeded. A version that turns out to be bad is left by its own backup, or by that of the
// upgrade before if this was noticed only after the next one; one more is for an upgrade that
// was undone in between. Each has the size of the store, so that they have a bound.
const KeptBackups = 3

const (
	backupPrefix = "before-"
	backupSuffix = ".tar"
	// runLength is as much of an upgrade's Run as names its backup.
	runLength = 8
	// runLetters are those of fleet.NewID.
	runLetters = "abcdefghijklmnopqrstuvwxyz234567"
)

// ShortRun is as much of the Run of an upgrade as names its backup.
func ShortRun(run string) string { return run[:min(len(run), runLength)] }

// BackupName returns the name of the file to which an upgrade to a version backs up the store.
func BackupName(to, run string) string {
	return backupPrefix + to + "-" + ShortRun(run) + backupSuffix
}

// ParseBackupName returns what BackupName was called with; ok is false for any other name.
func ParseBackupName(name string) (to, run string, ok bool) {
	rest, hasPrefix := strings.CutPrefix(name, backupPrefix)
	rest, hasSuffix := strings.CutSuffix(rest, backupSuffix)
	i := strings.LastIndexByte(rest, '-')
	if !hasPrefix || !hasSuffix || i < 0 {
		return "", "", false
	}
	to, run = rest[:i], rest[i+1:]
	if _, err := manifest.ParseVersion(to); err != nil || len(run) != runLength || strings.Trim(run, runLetters) != "" {
		return "", "", false
	}
	return to, run, true
}

// Backup is a backup that an upgrade has made in the data folder.
type Backup struct {
	File string `json:"file"`
	Run  string `json:"run"` // its first letters, as in the file's name
	// From is the version that made it, and that it can be restored with.
	From      string    `json:"from"`
	To        string    `json:"to"`
	CreatedAt time.Time `json:"created_at"`
	Bytes     int64     `json:"bytes"`
	// Problem is why it cannot be read. Then From is empty, and CreatedAt is the file's.
	Problem string `json:"problem,omitempty"`
}

// SortBackups sorts the newest first.
func SortBackups(list []Backup) {
	slices.SortFunc(list, func(a, b Backup) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.File, b.File))
	})
}

// Surplus returns the backups to remove: all but the newest KeptBackups and those of the runs
// in use. One that cannot be read is neither removed nor counted, since a person has to look
// at it.
func Surplus(list []Backup, inUse ...string) []Backup {
	list = slices.DeleteFunc(slices.Clone(list), func(b Backup) bool { return b.Problem != "" })
	SortBackups(list)
	used := func(b Backup) bool {
		return slices.ContainsFunc(inUse, func(run string) bool { return ShortRun(run) == b.Run })
	}
	kept := 0
	for _, b := range list {
		if used(b) {
			kept++
		}
	}
	return slices.DeleteFunc(list, func(b Backup) bool {
		if used(b) {
			return true
		}
		kept++
		return kept <= KeptBackups
	})
}
