package tuf

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/cjson"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/theupdateframework/go-tuf/v2/metadata"
)

// Progress reports who has signed a file and whose signatures are missing.
type Progress struct {
	Role    Role
	Version int64
	// Needs must all be met. Only a root after version 1 has two.
	Needs []Need
}

// Need is a set of keys of which Threshold have to sign.
type Need struct {
	// By is the root that names the keys: "root 2".
	By        string
	Threshold int
	Signed    []PublicKey
	Open      []PublicKey
}

func (n Need) missing() int { return max(0, n.Threshold-len(n.Signed)) }

func (n Need) String() string {
	s := fmt.Sprintf("%d of %d signatures by the keys of %s", len(n.Signed), n.Threshold, n.By)
	switch missing := n.missing(); missing {
	case 0:
		return s
	case 1:
		return s + ", still needs one of: " + labels(n.Open)
	default:
		return s + fmt.Sprintf(", still needs %d of: %s", missing, labels(n.Open))
	}
}

// Done reports whether hosts will accept the file.
func (p Progress) Done() bool {
	return !slices.ContainsFunc(p.Needs, func(n Need) bool { return n.missing() > 0 })
}

// String returns a text such as "targets version 4 has 2 of 3 signatures by the keys of root 1, still
// needs one of: ann (3f2a…), bob (77c0…)".
func (p Progress) String() string {
	texts := make([]string, len(p.Needs))
	for i, n := range p.Needs {
		texts[i] = n.String()
	}
	return fmt.Sprintf("%s %s has %s", p.Role, number(p.Version), strings.Join(texts, "; and "))
}

// Signatures reports who has signed a file. trusted is the root that names the
// signers: the current root, or for a root the version before it (nil for version 1).
func Signatures(file, trusted []byte) (Progress, error) {
	meta, err := decodeAny(file)
	if err != nil {
		return Progress{}, err
	}
	h, err := headOf(meta)
	if err != nil {
		return Progress{}, err
	}
	var authority *metadata.RootType
	if trusted != nil {
		root, err := decodeRoot(trusted)
		if err != nil {
			return Progress{}, fmt.Errorf("trusted root: %w", err)
		}
		authority = &root.Signed
	}
	p := Progress{Role: h.role, Version: h.version}
	next, isRoot := meta.(*metadata.Metadata[metadata.RootType])
	switch {
	case !isRoot && authority == nil:
		return Progress{}, fmt.Errorf("%s: the root that names its signers is needed", FileName(h.role, h.version))
	case isRoot && h.version > 1 && (authority == nil || authority.Version != h.version-1):
		return Progress{}, fmt.Errorf("%s: the root before it, %s, is needed", FileName(h.role, h.version), FileName(RoleRoot, h.version-1))
	}
	if authority != nil && (!isRoot || h.version > 1) {
		p.Needs = append(p.Needs, need(authority, h.role, meta))
	}
	if isRoot {
		p.Needs = append(p.Needs, need(&next.Signed, h.role, meta))
	}
	return p, nil
}

// need verifies the signature of each key on its own, with the call by which
// agents verify all of them.
func need(authority *metadata.RootType, role Role, meta any) Need {
	s := signersOf(authority, role)
	n := Need{By: fmt.Sprintf("root %d", authority.Version), Threshold: s.Threshold}
	for _, k := range s.Keys {
		alone := metadata.Metadata[metadata.RootType]{Signed: metadata.RootType{
			Keys:  map[string]*metadata.Key{k.ID(): k.meta()},
			Roles: map[string]*metadata.Role{string(role): {KeyIDs: []string{k.ID()}, Threshold: 1}},
		}}
		if alone.VerifyDelegate(string(role), meta) == nil {
			n.Signed = append(n.Signed, k)
		} else {
			n.Open = append(n.Open, k)
		}
	}
	return n
}

// Sign adds one signature to a file. Several people sign one file in turn, or each
// signs a copy and [Merge] joins them. trusted is as for [Signatures]. Signing again
// with the same key changes nothing.
func Sign(file, trusted []byte, key PrivateKey) ([]byte, error) {
	p, err := Signatures(file, trusted)
	if err != nil {
		return nil, err
	}
	var all []PublicKey
	for _, n := range p.Needs {
		all = append(append(all, n.Signed...), n.Open...)
	}
	if !slices.ContainsFunc(all, key.Public().Equal) {
		slices.SortFunc(all, func(a, b PublicKey) int { return strings.Compare(a.ID(), b.ID()) })
		all = slices.CompactFunc(all, PublicKey.Equal)
		return nil, fmt.Errorf("%s: %w: %s is none of %s", FileName(p.Role, p.Version), ErrNotSigner, key.Public().Label(), labels(all))
	}
	return sign(file, key)
}

func sign(file []byte, key PrivateKey) ([]byte, error) {
	meta, err := decodeAny(file)
	if err != nil {
		return nil, err
	}
	switch m := meta.(type) {
	case *metadata.Metadata[metadata.RootType]:
		return signAs(RoleRoot, m, key)
	case *metadata.Metadata[metadata.TargetsType]:
		return signAs(RoleTargets, m, key)
	case *metadata.Metadata[metadata.SnapshotType]:
		return signAs(RoleSnapshot, m, key)
	case *metadata.Metadata[metadata.TimestampType]:
		return signAs(RoleTimestamp, m, key)
	}
	return nil, fmt.Errorf("sign: %T is no role", meta)
}

func signAs[T metadata.Roles](role Role, meta *metadata.Metadata[T], key PrivateKey) ([]byte, error) {
	signer, err := signature.LoadED25519Signer(key.key)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", role, err)
	}
	id := key.Public().ID()
	meta.Signatures = slices.DeleteFunc(meta.Signatures, func(s metadata.Signature) bool { return s.KeyID == id })
	if _, err := meta.Sign(signer); err != nil {
		return nil, fmt.Errorf("sign %s: %w", role, err)
	}
	return encode(role, meta)
}

// Merge joins the signatures of two copies of one file.
func Merge(a, b []byte) ([]byte, error) {
	left, err := decodeAny(a)
	if err != nil {
		return nil, fmt.Errorf("first file: %w", err)
	}
	right, err := decodeAny(b)
	if err != nil {
		return nil, fmt.Errorf("second file: %w", err)
	}
	switch l := left.(type) {
	case *metadata.Metadata[metadata.RootType]:
		if r, ok := right.(*metadata.Metadata[metadata.RootType]); ok {
			return merge(RoleRoot, l, r)
		}
	case *metadata.Metadata[metadata.TargetsType]:
		if r, ok := right.(*metadata.Metadata[metadata.TargetsType]); ok {
			return merge(RoleTargets, l, r)
		}
	default:
		return nil, errors.New("merge: only root and targets are signed by several people")
	}
	return nil, errors.New("merge: one file is a root, the other is not")
}

func merge[T metadata.Roles](role Role, a, b *metadata.Metadata[T]) ([]byte, error) {
	left, err := cjson.EncodeCanonical(a.Signed)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	right, err := cjson.EncodeCanonical(b.Signed)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	if !bytes.Equal(left, right) {
		return nil, fmt.Errorf("merge: the two %s files say different things: all signers must sign copies of one file", role)
	}
	for _, s := range b.Signatures {
		if !slices.ContainsFunc(a.Signatures, func(have metadata.Signature) bool { return have.KeyID == s.KeyID }) {
			a.Signatures = append(a.Signatures, s)
		}
	}
	return encode(role, a)
}
