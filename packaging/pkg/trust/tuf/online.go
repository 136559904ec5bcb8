package tuf

import (
	"crypto/sha512"
	"errors"
	"fmt"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// Online is the set of keys a server holds. The newest root says which of them
// signs which role, so a server that replaces a key holds both until it has
// accepted that root.
type Online []PrivateKey

// ErrNoOnlineKey is returned when the root names a key that the server does not
// hold.
var ErrNoOnlineKey = errors.New("the server does not hold the key")

// Sign signs snapshot and timestamp for the current root and targets, and renews
// them before they expire. It returns the repository unchanged if nothing is due or
// there are no targets yet. An error means that agents would refuse the result, so
// none of it may be served.
func (o Online) Sign(r Repository, now time.Time) (Repository, error) {
	if r.Root() == nil {
		return r, nil
	}
	c, err := startChain(r.Root(), now)
	if err != nil {
		return Repository{}, err
	}
	keys := map[Role]PrivateKey{}
	for _, role := range []Role{RoleSnapshot, RoleTimestamp} {
		if keys[role], err = o.key(c.rootType(), role); err != nil {
			return Repository{}, err
		}
	}
	if r.Targets == nil {
		return r, nil
	}
	// Agents remove both files when a key of either changes. So the version numbers
	// may restart here too, in case a thief raised them to their limit.
	if !c.signed(RoleSnapshot, r.Snapshot) || !c.signed(RoleTimestamp, r.Timestamp) {
		r.Snapshot, r.Timestamp = nil, nil
	}
	if r.Snapshot, err = c.signSnapshot(r, keys[RoleSnapshot]); err != nil {
		return Repository{}, err
	}
	if r.Timestamp, err = c.signTimestamp(r, keys[RoleTimestamp]); err != nil {
		return Repository{}, err
	}
	return r, r.check(now)
}

// signed reports whether the newest root's keys signed the file.
func (c *chain) signed(role Role, data []byte) bool {
	meta, err := decodeAny(data)
	return err == nil && c.trusted.Root.VerifyDelegate(string(role), meta) == nil
}

func (o Online) key(root *metadata.RootType, role Role) (PrivateKey, error) {
	s := signersOf(root, role)
	for _, k := range o {
		if s.has(k.Public()) {
			return k, nil
		}
	}
	var mine []PublicKey
	for _, k := range o {
		mine = append(mine, k.Public())
	}
	return PrivateKey{}, fmt.Errorf("root %d: roles.%s: %w: it names %s, the server holds %s",
		root.Version, role, ErrNoOnlineKey, labels(s.Keys), labels(mine))
}

func (c *chain) signSnapshot(r Repository, key PrivateKey) ([]byte, error) {
	targets, err := decodeTargets(r.Targets)
	if err != nil {
		return nil, err
	}
	var version int64
	if r.Snapshot != nil {
		have, err := decodeSnapshot(r.Snapshot)
		if err != nil {
			return nil, err
		}
		version = have.Signed.Version
		if targetsIn(have).VerifyLengthHashes(r.Targets) == nil && c.now.Before(halfLife(have.Signed.Expires)) {
			return r.Snapshot, nil
		}
	}
	next := metadata.Snapshot(c.now.Add(SnapshotLife).UTC().Truncate(time.Second))
	next.Signed.Version = nextVersion(version, c.now)
	next.Signed.Meta["targets.json"] = metaFile(targets.Signed.Version, r.Targets)
	return signAs(RoleSnapshot, next, key)
}

func (c *chain) signTimestamp(r Repository, key PrivateKey) ([]byte, error) {
	snapshot, err := decodeSnapshot(r.Snapshot)
	if err != nil {
		return nil, err
	}
	var version int64
	if r.Timestamp != nil {
		have, err := decodeTimestamp(r.Timestamp)
		if err != nil {
			return nil, err
		}
		version = have.Signed.Version
		if snapshotIn(have).VerifyLengthHashes(r.Snapshot) == nil && c.now.Before(renewal(have.Signed.Expires)) {
			return r.Timestamp, nil
		}
	}
	next := metadata.Timestamp(c.now.Add(TimestampLife).UTC().Truncate(time.Second))
	next.Signed.Version = nextVersion(version, c.now)
	next.Signed.Meta["snapshot.json"] = metaFile(snapshot.Signed.Version, r.Snapshot)
	return signAs(RoleTimestamp, next, key)
}

func halfLife(expires time.Time) time.Time { return expires.Add(-SnapshotLife / 2) }

func renewal(expires time.Time) time.Time { return expires.Add(TimestampRenewal - TimestampLife) }

// nextVersion returns the time in seconds, or last+1 if the clock was set back. A
// plain counter would repeat old numbers on a server restored from a backup, which
// agents refuse as a rollback attack.
func nextVersion(last int64, now time.Time) int64 { return max(last+1, now.Unix()) }

func metaFile(version int64, data []byte) *metadata.MetaFiles {
	sum := sha512.Sum512(data)
	return &metadata.MetaFiles{Version: version, Length: int64(len(data)), Hashes: metadata.Hashes{hashName: sum[:]}}
}

// check is [Repository.Verify], but tolerates an expired offline role: the server goes on
// renewing the online roles, so that agents report the role that people must sign.
func (r Repository) check(now time.Time) error {
	err := r.Verify(now)
	var expired *ExpiredError
	if errors.As(err, &expired) && expired.Role.Offline() {
		return nil
	}
	return err
}

// Verify verifies the whole repository as an agent that trusts its oldest root. The
// repository must be complete.
func (r Repository) Verify(now time.Time) error {
	c, err := startChain(r.Roots[0], now)
	if err != nil {
		return err
	}
	for _, root := range r.Roots[1:] {
		if err := c.root(root); err != nil {
			return err
		}
	}
	if _, err := c.timestamp(r.Timestamp); err != nil {
		return err
	}
	if err := c.snapshot(r.Snapshot, false); err != nil {
		return err
	}
	if err := c.targets(r.Targets); err != nil {
		return err
	}
	_, err = contents(c.targetsType())
	return err
}

// NextSigning returns when [Online.Sign] is next due without an upload. The zero
// time means not before an upload.
func NextSigning(r Repository) (time.Time, error) {
	if r.Timestamp == nil || r.Snapshot == nil {
		return time.Time{}, nil
	}
	timestamp, err := Inspect(r.Timestamp)
	if err != nil {
		return time.Time{}, err
	}
	snapshot, err := Inspect(r.Snapshot)
	if err != nil {
		return time.Time{}, err
	}
	next := renewal(timestamp.Expires)
	if half := halfLife(snapshot.Expires); half.Before(next) {
		next = half
	}
	return next, nil
}
