// Package layout names the files and folders of a host. The agent, the watcher,
// the installer and the tests take the names from here. An old version and a new
// one read each other's files, so a name that was released never changes.
//
// Names are relative to the top folder and slash-separated; [Path] gives the
// path of one. The picture of a host is in the README.
package layout

import (
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// What lies in the top folder. Each link has the name of the program it leads
// to, and a package has its programs under the same names.
const (
	AgentLink   = "muster-agent" + exe   // the pointer: decides which version runs
	WatcherLink = "muster-watcher" + exe // the watcher of the next upgrade

	ConfigFile          = "agent.yml"
	IdentityFile        = "identity"
	WatcherIdentityFile = "watcher-identity"

	DataDir = "data"
)

// Files in the data folder.
const (
	ActiveCommitFile   = "data/active.commit"
	MarkerFile         = "data/upgrade-marker"
	DecisionFile       = "data/upgrade-decision"
	OutcomeFile        = "data/upgrade-outcome"
	RequestFile        = "data/rollback-request"
	PreviousFile       = "data/previous-version"
	JournalFile        = "data/upgrade-journal"
	FailureFile        = "data/upgrade-failure"
	FailedVersionsFile = "data/failed-versions"
	ServiceFile        = "data/service" // the name the agent's service is registered under
	AgentLockFile      = "data/agent.lock"
	WatcherLockFile    = "data/watcher.lock"
	AgentLogFile       = "data/agent.log"
	WatcherLogFile     = "data/watcher.log"
)

// Folders in the data folder, beside the homes.
const (
	DownloadsDir = "data/downloads"
	DropDir      = "data/drop"  // packages that somebody has laid down for the agent to find
	TrustDir     = "data/trust" // the publishers' root and what was verified under it
	// DevelopmentDir holds the state of a build that was not installed from a
	// package, and so has no home.
	DevelopmentDir = "data/development"
)

// What lies in a home beside the files of its package.
const (
	RunDir      = "run"      // the state of the version, copied to the next one
	DigestsFile = ".digests" // the digests of its files as they were installed
)

// Suffixes of files, and the prefix of folders, that are not what their name
// without it says.
const (
	// NewSuffix ends the name under which a file or link is made before it is
	// renamed. One that is found was left behind by a crash, and may be removed.
	NewSuffix = ".new"
	// PreviousSuffix ends the name of a record's previous copy.
	PreviousSuffix = ".prev"
	// StagingPrefix begins the names of folders in the data folder that are
	// being filled or emptied. One that is found while no upgrade runs was left
	// behind by a crash, and may be removed.
	StagingPrefix = ".unpack-"
)

// HomePrefix begins the base names of homes and of archives.
const HomePrefix = "muster-agent-"

// Path is the path of a name under a host's top folder.
func Path(top, name string) string { return filepath.Join(top, filepath.FromSlash(name)) }

// Home is the home of the build with the given id: its version and hash, or only
// its hash.
func Home(id string) string { return DataDir + "/" + HomePrefix + id }

// IsHome says whether a name can be that of a home: data/<folder>, which is no
// other folder of a host. A home is removed as a whole, so no other name may
// pass for one.
func IsHome(name string) bool {
	dir, base := path.Split(name)
	return dir == DataDir+"/" && base != "" && !strings.HasPrefix(base, ".") && !strings.ContainsAny(base, `\:`) &&
		!slices.Contains([]string{DownloadsDir, DropDir, TrustDir, DevelopmentDir}, name)
}

// Staging is the folder in which a home is filled or emptied.
func Staging(home string) string {
	dir, base := path.Split(home)
	return dir + StagingPrefix + base
}

// Locate finds the installation a program belongs to, by its path
// <top>/data/<folder>/<program>; home is "" for a program that lies elsewhere.
func Locate(program string) (top, home string) {
	folder := filepath.Dir(program)
	data := filepath.Dir(folder)
	if filepath.Base(data) != DataDir {
		return "", ""
	}
	return filepath.Dir(data), path.Join(DataDir, filepath.Base(folder))
}

// Copies are the names under which a record may lie on the disk, the record
// itself last: removed in this order, no older state comes back after a crash.
func Copies(record string) []string {
	return []string{
		record + PreviousSuffix + NewSuffix, record + PreviousSuffix, record + NewSuffix, record,
	}
}
