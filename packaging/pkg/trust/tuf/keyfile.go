package tuf

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/scrypt"

	"github.com/muster-fleet/muster/packaging/pkg/trust"
)

// A private key file is PEM. Its headers name the key and its encryption. The body
// is the Ed25519 seed, encrypted with XChaCha20-Poly1305 under a key that scrypt
// derives from the password; the headers are authenticated with it.
//
//	-----BEGIN MUSTER TUF PRIVATE KEY-----
//	Lock: scrypt 17 <salt>
//	Public: muster-tuf-ed25519 … ann
const (
	pemType      = "MUSTER TUF PRIVATE KEY"
	headerLock   = "Lock"
	headerPublic = "Public"
	notEncrypted = "NONE: whoever reads this file can sign"
)

// lockCost is the base-2 logarithm of scrypt's N, as in package trust: 2^17 takes
// 128 MiB and under a second for each guess at a password, as OWASP recommends.
const lockCost = 17

// maxLockCost bounds the memory that opening a file takes: 2^20 is 1 GiB.
const maxLockCost = 20

// EncryptPrivateKey returns the text of a key file that is encrypted with a
// password.
func EncryptPrivateKey(password string, k PrivateKey) ([]byte, error) {
	if password == "" {
		return nil, trust.ErrNoPassword
	}
	return lock(password, k, lockCost)
}

func lock(password string, k PrivateKey, cost int) ([]byte, error) {
	salt := make([]byte, 32)
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	for _, b := range [][]byte{salt, nonce} {
		if _, err := rand.Read(b); err != nil {
			return nil, fmt.Errorf("encrypt private key: %w", err)
		}
	}
	block := &pem.Block{Type: pemType, Headers: map[string]string{
		headerLock:   fmt.Sprintf("scrypt %d %s", cost, base64.StdEncoding.EncodeToString(salt)),
		headerPublic: k.Public().String(),
	}}
	key := scryptKey(password, salt, cost)
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, fmt.Errorf("encrypt private key: %w", err)
	}
	block.Bytes = aead.Seal(nonce, nonce, k.key.Seed(), sealedHeaders(block))
	text := pem.EncodeToMemory(block)
	// The file may become the only copy of the key, so check that it opens.
	back, _ := pem.Decode(text)
	if back == nil {
		return nil, errors.New("encrypt private key: what was written is not read back")
	}
	if seed, err := unseal(key, back); err != nil || !bytes.Equal(seed, k.key.Seed()) {
		return nil, errors.New("encrypt private key: what was written does not open")
	}
	return text, nil
}

// UnsafePlainPrivateKey returns the text of a key file that is not encrypted, as
// the server's own must be: whoever reads the file can sign. A header warns of that.
func UnsafePlainPrivateKey(k PrivateKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: k.key.Seed(), Headers: map[string]string{
		headerLock: notEncrypted, headerPublic: k.Public().String(),
	}})
}

// NeedsPassword reports whether the text of a private key file is encrypted.
func NeedsPassword(data []byte) bool {
	block, _ := pem.Decode(data)
	return block != nil && block.Headers[headerLock] != notEncrypted
}

// DecryptPrivateKey reads a private key file. It ignores the password if the file
// is not encrypted. The error is trust.ErrNoPassword, trust.ErrWrongPassword, or
// names what is wrong with the file.
func DecryptPrivateKey(password string, data []byte) (PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemType {
		return PrivateKey{}, errors.New("private key file: is not a " + pemType + " in PEM (was the public key given?)")
	}
	public, err := ParsePublicKey(block.Headers[headerPublic])
	if err != nil {
		return PrivateKey{}, fmt.Errorf("private key file: header %s: %w", headerPublic, err)
	}
	seed := block.Bytes
	if block.Headers[headerLock] != notEncrypted {
		if seed, err = unlock(password, block); err != nil {
			return PrivateKey{}, err
		}
	}
	if len(seed) != ed25519.SeedSize {
		return PrivateKey{}, fmt.Errorf("private key file: holds %d bytes, want %d", len(seed), ed25519.SeedSize)
	}
	k := PrivateKey{name: public.Name, key: ed25519.NewKeyFromSeed(seed)}
	if !k.Public().Equal(public) {
		return PrivateKey{}, fmt.Errorf("private key file: header %s names another key than the file holds", headerPublic)
	}
	return k, nil
}

func unlock(password string, block *pem.Block) ([]byte, error) {
	if password == "" {
		return nil, trust.ErrNoPassword
	}
	fields := strings.Fields(block.Headers[headerLock])
	if len(fields) != 3 || fields[0] != "scrypt" {
		return nil, fmt.Errorf("private key file: header %s is %q, want scrypt, cost and salt", headerLock, block.Headers[headerLock])
	}
	cost, err := strconv.Atoi(fields[1])
	if err != nil || cost < 1 || cost > maxLockCost {
		return nil, fmt.Errorf("private key file: header %s: cost is %q, want 1 to %d", headerLock, fields[1], maxLockCost)
	}
	salt, err := base64.StdEncoding.DecodeString(fields[2])
	if err != nil {
		return nil, fmt.Errorf("private key file: header %s: salt: %w", headerLock, err)
	}
	return unseal(scryptKey(password, salt, cost), block)
}

func unseal(key []byte, block *pem.Block) ([]byte, error) {
	aead, err := chacha20poly1305.NewX(key)
	if err != nil || len(block.Bytes) < aead.NonceSize() {
		return nil, trust.ErrWrongPassword
	}
	seed, err := aead.Open(nil, block.Bytes[:aead.NonceSize()], block.Bytes[aead.NonceSize():], sealedHeaders(block))
	if err != nil {
		return nil, trust.ErrWrongPassword
	}
	return seed, nil
}

func sealedHeaders(block *pem.Block) []byte {
	return []byte(block.Headers[headerLock] + "\n" + block.Headers[headerPublic])
}

func scryptKey(password string, salt []byte, cost int) []byte {
	key, err := scrypt.Key([]byte(password), salt, 1<<cost, 8, 1, chacha20poly1305.KeySize)
	if err != nil {
		panic(err) // only for an N that is not a power of two
	}
	return key
}
