package tuf

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
)

// ErrDigest is returned for a malformed digest, and for one that no root has.
var ErrDigest = errors.New("root digest")

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Digest returns the value for --trust-root: sha256:<hex> of the file's bytes.
func Digest(root []byte) string {
	sum := sha256.Sum256(root)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// CheckDigest returns an error unless digest has the form that [Digest] returns.
func CheckDigest(digest string) error {
	if !digestForm.MatchString(digest) {
		return fmt.Errorf("%w %q: want sha256: and 64 lower-case hexadecimal digits, as `sha256sum 1.root.json` shows them", ErrDigest, digest)
	}
	return nil
}

// FetchRoot fetches the root with that digest, whichever version it is, for [Pin].
// The source need not be trusted, since the digest identifies the root.
func FetchRoot(ctx context.Context, get Fetch, digest string) ([]byte, error) {
	if err := CheckDigest(digest); err != nil {
		return nil, err
	}
	for version := int64(1); version <= MaxRootRotations; version++ {
		data, err := fetch(ctx, get, FileName(RoleRoot, version), MaxRootSize)
		if errors.Is(err, ErrNotServed) && version == 1 {
			return nil, fmt.Errorf("%w %s: %w", ErrDigest, digest, err)
		}
		if errors.Is(err, ErrNotServed) {
			return nil, fmt.Errorf("%w %s: none of the server's %d root files has it: compare it with the publisher's, and check which server this is", ErrDigest, digest, version-1)
		}
		if err != nil {
			return nil, err
		}
		if Digest(data) != digest {
			continue
		}
		if err := verifyRoot(data); err != nil {
			return nil, err
		}
		return data, nil
	}
	return nil, fmt.Errorf("%w %s: none of the first %d root files has it", ErrDigest, digest, MaxRootRotations)
}
