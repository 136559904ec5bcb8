// Package tuf answers the question of package trust with The Update Framework:
// not only "did a publisher make these bytes?" but also "is this still what the
// publishers say today?". Four signed files ("roles") do it, each vouching for
// the next:
//
//	root       which keys sign which role, how many of them    offline, publishers
//	targets    which archives there are: size, hash; the floor offline, publishers
//	snapshot   which version of targets is the newest          online, the server
//	timestamp  which snapshot is the newest, as of now         online, the server
//
// `muster package` makes and signs the offline files ([NewRoot], [NextRoot],
// [EditTargets], [Sign]), the server takes them and signs the online ones
// ([Accept], [Online]), and the agent believes them ([Client]). A host pins one
// root at its enrolment ([Pin]); every later root has to be signed by the one
// before it. Whoever steals the server has the online keys: enough to withhold
// news until targets expire, not to ship or to bring back a single byte.
//
// The order of checks is the specification's, carried out by the reference
// library's state machine. What is ours: the bounds, the files on disk, the
// errors, and a check of every file's shape before the library reads it.
package tuf

import (
	"fmt"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// Role is one of the four signed files.
type Role string

const (
	RoleRoot      Role = metadata.ROOT
	RoleTargets   Role = metadata.TARGETS
	RoleSnapshot  Role = metadata.SNAPSHOT
	RoleTimestamp Role = metadata.TIMESTAMP
)

var roles = []Role{RoleRoot, RoleTargets, RoleSnapshot, RoleTimestamp}

// Offline says whether people sign the role, on machines that are no server.
func (r Role) Offline() bool { return r == RoleRoot || r == RoleTargets }

// TimestampFile is the only file whose name does not change with its content.
const TimestampFile = "timestamp.json"

// FileName is what a version of a role is called at its source: 3.root.json.
func FileName(role Role, version int64) string {
	if role == RoleTimestamp {
		return TimestampFile
	}
	return fmt.Sprintf("%d.%s.json", version, role)
}

// Sizes a role's file may have in bytes. They bound what a source that sends
// without end can cost a host; decoded, JSON takes some ten times its size.
const (
	// MaxRootSize: 100 keys and 100 signatures of 300 bytes each, twice.
	MaxRootSize = 64 << 10
	// MaxTargetsSize: an archive takes some 500 bytes, so 2,000 archives, or 500
	// versions for four platforms. Those that nobody installs any more can be
	// taken out. At 50 kB/s it still comes within half of [FetchTimeout].
	MaxTargetsSize = 1 << 20
	// MaxOnlineSize is for snapshot and timestamp, which have some 500 bytes.
	MaxOnlineSize = 16 << 10
)

// MaxSize is the bound for a role's file.
func MaxSize(role Role) int64 {
	switch role {
	case RoleRoot:
		return MaxRootSize
	case RoleTargets:
		return MaxTargetsSize
	default:
		return MaxOnlineSize
	}
}

// How long signed files are good for. An expired offline role needs people with
// their keys, and until they have met no host installs anything new (what runs
// goes on running, and kept versions can be rolled back to). A late expiry is as
// long as somebody between host and publisher can hide news.
const (
	// RootLife: nobody needs to touch root keys more than once a year, and a
	// key that was lost is noticed before a second one is.
	RootLife = 365 * 24 * time.Hour
	// TargetsLife bounds how long a stolen server can freeze a fleet. Whoever
	// releases once a quarter never has to sign for the expiry's sake.
	TargetsLife = 90 * 24 * time.Hour
	// SnapshotLife: renewed by the server at half of it. It changes with every
	// release anyway; the week only keeps idle fleets from fetching it daily.
	SnapshotLife = 7 * 24 * time.Hour
	// TimestampLife bounds how long a mirror or a proxy's cache can replay an old
	// answer. A day leaves room for hosts whose clock is hours off.
	TimestampLife = 24 * time.Hour
	// TimestampRenewal is the age at which the server signs anew: three renewals
	// may fail before an agent notices.
	TimestampRenewal = 6 * time.Hour
)

// MaxRootRotations bounds the roots followed in one refresh: 20 years of monthly
// rotations. Progress is kept, so an agent that slept longer goes on next time.
const MaxRootRotations = 256

// FetchTimeout bounds the fetch of one file. The largest takes 21 s at 50 kB/s.
const FetchTimeout = time.Minute

// maxList bounds every list in a file. Signatures and key ids are the only ones,
// and the library compares each signature with all others before it checks any.
const maxList = 256

// maxVersion is the largest integer that every JSON reader keeps exactly. Numbers
// are counted, or seconds since 1970: none comes near it.
const maxVersion = 1 << 53
