package trust

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"aead.dev/minisign"
)

// PublicKey is a publisher's public key.
type PublicKey struct{ key minisign.PublicKey }

// ParsePublicKey parses a bare key ("RW…") or the text of a .pub file.
func ParsePublicKey(text string) (PublicKey, error) {
	var key minisign.PublicKey
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return PublicKey{}, errors.New("public key is empty, want a minisign key such as RWQ… or the text of a .pub file")
	}
	if err := key.UnmarshalText([]byte(trimmed)); err != nil {
		return PublicKey{}, fmt.Errorf("public key %q is not a minisign key such as RWQ…: %w", firstLine(trimmed), err)
	}
	raw, err := base64.StdEncoding.DecodeString(key.String()) // algorithm, id, key
	if err == nil {
		err = CheckEd25519(raw[len(raw)-ed25519.PublicKeySize:])
	}
	if err != nil {
		return PublicKey{}, fmt.Errorf("public key %s cannot be used: %w", key, err)
	}
	return PublicKey{key}, nil
}

// firstLine shortens s for use in an error message.
func firstLine(s string) string {
	const enough = 60
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > enough {
		s = s[:enough] + "…"
	}
	return s
}

// String returns the key in base64, which begins with RW.
func (k PublicKey) String() string { return k.key.String() }

// ID returns the key's id as minisign prints it: 16 hexadecimal digits.
func (k PublicKey) ID() string { return keyID(k.key.ID()) }

// Equal reports whether k and other are the same key.
func (k PublicKey) Equal(other PublicKey) bool { return k.key.Equal(other.key) }

// File returns the text of a .pub file.
func (k PublicKey) File() []byte {
	return fmt.Appendf(nil, "untrusted comment: minisign public key %s\n%s\n", k.ID(), k)
}

func keyID(id uint64) string { return fmt.Sprintf("%016X", id) }

// PrivateKey makes signatures. It belongs to whoever releases packages, never
// to a server or a host.
type PrivateKey struct{ key minisign.PrivateKey }

// GenerateKey generates a pair of keys. rand is crypto/rand.Reader, or in a test
// a deterministic reader.
func GenerateKey(rand io.Reader) (PublicKey, PrivateKey, error) {
	pub, priv, err := minisign.GenerateKey(rand)
	if err != nil {
		return PublicKey{}, PrivateKey{}, fmt.Errorf("generate key: %w", err)
	}
	return PublicKey{pub}, PrivateKey{priv}, nil
}

// Public returns the key that verifies the signatures of k.
func (k PrivateKey) Public() PublicKey {
	return PublicKey{k.key.Public().(minisign.PublicKey)}
}

// Sign reads the archive to its end and returns the text of its signature file,
// which is valid only for an archive of that name. The text holds no time, so the
// same archive, name and key give the same text and a release can be reproduced.
func (k PrivateKey) Sign(fileName string, archive io.Reader) ([]byte, error) {
	if err := checkFileName(fileName); err != nil {
		return nil, err
	}
	digest := minisign.NewReader(archive)
	if _, err := io.Copy(io.Discard, digest); err != nil {
		return nil, fmt.Errorf("read %s: %w", fileName, err)
	}
	return digest.SignWithComments(k.key, trustedComment(fileName), "signature of a Muster package by key "+k.Public().ID()), nil
}

var (
	// ErrNoPassword is returned when a key file cannot be written or read
	// without a password and none was given.
	ErrNoPassword = errors.New("a password is needed")
	// ErrWrongPassword is returned when a key file cannot be decrypted.
	ErrWrongPassword = errors.New("the password is wrong, or the key file is damaged")
)

const unsafeComment = "untrusted comment: NOT ENCRYPTED minisign secret key: whoever reads this file can sign packages"

// UnsafePlainPrivateKey returns the text of a key file that is not encrypted:
// whoever reads the file can sign. Its first line warns of that.
func UnsafePlainPrivateKey(k PrivateKey) ([]byte, error) {
	text, err := k.key.MarshalText()
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	_, body, _ := strings.Cut(string(text), "\n")
	return fmt.Appendf(nil, "%s\n%s\n", unsafeComment, body), nil
}

// NeedsPassword reports whether the text of a private key file is encrypted.
func NeedsPassword(data []byte) bool {
	return minisign.IsEncrypted([]byte(strings.TrimSpace(string(data))))
}

// DecryptPrivateKey reads a private key file. It ignores the password if the file
// is not encrypted.
func DecryptPrivateKey(password string, data []byte) (PrivateKey, error) {
	text := []byte(strings.TrimSpace(string(data)))
	if !minisign.IsEncrypted(text) {
		var key minisign.PrivateKey
		if err := key.UnmarshalText(text); err != nil {
			return PrivateKey{}, fmt.Errorf("private key file: %w (was the .pub file given?)", err)
		}
		return PrivateKey{key}, nil
	}
	if password == "" {
		return PrivateKey{}, ErrNoPassword
	}
	key, err := minisign.DecryptKey(password, text)
	if err != nil {
		return PrivateKey{}, ErrWrongPassword
	}
	return PrivateKey{key}, nil
}
