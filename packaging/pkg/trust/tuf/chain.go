package tuf

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"
	"github.com/theupdateframework/go-tuf/v2/metadata/trustedmetadata"
)

// chain runs the specification's client workflow at one moment: root, timestamp,
// snapshot, targets, each verified against those before it. Agents use it, and
// servers before they publish, so that no server offers what agents refuse.
type chain struct {
	trusted *trustedmetadata.TrustedMetadata
	now     time.Time
}

// startChain starts from a root that the caller trusts.
func startChain(root []byte, now time.Time) (*chain, error) {
	meta, err := decodeRoot(root)
	if err != nil {
		return nil, err
	}
	trusted, err := trustedmetadata.New(root)
	if err != nil {
		return nil, explainSignatures(err, &meta.Signed, RoleRoot, meta)
	}
	trusted.RefTime = now
	return &chain{trusted, now}, nil
}

func (c *chain) rootType() *metadata.RootType { return &c.trusted.Root.Signed }

// root verifies and trusts the next root.
func (c *chain) root(data []byte) error {
	next, err := decodeRoot(data)
	if err != nil {
		return err
	}
	have := c.rootType()
	if next.Signed.Version != have.Version+1 {
		kind := ErrMismatch
		if next.Signed.Version <= have.Version {
			kind = ErrRollback
		}
		return fmt.Errorf("%s %w: it holds version %d", FileName(RoleRoot, have.Version+1), kind, next.Signed.Version)
	}
	_, err = c.trusted.UpdateRoot(data)
	if err != nil {
		return explainSignatures(err, have, RoleRoot, next)
	}
	return nil
}

// expired returns an error if the newest root has expired.
func (c *chain) expired() error {
	if root := c.rootType(); root.IsExpired(c.now) {
		return c.expiredError(RoleRoot, root.Version, root.Expires)
	}
	return nil
}

// timestamp verifies and trusts a timestamp. fresh is false if its version is the
// one that is trusted already.
func (c *chain) timestamp(data []byte) (fresh bool, err error) {
	if err := c.expired(); err != nil {
		return false, err
	}
	next, err := decodeTimestamp(data)
	if err != nil {
		return false, err
	}
	have := c.trusted.Timestamp
	_, err = c.trusted.UpdateTimestamp(data)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, &metadata.ErrEqualVersionNumber{}):
		// The library checks this only when a snapshot is loaded.
		if have.Signed.IsExpired(c.now) {
			return false, c.expiredError(RoleTimestamp, have.Signed.Version, have.Signed.Expires)
		}
		return false, nil
	case errors.Is(err, &metadata.ErrExpiredMetadata{}):
		return false, c.expiredError(RoleTimestamp, next.Signed.Version, next.Signed.Expires)
	case errors.Is(err, &metadata.ErrBadVersionNumber{}):
		if next.Signed.Version < have.Signed.Version {
			return false, rollback(RoleTimestamp, have.Signed.Version, next.Signed.Version)
		}
		return false, rollback(RoleSnapshot, snapshotIn(have).Version, snapshotIn(next).Version)
	default:
		return false, explainSignatures(err, c.rootType(), RoleTimestamp, next)
	}
}

// snapshotMeta and targetsMeta describe the file to load next.
func (c *chain) snapshotMeta() *metadata.MetaFiles { return snapshotIn(c.trusted.Timestamp) }

func (c *chain) targetsMeta() *metadata.MetaFiles { return targetsIn(c.trusted.Snapshot) }

// snapshotIn relies on checkMeta, as targetsIn does: the entry exists.
func snapshotIn(m *metadata.Metadata[metadata.TimestampType]) *metadata.MetaFiles {
	return m.Signed.Meta["snapshot.json"]
}

func targetsIn(m *metadata.Metadata[metadata.SnapshotType]) *metadata.MetaFiles {
	return m.Signed.Meta["targets.json"]
}

// snapshot verifies and trusts a snapshot. A local one was verified against its
// timestamp when it was fetched. The newest timestamp may name another one; then
// the local one only serves to detect a rollback.
func (c *chain) snapshot(data []byte, local bool) error {
	next, err := decodeSnapshot(data)
	if err != nil {
		return err
	}
	have := c.trusted.Snapshot
	_, err = c.trusted.UpdateSnapshot(data, local)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, &metadata.ErrExpiredMetadata{}):
		return c.expiredError(RoleSnapshot, next.Signed.Version, next.Signed.Expires)
	case errors.Is(err, &metadata.ErrBadVersionNumber{}) && have != nil && targetsIn(next).Version < targetsIn(have).Version:
		return rollback(RoleTargets, targetsIn(have).Version, targetsIn(next).Version)
	case errors.Is(err, &metadata.ErrBadVersionNumber{}), errors.Is(err, &metadata.ErrLengthOrHashMismatch{}):
		return c.mismatch(RoleSnapshot, c.snapshotMeta(), RoleTimestamp, err)
	case errors.Is(err, &metadata.ErrUnsignedMetadata{}):
		return explainSignatures(err, c.rootType(), RoleSnapshot, next)
	case errors.Is(err, &metadata.ErrRepository{}):
		return fmt.Errorf("snapshot %s %w: it leaves out files that an earlier one named: %w", number(next.Signed.Version), ErrRollback, err)
	default:
		return fmt.Errorf("snapshot file %w: %w", ErrMalformed, err)
	}
}

// targets verifies and trusts the targets that the snapshot names.
func (c *chain) targets(data []byte) error {
	next, err := decodeTargets(data)
	if err != nil {
		return err
	}
	_, err = c.trusted.UpdateTargets(data)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, &metadata.ErrExpiredMetadata{}):
		return c.expiredError(RoleTargets, next.Signed.Version, next.Signed.Expires)
	case errors.Is(err, &metadata.ErrBadVersionNumber{}), errors.Is(err, &metadata.ErrLengthOrHashMismatch{}):
		return c.mismatch(RoleTargets, c.targetsMeta(), RoleSnapshot, err)
	default:
		return explainSignatures(err, c.rootType(), RoleTargets, next)
	}
}

func (c *chain) targetsType() *metadata.TargetsType {
	return &c.trusted.Targets[metadata.TARGETS].Signed
}

// signers returns the targets keys that signed the trusted targets.
func (c *chain) signers() []PublicKey {
	return need(c.rootType(), RoleTargets, c.trusted.Targets[metadata.TARGETS]).Signed
}

func (c *chain) expiredError(role Role, version int64, since time.Time) error {
	return &ExpiredError{
		Role: role, Version: version, Since: since, Now: c.now,
		Who: signersOf(c.rootType(), role).who(),
	}
}

// mismatch is the error for two files of a source that do not belong together. It
// happens for a moment while one server publishes and another answers from an older
// copy.
func (c *chain) mismatch(role Role, want *metadata.MetaFiles, by Role, cause error) error {
	return fmt.Errorf("%s %w, as %s %s names it: try again; if it stays, the source was tampered with: %w",
		FileName(role, want.Version), ErrMismatch, by, number(c.versionOf(by)), cause)
}

func (c *chain) versionOf(role Role) int64 {
	if role == RoleTimestamp {
		return c.trusted.Timestamp.Signed.Version
	}
	return c.trusted.Snapshot.Signed.Version
}

func rollback(role Role, have, got int64) error {
	return fmt.Errorf("%s %s %w: version %d was seen before; if the server was restored from a backup, publish the newest signed files to it again",
		role, number(got), ErrRollback, have)
}

// explainSignatures turns the library's signature error into one that names the
// missing signers. Any other error of the library means a malformed file.
func explainSignatures(err error, authority *metadata.RootType, role Role, meta any) error {
	if !errors.Is(err, &metadata.ErrUnsignedMetadata{}) {
		return fmt.Errorf("%s file %w: %w", role, ErrMalformed, err)
	}
	h, herr := headOf(meta)
	if herr != nil {
		return herr
	}
	p := Progress{Role: role, Version: h.version, Needs: []Need{need(authority, role, meta)}}
	if next, ok := meta.(*metadata.Metadata[metadata.RootType]); ok && next.Signed.Version != authority.Version {
		p.Needs = append(p.Needs, need(&next.Signed, role, meta))
	}
	return &ThresholdError{p}
}

// onlineKeys returns the sorted ids of the keys that the server signs with.
func onlineKeys(root *metadata.RootType) []string {
	var ids []string
	for _, role := range []Role{RoleSnapshot, RoleTimestamp} {
		of := slices.Clone(root.Roles[string(role)].KeyIDs)
		slices.Sort(of)
		ids = append(append(ids, string(role)), of...)
	}
	return ids
}
