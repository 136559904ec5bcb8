// Package trust decides whether an archive may be installed. No other package
// decides that. A publisher signs an archive with a private key, every host holds
// the public keys it was enrolled with, and the server only stores archive and
// signature: whoever takes over the server cannot ship code. The agent, the
// installer and `muster package` call this package.
//
// A signature is a minisign file: Ed25519 over the BLAKE2b-512 digest of the
// archive. Archives are therefore read as a stream, and the minisign tool verifies
// and makes the same files. The trusted comment, which is signed too, names the
// archive:
//
//	trusted comment: file:muster-agent-1.1.0-linux-amd64.tar.gz	hashed
//
// Without the name a server could answer a request for 1.2.0 with a correctly
// signed but vulnerable 1.0.0.
package trust

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"aead.dev/minisign"
)

// SignatureSuffix is appended to an archive's name to name its signature file.
const SignatureSuffix = ".minisig"

// MaxSignatureSize bounds a signature file in bytes. A real one has some 300;
// the rest is room for a long comment.
const MaxSignatureSize = 4 << 10

var (
	// ErrNoKeys is returned when the host trusts no key, so that nothing can be
	// installed.
	ErrNoKeys = errors.New("no publisher key is trusted")
	// ErrUntrustedKey is returned for a signature by a key that the host does not
	// trust.
	ErrUntrustedKey = errors.New("publisher key is not trusted")
	// ErrBadSignature is returned when the signature does not match the archive
	// and its name.
	ErrBadSignature = errors.New("signature does not match")
	// ErrTransient is what an error is that a later try may not meet, without anybody's doing.
	ErrTransient = errors.New("may be valid later")
)

// Verifier decides whether an archive may be installed. fileName is the name under
// which the archive was requested. Verify reads archive to its end. Any error means
// that the archive must not be installed.
type Verifier interface {
	Verify(fileName string, archive io.Reader, signature []byte) (Statement, error)
}

// Statement is what a trusted publisher says about an archive.
type Statement struct {
	// KeyID is 16 hexadecimal digits, or a comma-separated list of them where
	// several people sign.
	KeyID    string `json:"key_id"`
	FileName string `json:"file_name"`
	// Comment is the whole trusted comment, or names the signed files that
	// describe the archive.
	Comment string `json:"comment"`
}

// Keyring is the set of public keys a host trusts. A signature by any one of them
// is enough, so a key is replaced by trusting both keys for a while.
type Keyring []PublicKey

var _ Verifier = Keyring{}

// ParseKeyring parses each text with [ParsePublicKey] and drops duplicates.
func ParseKeyring(texts []string) (Keyring, error) {
	var ring Keyring
	for i, text := range texts {
		key, err := ParsePublicKey(text)
		if err != nil {
			return nil, fmt.Errorf("trusted key %d of %d: %w", i+1, len(texts), err)
		}
		if !ring.has(key) {
			ring = append(ring, key)
		}
	}
	return ring, nil
}

func (r Keyring) has(key PublicKey) bool {
	for _, k := range r {
		if k.Equal(key) {
			return true
		}
	}
	return false
}

// IDs returns the ids of the keys, for messages.
func (r Keyring) IDs() []string {
	ids := make([]string, len(r))
	for i, k := range r {
		ids[i] = k.ID()
	}
	return ids
}

// Verify implements [Verifier].
func (r Keyring) Verify(fileName string, archive io.Reader, signature []byte) (Statement, error) {
	if len(r) == 0 {
		return Statement{}, fmt.Errorf("%s: %w: name one with --trust-key or --key", fileName, ErrNoKeys)
	}
	sig, err := parseSignature(signature)
	if err != nil {
		return Statement{}, fmt.Errorf("%s%s: %w", fileName, SignatureSuffix, err)
	}
	// The signer chooses the key id, so two keys may share one.
	var candidates []minisign.PublicKey
	for _, k := range r {
		if k.key.ID() == sig.KeyID {
			candidates = append(candidates, k.key)
		}
	}
	if len(candidates) == 0 {
		return Statement{}, fmt.Errorf("%s is signed by key %s, this host trusts %s: %w",
			fileName, keyID(sig.KeyID), strings.Join(r.IDs(), ", "), ErrUntrustedKey)
	}
	digest := minisign.NewReader(archive)
	if _, err := io.Copy(io.Discard, digest); err != nil {
		return Statement{}, fmt.Errorf("read %s: %w", fileName, err)
	}
	for _, key := range candidates {
		if digest.Verify(key, signature) {
			return statement(fileName, sig)
		}
	}
	return Statement{}, fmt.Errorf("%s: %w: the archive or its %s file was changed, or damaged on the way",
		fileName, ErrBadSignature, SignatureSuffix)
}

// parseSignature accepts only signatures over a digest: minisign's older form
// requires the whole archive in memory.
func parseSignature(text []byte) (minisign.Signature, error) {
	var sig minisign.Signature
	if len(text) > MaxSignatureSize {
		return sig, fmt.Errorf("%w: has more than %d bytes", ErrBadSignature, MaxSignatureSize)
	}
	if err := sig.UnmarshalText(text); err != nil {
		return sig, fmt.Errorf("%w: is not a minisign file: %w", ErrBadSignature, err)
	}
	if sig.Algorithm != minisign.HashEdDSA {
		return sig, fmt.Errorf("%w: is of minisign's old form without a digest, sign again with `minisign -H`", ErrBadSignature)
	}
	return sig, nil
}

// statement compares the name in a verified signature with the name under which
// the archive was requested.
func statement(fileName string, sig minisign.Signature) (Statement, error) {
	signed, err := signedName(sig.TrustedComment)
	if err != nil {
		return Statement{}, fmt.Errorf("%s: %w: %w", fileName, ErrBadSignature, err)
	}
	if signed != fileName {
		return Statement{}, fmt.Errorf("%s: %w: it was made for %s", fileName, ErrBadSignature, signed)
	}
	return Statement{KeyID: keyID(sig.KeyID), FileName: signed, Comment: sig.TrustedComment}, nil
}

const fileField = "file:"

func trustedComment(fileName string) string { return fileField + fileName + "\thashed" }

// signedName returns the value of the comment's one file field. Fields are
// separated by tabs, as in the comments that minisign writes. With two file fields
// one signature would be valid for two archives.
func signedName(comment string) (string, error) {
	var name string
	for field := range strings.SplitSeq(comment, "\t") {
		value, ok := strings.CutPrefix(field, fileField)
		switch {
		case !ok:
		case name != "":
			return "", errors.New("its trusted comment names two files")
		default:
			name = value
		}
	}
	if name == "" {
		return "", errors.New("its trusted comment names no file (want file:<name of the archive>)")
	}
	return name, nil
}

func checkFileName(name string) error {
	if name == "" || name == "." || name == ".." || path.Base(name) != name || strings.ContainsAny(name, "\\\t\r\n\x00") {
		return fmt.Errorf("file name %q: want the bare name of an archive", name)
	}
	return nil
}
