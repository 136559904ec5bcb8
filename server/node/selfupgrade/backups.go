package selfupgrade

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
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

// CopyPrefix is what is added to the prefix of Elasticsearch's indices for the copies of upgrades.
const CopyPrefix = "backup-"

// CopyName returns the prefix of the indices to which an upgrade copies those with a prefix.
func CopyName(prefix, run string) string { return prefix + CopyPrefix + ShortRun(run) + "-" }

// ParseCopyName returns the Run of an upgrade, as much of it as CopyName has.
func ParseCopyName(prefix, name string) (run string, ok bool) {
	run = strings.TrimSuffix(strings.TrimPrefix(name, prefix+CopyPrefix), "-")
	return run, name == CopyName(prefix, run) && len(run) == runLength && strings.Trim(run, runLetters) == ""
}

// beforeUpgrade is what a copy says about the upgrade that it was made for; see CopiedFrom.
const beforeUpgrade = ", before the upgrade "

// CopiedFrom says what a copy is of, and which upgrade it was made for.
func CopiedFrom(prefix, from, to string) string {
	return "the indices " + prefix + "*" + beforeUpgrade + "from " + from + " to " + to
}

// ParseCopiedFrom returns what CopiedFrom was called with.
func ParseCopiedFrom(text string) (from, to string, ok bool) {
	_, rest, ok := strings.Cut(text, beforeUpgrade+"from ")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, " to ")
}

// Backup is a backup that an upgrade has made: a file in the data folder, or a copy of
// Elasticsearch's indices.
type Backup struct {
	File string `json:"file"`
	// Indices is the copy, as in muster-backup-abcdefgh-*.
	Indices string `json:"indices,omitempty"`
	Run     string `json:"run"` // its first letters, as in the file's name
	// From is the version that made it, and that it can be restored with.
	From      string    `json:"from"`
	To        string    `json:"to"`
	CreatedAt time.Time `json:"created_at"`
	Bytes     int64     `json:"bytes"`
	// Problem is why it cannot be used, or needs a person. Of a file that cannot be read From is
	// empty, and CreatedAt is the file's.
	Problem string `json:"problem,omitempty"`
	// Unfinished is a copy whose upgrade ended before the copy was whole.
	Unfinished bool `json:"-"`
}

// Place returns what to look for: the file, or the indices.
func (b *Backup) Place() string { return cmp.Or(b.File, b.Indices) }

// SortBackups sorts the newest first.
func SortBackups(list []Backup) {
	slices.SortFunc(list, func(a, b Backup) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.Place(), b.Place()))
	})
}

// Surplus returns the backups to remove: all but the newest KeptBackups and those of the runs
// in use. An unfinished copy is no backup, and goes. One with a problem is neither removed nor
// counted, since a person has to look at it.
func Surplus(list []Backup, inUse ...string) []Backup {
	list = slices.DeleteFunc(slices.Clone(list), func(b Backup) bool { return b.Problem != "" && !b.Unfinished })
	SortBackups(list)
	used := func(b Backup) bool {
		return slices.ContainsFunc(inUse, func(run string) bool { return ShortRun(run) == b.Run })
	}
	kept := 0
	for _, b := range list {
		if used(b) && !b.Unfinished {
			kept++
		}
	}
	return slices.DeleteFunc(list, func(b Backup) bool {
		switch {
		case used(b):
			return true
		case b.Unfinished:
			return false
		}
		kept++
		return kept <= KeptBackups
	})
}
