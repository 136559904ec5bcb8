package tuf

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// Repository is what a server serves: every root, and the newest of the other
// files. A nil file does not exist. A server may also keep older snapshots and
// targets, for agents that are in the middle of a refresh.
type Repository struct {
	// Roots are consecutive versions, oldest first. None is ever removed: an agent
	// that was offline follows them one by one.
	Roots                        [][]byte
	Targets, Snapshot, Timestamp []byte
}

// File is one file of a repository, under the name that agents ask for.
type File struct {
	Name string
	Data []byte
}

// NewRepository selects all roots and the newest of the other files. It does not
// verify signatures: the files are the server's own, and [Online.Sign] verifies
// them.
func NewRepository(files ...[]byte) (Repository, error) {
	var r Repository
	newest := map[Role]int64{}
	roots := map[int64][]byte{}
	for _, data := range files {
		info, err := Inspect(data)
		if err != nil {
			return Repository{}, err
		}
		if info.Role == RoleRoot {
			roots[info.Version] = data
			continue
		}
		if info.Version > newest[info.Role] {
			newest[info.Role] = info.Version
			*r.file(info.Role) = data
		}
	}
	var last int64
	for _, version := range slices.Sorted(maps.Keys(roots)) {
		if last != 0 && version != last+1 {
			return Repository{}, fmt.Errorf("%s: is missing, agents that trust an older root cannot follow", FileName(RoleRoot, last+1))
		}
		last = version
		r.Roots = append(r.Roots, roots[version])
	}
	return r, nil
}

func (r *Repository) file(role Role) *[]byte {
	switch role {
	case RoleTargets:
		return &r.Targets
	case RoleSnapshot:
		return &r.Snapshot
	default:
		return &r.Timestamp
	}
}

// Root returns the newest root, or nil.
func (r Repository) Root() []byte {
	if len(r.Roots) == 0 {
		return nil
	}
	return r.Roots[len(r.Roots)-1]
}

// Changes returns the files of after that before lacks, in the order in which they
// may be published: the timestamp, which names the others, comes last.
func Changes(before, after Repository) ([]File, error) {
	var changed []File
	old := append(slices.Clone(before.Roots), before.Targets, before.Snapshot, before.Timestamp)
	for _, data := range append(slices.Clone(after.Roots), after.Targets, after.Snapshot, after.Timestamp) {
		if data == nil || slices.ContainsFunc(old, func(o []byte) bool { return bytes.Equal(o, data) }) {
			continue
		}
		info, err := Inspect(data)
		if err != nil {
			return nil, err
		}
		changed = append(changed, File{info.FileName, data})
	}
	return changed, nil
}

// Accept adds uploads to r: any number of roots and at most one targets file, in
// any order. It refuses what agents would refuse, and ignores what r has already.
// The caller must store nothing unless [Online.Sign] accepts the result too, which
// checks that the server holds the keys that a new root names.
func Accept(r Repository, now time.Time, uploads ...[]byte) (Repository, error) {
	roots, targets, err := sortUploads(uploads)
	if err != nil {
		return Repository{}, err
	}
	r.Roots = slices.Clone(r.Roots)
	for _, data := range roots {
		if err := r.acceptRoot(data, now); err != nil {
			return Repository{}, err
		}
	}
	if r.Root() == nil {
		return Repository{}, fmt.Errorf("root: the server has none yet: publish %s first, or together with this", FileName(RoleRoot, 1))
	}
	spec, err := SpecOf(r.Root())
	if err != nil {
		return Repository{}, err
	}
	end, err := startChain(r.Root(), now)
	if err != nil {
		return Repository{}, err
	}
	if err := end.expired(); err != nil {
		return Repository{}, err
	}
	if targets != nil {
		return r.acceptTargets(end, targets)
	}
	if r.Targets != nil {
		if err := end.offlineTargets(r.Targets); err != nil {
			return Repository{}, fmt.Errorf("root %d takes away keys that the published targets need; have %s sign targets again and publish both together: %w",
				end.rootType().Version, spec.Targets.who(), err)
		}
	}
	return r, nil
}

func sortUploads(uploads [][]byte) (roots [][]byte, targets []byte, err error) {
	versions := map[int64][]byte{}
	for _, data := range uploads {
		info, err := Inspect(data)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case !info.Role.Offline():
			return nil, nil, fmt.Errorf("%s: is signed by the server itself: publish root and targets files only", info.FileName)
		case info.Role == RoleRoot:
			if have := versions[info.Version]; have != nil && !bytes.Equal(have, data) {
				return nil, nil, fmt.Errorf("%s: is there twice, with different bytes", info.FileName)
			}
			versions[info.Version] = data
		case targets != nil:
			return nil, nil, fmt.Errorf("%s: is a second targets file: publish the newest only", info.FileName)
		default:
			targets = data
		}
	}
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		roots = append(roots, versions[version])
	}
	return roots, targets, nil
}

func (r *Repository) acceptRoot(data []byte, now time.Time) error {
	if slices.ContainsFunc(r.Roots, func(have []byte) bool { return bytes.Equal(have, data) }) {
		return nil
	}
	if _, err := SpecOf(data); err != nil {
		return err
	}
	if r.Root() == nil {
		c, err := startChain(data, now)
		if err != nil {
			return err
		}
		if v := c.rootType().Version; v != 1 {
			return fmt.Errorf("%s: the server has none before it: publish all from %s on, so that every host can follow", FileName(RoleRoot, v), FileName(RoleRoot, 1))
		}
		r.Roots = append(r.Roots, data)
		return nil
	}
	c, err := startChain(r.Root(), now)
	if err != nil {
		return err
	}
	if err := c.root(data); err != nil {
		return err
	}
	r.Roots = append(r.Roots, data)
	return nil
}

func (r Repository) acceptTargets(end *chain, data []byte) (Repository, error) {
	if err := end.offlineTargets(data); err != nil {
		return Repository{}, err
	}
	if _, err := ContentsOf(data); err != nil {
		return Repository{}, err
	}
	if r.Targets != nil && !bytes.Equal(r.Targets, data) {
		have, err := Inspect(r.Targets)
		if err != nil {
			return Repository{}, err
		}
		got, err := Inspect(data)
		if err != nil {
			return Repository{}, err
		}
		if got.Version <= have.Version {
			return Repository{}, fmt.Errorf("targets %s %w: version %d is published: make the change on top of that one",
				number(got.Version), ErrRollback, have.Version)
		}
	}
	r.Targets = data
	return r, nil
}

// offlineTargets verifies targets that no snapshot names yet.
func (c *chain) offlineTargets(data []byte) error {
	meta, err := decodeTargets(data)
	if err != nil {
		return err
	}
	if err := c.trusted.Root.VerifyDelegate(metadata.TARGETS, meta); err != nil {
		return explainSignatures(err, c.rootType(), RoleTargets, meta)
	}
	if meta.Signed.IsExpired(c.now) {
		return c.expiredError(RoleTargets, meta.Signed.Version, meta.Signed.Expires)
	}
	return nil
}

// Expiry describes when a role's file expires.
type Expiry struct {
	Role    Role
	Version int64
	Expires time.Time
	// Who must sign the next version.
	Who string
}

// OfflineExpiries returns when root and targets expire, so that the server can show
// it and warn in time.
func (r Repository) OfflineExpiries() ([]Expiry, error) {
	if r.Root() == nil {
		return nil, nil
	}
	spec, err := SpecOf(r.Root())
	if err != nil {
		return nil, err
	}
	var all []Expiry
	for _, f := range []struct {
		data    []byte
		signers Signers
	}{{r.Root(), spec.Root}, {r.Targets, spec.Targets}} {
		if f.data == nil {
			continue
		}
		info, err := Inspect(f.data)
		if err != nil {
			return nil, err
		}
		all = append(all, Expiry{info.Role, info.Version, info.Expires, f.signers.who()})
	}
	return all, nil
}
