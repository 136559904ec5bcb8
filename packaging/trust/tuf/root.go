package tuf

import (
	"fmt"
	"slices"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// namesField keeps the names of keys' owners in the signed part of a root. Beside
// the keys they would be part of the keys' ids.
const namesField = "x-muster-names"

// RootSpec is what a root says.
type RootSpec struct {
	// Root and Targets are signed offline, by people.
	Root, Targets Signers
	// Snapshot and Timestamp are the server's keys; they may be the same one.
	Snapshot, Timestamp PublicKey
	Expires             time.Time
}

// Signers are the keys of a role, of which Threshold have to sign.
type Signers struct {
	Keys      []PublicKey
	Threshold int
}

func (s Signers) who() string {
	return fmt.Sprintf("at least %d of %s", s.Threshold, labels(s.Keys))
}

func (s Signers) has(k PublicKey) bool { return slices.ContainsFunc(s.Keys, k.Equal) }

// Validate checks every field and names the one that is wrong.
func (s RootSpec) Validate() error {
	for _, r := range []struct {
		field string
		Signers
	}{{"root", s.Root}, {"targets", s.Targets}} {
		if len(r.Keys) == 0 {
			return fmt.Errorf("%s.keys: there are none, want at least one", r.field)
		}
		if r.Threshold < 1 || r.Threshold > len(r.Keys) {
			return fmt.Errorf("%s.threshold: is %d, want 1 to %d, the number of keys", r.field, r.Threshold, len(r.Keys))
		}
		for i, k := range r.Keys {
			if slices.ContainsFunc(r.Keys[:i], k.Equal) {
				return fmt.Errorf("%s.keys: %s is there twice: a key counts once", r.field, k.Label())
			}
			// Whoever steals the server would have one of the offline keys too.
			if k.Equal(s.Snapshot) || k.Equal(s.Timestamp) {
				return fmt.Errorf("%s.keys: %s is also a key of the server: make one that never lies on a server", r.field, k.Label())
			}
		}
	}
	for field, k := range map[string]PublicKey{"snapshot": s.Snapshot, "timestamp": s.Timestamp} {
		if k.IsZero() {
			return fmt.Errorf("%s: has no key: name the server's public key", field)
		}
	}
	return nil
}

// NewRoot makes version 1, which nobody has signed yet.
func NewRoot(spec RootSpec) ([]byte, error) { return buildRoot(1, spec) }

// NextRoot makes the version after previous, which nobody has signed yet. A
// threshold of the root keys of previous must sign it, and one of its own.
//
// To recover from stolen online keys, name other ones: hosts then forget the
// snapshot and timestamp they saw, whose numbers the thief may have driven up.
func NextRoot(previous []byte, spec RootSpec) ([]byte, error) {
	root, err := decodeRoot(previous)
	if err != nil {
		return nil, err
	}
	return buildRoot(root.Signed.Version+1, spec)
}

// SpecOf reads a root back, so that it can be changed for [NextRoot].
func SpecOf(root []byte) (RootSpec, error) {
	meta, err := decodeRoot(root)
	if err != nil {
		return RootSpec{}, err
	}
	spec := RootSpec{
		Root: signersOf(&meta.Signed, RoleRoot), Targets: signersOf(&meta.Signed, RoleTargets),
		Expires: meta.Signed.Expires,
	}
	for role, key := range map[Role]*PublicKey{RoleSnapshot: &spec.Snapshot, RoleTimestamp: &spec.Timestamp} {
		s := signersOf(&meta.Signed, role)
		if len(s.Keys) != 1 {
			return RootSpec{}, malformed(RoleRoot, "roles."+string(role), "has %d keys, want one, the server's", len(s.Keys))
		}
		*key = s.Keys[0]
	}
	if err := spec.Validate(); err != nil {
		return RootSpec{}, fmt.Errorf("root file %w: %w", ErrMalformed, err)
	}
	return spec, nil
}

func buildRoot(version int64, spec RootSpec) ([]byte, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	expires, err := checkExpiry("expires", spec.Expires)
	if err != nil {
		return nil, err
	}
	root := metadata.Root(expires)
	root.Signed.Version = version
	names := map[string]any{}
	for role, signers := range map[Role]Signers{
		RoleRoot: spec.Root, RoleTargets: spec.Targets,
		RoleSnapshot:  {[]PublicKey{spec.Snapshot}, 1},
		RoleTimestamp: {[]PublicKey{spec.Timestamp}, 1},
	} {
		for _, k := range signers.Keys {
			if err := checkName(k.Name); err != nil {
				return nil, fmt.Errorf("%s.keys: %w", role, err)
			}
			if err := root.Signed.AddKey(k.meta(), string(role)); err != nil {
				return nil, fmt.Errorf("%s.keys: %w", role, err)
			}
			if k.Name != "" {
				names[k.ID()] = k.Name
			}
		}
		root.Signed.Roles[string(role)].Threshold = signers.Threshold
	}
	root.Signed.UnrecognizedFields = map[string]any{namesField: names}
	return encode(RoleRoot, root)
}

// signersOf takes a root that decode has looked over.
func signersOf(root *metadata.RootType, role Role) Signers {
	names, _ := root.UnrecognizedFields[namesField].(map[string]any)
	s := Signers{Threshold: root.Roles[string(role)].Threshold}
	for _, id := range root.Roles[string(role)].KeyIDs {
		k, err := publicKeyOf(root.Keys[id], "")
		if err != nil {
			continue // checkRoot has refused it
		}
		// A name is for people: an odd one must not make a signed root useless.
		if name, _ := names[id].(string); checkName(name) == nil {
			k.Name = name
		}
		s.Keys = append(s.Keys, k)
	}
	return s
}
