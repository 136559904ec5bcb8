// Package layout defines the names of the files and folders of a host. Old and new
// versions read each other's files, so a released name never changes.
//
// Names are relative to the top folder and slash-separated; [Path] returns the path of
// one. [Roots] also has the folder of the links, which is another one in the folders of a
// [System]. The README shows the folders of a host.
package layout

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Files and folders in the top folder. Each link has the name of the program it leads
// to, which is also the program's name in a package.
const (
	AgentLink   = "muster-agent" + exe   // the pointer: determines which version runs
	WatcherLink = "muster-watcher" + exe // the watcher of the next upgrade

	ConfigFile          = "agent.yml"
	IdentityFile        = "identity"
	WatcherIdentityFile = "watcher-identity"
	EnrollmentFile      = "enrollment" // the enrolment that the host has begun and not ended

	DataDir = "data"
)

// Files in the data folder.
const (
	// The hash of the active version, for people and for other programs: Muster itself follows the pointer,
	// and whatever this file says, so a reader would make nothing safer.
	ActiveCommitFile = "data/active.commit"
	MarkerFile       = "data/upgrade-marker"
	DecisionFile     = "data/upgrade-decision"
	OutcomeFile      = "data/upgrade-outcome"
	RequestFile      = "data/rollback-request"
	VersionsFile     = "data/versions"
	JournalFile      = "data/upgrade-journal"
	StageJournalFile = "data/stage-journal" // of its own: an upgrade goes on to the pointer
	FailureFile      = "data/upgrade-failure"
	ServiceFile      = "data/service"        // holds the name of the agent's service
	GoodConfigFile   = "data/agent.yml.good" // the last valid ConfigFile that an agent has started with
	WriteCheckFile   = "data/.write-check"   // is there for an instant
	AgentLockFile    = "data/agent.lock"
	WatcherLockFile  = "data/watcher.lock"
	StopsFile        = "data/agent.stops" // counts the agent's orderly stops during watches
	AgentLogFile     = "data/agent.log"
	WatcherLogFile   = "data/watcher.log"
)

// Folders in the data folder, beside the homes.
const (
	DownloadsDir = "data/downloads"
	DropDir      = "data/drop"  // packages that an operator placed for the agent
	TrustDir     = "data/trust" // the pinned root and the files verified under it
	// DevelopmentDir holds the state of an agent that was not installed from a
	// package and has no home.
	DevelopmentDir = "data/development"
)

// ManifestFile describes the package of a home. It is at the top of the package and of the home.
const ManifestFile = "manifest.yaml"

// Files and folders in a home beside those of its package.
const (
	RunDir      = "run"       // the state of the version, copied to the next one
	QueueFile   = "run/queue" // the actions and results of the version
	DigestsFile = ".digests"  // the digests of the installed files
)

// Suffixes of temporary and previous files, and the prefix of temporary folders.
const (
	// NewSuffix ends the name of a file or link before it is renamed. A file with
	// this suffix was left by a crash, and may be removed.
	NewSuffix = ".new"
	// PreviousSuffix ends the name of a record's previous copy.
	PreviousSuffix = ".prev"
	// StagingPrefix begins the names of folders in the data folder that are being
	// filled or removed. Such a folder was left by a crash if no upgrade runs, and
	// may then be removed.
	StagingPrefix = ".unpack-"
)

// HomePrefix begins the base names of homes and of archives.
const HomePrefix = "muster-agent-"

// Path returns the path of a name under a host's top folder.
func Path(top, name string) string { return filepath.Join(top, filepath.FromSlash(name)) }

// LockPID returns the path of the file that has the process id of a lock's holder.
func LockPID(lock string) string { return lock + lockPID }

// Home returns the home of a build. id is its version and hash, or only its hash.
func Home(id string) string { return DataDir + "/" + HomePrefix + id }

// IsHome reports whether name can be the name of a home: data/<folder> that is not one
// of the other folders there. Homes are removed as a whole, so no other name may pass.
func IsHome(name string) bool {
	dir, base := path.Split(name)
	return dir == DataDir+"/" && base != "" && !strings.HasPrefix(base, ".") && !strings.ContainsAny(base, `\:`) &&
		!slices.Contains([]string{DownloadsDir, DropDir, TrustDir, DevelopmentDir}, name)
}

// NamesHome reports whether the name says that it is that of a home. Packages may map theirs to
// other names, which do not: such a home has a [DigestsFile].
func NamesHome(name string) bool {
	return IsHome(name) && strings.HasPrefix(path.Base(name), HomePrefix)
}

// Staging returns the name that a home has while it is filled or removed.
func Staging(home string) string {
	dir, base := path.Split(home)
	return dir + StagingPrefix + base
}

// Locate returns the installation that a program at <top>/data/<folder>/<program>
// belongs to. top and home are "" for a program elsewhere.
func Locate(program string) (top, home string) {
	folder := filepath.Dir(program)
	data := filepath.Dir(folder)
	if filepath.Base(data) != DataDir {
		return "", ""
	}
	return filepath.Dir(data), path.Join(DataDir, filepath.Base(folder))
}

// Copies returns the names of all files of a record, the record itself last. Removing
// them in this order never restores an older state after a crash.
func Copies(record string) []string {
	return []string{
		record + PreviousSuffix + NewSuffix, record + PreviousSuffix, record + NewSuffix, record,
	}
}
