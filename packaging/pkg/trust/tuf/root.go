package tuf

import (
	"fmt"
	"slices"
	"time"

	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// namesField holds the names of the keys' owners in the signed part of a root. In
// the keys themselves they would change the keys' ids.
const namesField = "x-muster-names"

// RootSpec is the content of a root.
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

// Validate returns an error that names the first invalid field.
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

// NewRoot returns an unsigned root with version 1.
func NewRoot(spec RootSpec) ([]byte, error) { return buildRoot(1, spec) }

// NextRoot returns an unsigned root with the version after previous. A threshold of
// the root keys of previous and a threshold of its own must sign it.
//
// To recover from stolen online keys, name other keys: hosts then forget the
// snapshot and timestamp they saw, whose version numbers the thief may have raised.
func NextRoot(previous []byte, spec RootSpec) ([]byte, error) {
	root, err := decodeRoot(previous)
	if err != nil {
		return nil, err
	}
	return buildRoot(root.Signed.Version+1, spec)
}

// SpecOf returns the spec of a root, to be changed for [NextRoot].
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

// signersOf returns the signers of a role. The root must have passed decode.
func signersOf(root *metadata.RootType, role Role) Signers {
	names, _ := root.UnrecognizedFields[namesField].(map[string]any)
	s := Signers{Threshold: root.Roles[string(role)].Threshold}
	for _, id := range root.Roles[string(role)].KeyIDs {
		k, err := publicKeyOf(root.Keys[id], "")
		if err != nil {
			continue // checkRoot has refused it
		}
		// Names are only for messages, so an invalid one does not spoil the root.
		if name, _ := names[id].(string); checkName(name) == nil {
			k.Name = name
		}
		s.Keys = append(s.Keys, k)
	}
	return s
}
