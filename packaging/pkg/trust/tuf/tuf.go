// Package tuf implements package trust's Authority with The Update Framework. It
// verifies not only that a publisher signed an archive, but also that the
// publishers still offer it today. Four signed files ("roles") do so, each
// authenticating the next:
//
//	root       which keys sign which role, how many of them    offline, publishers
//	targets    which archives there are: size, hash; the floor offline, publishers
//	snapshot   which version of targets is the newest          online, the server
//	timestamp  which snapshot is the newest, as of now         online, the server
//
// `muster package` makes and signs the offline files ([NewRoot], [NextRoot],
// [EditTargets], [Sign]), the server accepts them and signs the online ones
// ([Accept], [Online]), and the agent verifies them ([Client]). A host pins one
// root at its enrolment ([Pin]); every later root must be signed by the one before
// it. Whoever takes over the server has the online keys: enough to withhold new
// files until targets expire, not to ship code or to bring an old version back.
//
// The reference library's state machine carries out the checks in the order of the
// specification. This package adds the bounds, the files on disk, the errors, and a
// check of every file's shape before the library reads it.
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

// Offline reports whether people sign the role, with keys that are on no server.
func (r Role) Offline() bool { return r == RoleRoot || r == RoleTargets }

// TimestampFile is the only file whose name does not change with its content.
const TimestampFile = "timestamp.json"

// FileName returns the name of a version of a role at its source: 3.root.json.
func FileName(role Role, version int64) string {
	if role == RoleTimestamp {
		return TimestampFile
	}
	return fmt.Sprintf("%d.%s.json", version, role)
}

// Maximum sizes of the roles' files in bytes. They bound what a source that sends
// without end costs a host; decoded, JSON takes some ten times its size.
const (
	// MaxRootSize: 100 keys and 100 signatures of 300 bytes each, twice.
	MaxRootSize = 64 << 10
	// MaxTargetsSize: an archive takes some 500 bytes, so 2,000 archives, or 500
	// versions for four platforms. Those that are no longer installed can be
	// removed. At 50 kB/s it still arrives within half of [FetchTimeout].
	MaxTargetsSize = 1 << 20
	// MaxOnlineSize is for snapshot and timestamp, which have some 500 bytes.
	MaxOnlineSize = 16 << 10
)

// MaxSize returns the maximum size of a role's file.
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

// Lifetimes of signed files. When an offline role expires, no host installs
// anything new until people have signed it again (agents go on running, and
// installed versions can be rolled back to). The lifetime is also how long an attacker
// between host and publisher can withhold new files.
const (
	// RootLife: root keys are needed only once a year, and a lost key is noticed
	// before a second one is lost.
	RootLife = 365 * 24 * time.Hour
	// TargetsLife bounds how long a stolen server can freeze a fleet. A release
	// every quarter renews it in time.
	TargetsLife = 90 * 24 * time.Hour
	// SnapshotLife: the server renews a snapshot at half of it. Snapshots change
	// with every release anyway; a week spares idle fleets a daily fetch.
	SnapshotLife = 7 * 24 * time.Hour
	// TimestampLife bounds how long a mirror or a proxy's cache can replay an old
	// answer. A day leaves room for hosts whose clock is hours off.
	TimestampLife = 24 * time.Hour
	// TimestampRenewal is the age at which the server signs a new timestamp: three
	// renewals may fail before an agent notices.
	TimestampRenewal = 6 * time.Hour
)

// MaxRootRotations bounds the roots followed in one refresh: 20 years of monthly
// rotations. Each root is stored, so the next refresh continues from there.
const MaxRootRotations = 256

// FetchTimeout bounds the fetch of one file. The largest takes 21 s at 50 kB/s.
const FetchTimeout = time.Minute

// maxList bounds every list in a file. Signatures and key ids are the only ones,
// and the library compares each signature with all others before it checks any.
const maxList = 256

// maxVersion is the largest integer that every JSON reader represents exactly.
// Versions are counters or seconds since 1970, far below it.
const maxVersion = 1 << 53
