package keyfile

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"log/slog"
)

// EncryptionKey is the name of the file of the key that encrypts the secrets in the store
// that are needed again: to be shown to operators, or to be sent to agents.
const EncryptionKey = "encryption-key"

// Sealer encrypts secrets for the store with AES-256-GCM. The zero Sealer has no key: it
// seals nothing and opens nothing.
type Sealer struct {
	key  []byte
	aead cipher.AEAD
	// problem says why this server lacks the installation's key, and what to do.
	problem string
}

// OpenSealer reads the encryption key. A server without it starts all the same: it stores no
// secret and shows none again, and everything else works.
func OpenSealer(ctx context.Context, f File, log *slog.Logger) (Sealer, error) {
	key, err := f.Open(ctx)
	if err != nil {
		return Sealer{}, err
	}
	if key == nil {
		s := Sealer{problem: "this server does not have the key that encrypts secrets in the store, so it shows no enrollment token again, and orders and delivers no action that has secrets: stop it, copy " + f.Name +
			" out of the folder trust of a server that shows them, as " + f.Path() + ", and start it again; if the key is lost everywhere, make that file, empty, and the server makes another, for the secrets that are stored from then on"}
		log.Warn("the encryption key is missing", "what", s.problem)
		return s, nil
	}
	return newSealer(key)
}

func newSealer(key []byte) (Sealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return Sealer{}, fmt.Errorf("encryption key: %w", err)
	}
	// The nonces have 96 random bits, so one key is good for 2^32 secrets.
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return Sealer{key: key, aead: aead}, err
}

// Derive returns a key for another purpose, from which the encryption key cannot be found.
// It is nil if there is no key.
func (s Sealer) Derive(purpose string) []byte {
	if s.key == nil {
		return nil
	}
	key, err := hkdf.Expand(sha256.New, s.key, purpose, Size)
	if err != nil {
		return nil // never: a key of this size can be derived
	}
	return key
}

// Problem returns why this server lacks the installation's key, empty if it does not.
func (s Sealer) Problem() string { return s.problem }

// Seal encrypts a secret of owner, such as "enrollment key 7": it can be opened for the same
// owner only, so that whoever writes to the store cannot show it as another's. Without a key
// Seal returns nil.
func (s Sealer) Seal(owner, secret string) []byte {
	if s.aead == nil {
		return nil
	}
	return s.aead.Seal(nil, nil, []byte(secret), []byte(owner))
}

// Open decrypts what Seal returned. ok is false if there is no key, if the secret was sealed
// with another one, or for another owner.
func (s Sealer) Open(owner string, sealed []byte) (secret string, ok bool) {
	if s.aead == nil || len(sealed) == 0 {
		return "", false
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(owner))
	return string(plain), err == nil
}
