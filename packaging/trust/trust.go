// Package trust answers one question: may these bytes be installed? Nothing
// else in Muster decides it. The release engineer signs an archive with a
// private key; every host holds the public keys it was enrolled with; the
// server in between only stores both files, so that a stolen server cannot ship
// code. The agent, the installer and `muster package` call it.
//
// A signature is a minisign file: Ed25519 over the BLAKE2b-512 digest of the
// archive, so archives are read as a stream and the stock minisign tool checks
// (and makes) the same files. The trusted comment, which the key signs too, names the archive:
//
//	trusted comment: file:muster-agent-1.1.0-linux-amd64.tar.gz	hashed
//
// Without that a server could answer a request for 1.2.0 with a true, signed,
// but old and vulnerable 1.0.0.
package trust

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"aead.dev/minisign"
)

// SignatureSuffix is what the name of an archive gets to name its signature.
const SignatureSuffix = ".minisig"

// MaxSignatureSize bounds a signature file in bytes. A real one has some 300;
// the rest is room for a long comment.
const MaxSignatureSize = 4 << 10

var (
	// ErrNoKeys says that the host trusts nobody, so nothing can be installed.
	ErrNoKeys = errors.New("no publisher key is trusted")
	// ErrUntrustedKey says that a key this host does not trust made the signature.
	ErrUntrustedKey = errors.New("publisher key is not trusted")
	// ErrBadSignature says that the signature is not one for this archive
	// under this name.
	ErrBadSignature = errors.New("signature does not match")
)

// Verifier decides whether an archive may be installed. fileName is the name
// the archive was asked for under; archive is read to its end before the answer
// is given. Any error means no.
type Verifier interface {
	Verify(fileName string, archive io.Reader, signature []byte) (Statement, error)
}

// Statement is what a trusted publisher says about an archive.
type Statement struct {
	// KeyID is 16 hexadecimal digits; where several people sign, those of each,
	// with commas.
	KeyID    string `json:"key_id"`
	FileName string `json:"file_name"`
	// Comment is the whole trusted comment, or which signed files say so.
	Comment string `json:"comment"`
}

// Keyring is the set of public keys a host trusts. Each alone suffices, so a
// key can be exchanged by trusting old and new for a while.
type Keyring []PublicKey

var _ Verifier = Keyring{}

// ParseKeyring parses each text as [ParsePublicKey] does. The same key twice
// is kept once.
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

// IDs lists the keys' ids, for messages.
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
	// A key id is a hint the signer chose, so two keys may share one.
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

// parseSignature accepts only signatures over a digest: the older minisign form
// would need the whole archive in memory.
func parseSignature(text []byte) (minisign.Signature, error) {
	var sig minisign.Signature
	if len(text) > MaxSignatureSize {
		return sig, fmt.Errorf("%w: has more than %d bytes", ErrBadSignature, MaxSignatureSize)
	}
	if err := sig.UnmarshalText(text); err != nil {
		return sig, fmt.Errorf("%w: is not a minisign file: %w", ErrBadSignature, err)
	}
	if sig.Algorithm != minisign.HashEdDSA {
		return sig, fmt.Errorf("%w: is of minisign's old kind without a digest, sign again with `minisign -H`", ErrBadSignature)
	}
	return sig, nil
}

// statement holds a signature that is known to be true against the name the
// archive was asked for under.
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

// signedName finds the one file field among the comment's fields, which tabs
// part as in the comments minisign writes. Two of them would let one signature
// speak for two archives.
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
