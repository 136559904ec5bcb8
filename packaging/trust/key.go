package trust

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"aead.dev/minisign"
)

// PublicKey is a publisher's key as a host trusts it.
type PublicKey struct{ key minisign.PublicKey }

// ParsePublicKey takes the bare key ("RW…") or the text of a .pub file.
func ParsePublicKey(text string) (PublicKey, error) {
	var key minisign.PublicKey
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return PublicKey{}, errors.New("public key is empty, want a minisign key such as RWQ… or the text of a .pub file")
	}
	if err := key.UnmarshalText([]byte(trimmed)); err != nil {
		return PublicKey{}, fmt.Errorf("public key %q is not a minisign key such as RWQ…: %w", firstLine(trimmed), err)
	}
	return PublicKey{key}, nil
}

// firstLine keeps what was given short enough for a message.
func firstLine(s string) string {
	const enough = 60
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > enough {
		s = s[:enough] + "…"
	}
	return s
}

// String is the key as it is typed and stored: RW and more base64.
func (k PublicKey) String() string { return k.key.String() }

// ID is the key's short name: 16 hexadecimal digits, as minisign prints them.
func (k PublicKey) ID() string { return keyID(k.key.ID()) }

// Equal says whether two keys are the same.
func (k PublicKey) Equal(other PublicKey) bool { return k.key.Equal(other.key) }

// File is the text of a .pub file.
func (k PublicKey) File() []byte {
	return fmt.Appendf(nil, "untrusted comment: minisign public key %s\n%s\n", k.ID(), k)
}

func keyID(id uint64) string { return fmt.Sprintf("%016X", id) }

// PrivateKey makes signatures. It belongs to whoever releases packages, never
// to a server or a host.
type PrivateKey struct{ key minisign.PrivateKey }

// GenerateKey makes a pair of keys; rand is crypto/rand.Reader, or in a test a
// source that repeats.
func GenerateKey(rand io.Reader) (PublicKey, PrivateKey, error) {
	pub, priv, err := minisign.GenerateKey(rand)
	if err != nil {
		return PublicKey{}, PrivateKey{}, fmt.Errorf("generate key: %w", err)
	}
	return PublicKey{pub}, PrivateKey{priv}, nil
}

// Public is the key that checks what k signs.
func (k PrivateKey) Public() PublicKey {
	return PublicKey{k.key.Public().(minisign.PublicKey)}
}

// Sign reads the archive to its end and returns the text of its signature file,
// good only for an archive of that name. The same archive, name and key give
// the same text: no time is written, so a release can be repeated and compared.
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
	// ErrNoPassword says that a key file was to be written or read without
	// the password it needs.
	ErrNoPassword = errors.New("a password is needed")
	// ErrWrongPassword says that a key file does not open.
	ErrWrongPassword = errors.New("the password is wrong, or the key file is damaged")
)

const unsafeComment = "untrusted comment: NOT ENCRYPTED minisign secret key: whoever reads this file can sign packages"

// UnsafePlainPrivateKey renders a key for a file that anybody who reads it can
// sign with. The file says so in its first line.
func UnsafePlainPrivateKey(k PrivateKey) ([]byte, error) {
	text, err := k.key.MarshalText()
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	_, body, _ := strings.Cut(string(text), "\n")
	return fmt.Appendf(nil, "%s\n%s\n", unsafeComment, body), nil
}

// NeedsPassword says whether the text of a private key file is encrypted.
func NeedsPassword(data []byte) bool {
	return minisign.IsEncrypted([]byte(strings.TrimSpace(string(data))))
}

// DecryptPrivateKey reads a private key file. A file that is not encrypted is
// read whatever the password.
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
