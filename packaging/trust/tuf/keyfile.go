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

	"github.com/muster-fleet/muster/packaging/trust"
)

// A private key file is PEM. Its headers say whose key it is and how it is
// locked; the body is the Ed25519 seed, sealed with XChaCha20-Poly1305 under a
// key that scrypt makes from the password. The headers are sealed with it.
//
//	-----BEGIN MUSTER TUF PRIVATE KEY-----
//	Lock: scrypt 17 <salt>
//	Public: muster-tuf-ed25519 … ann
const (
	pemType      = "MUSTER TUF PRIVATE KEY"
	headerLock   = "Lock"
	headerPublic = "Public"
	unlocked     = "NONE: whoever reads this file can sign"
)

// lockCost is the power of two that sets what one guess at a password costs: as
// in package trust, 2^17 takes 128 MiB and under a second, OWASP's figures.
const lockCost = 17

// maxLockCost bounds what opening a file can take: 2^20 is 1 GiB.
const maxLockCost = 20

// EncryptPrivateKey renders a key for a file, locked by a password.
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
	// What nobody can open again must not be all that is left of a key.
	back, _ := pem.Decode(text)
	if back == nil {
		return nil, errors.New("encrypt private key: what was written is not read back")
	}
	if seed, err := unseal(key, back); err != nil || !bytes.Equal(seed, k.key.Seed()) {
		return nil, errors.New("encrypt private key: what was written does not open")
	}
	return text, nil
}

// UnsafePlainPrivateKey renders a key for a file that anybody who reads it can
// sign with, as the server's own has to be. The file says so.
func UnsafePlainPrivateKey(k PrivateKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: k.key.Seed(), Headers: map[string]string{
		headerLock: unlocked, headerPublic: k.Public().String(),
	}})
}

// NeedsPassword says whether the text of a private key file is locked.
func NeedsPassword(data []byte) bool {
	block, _ := pem.Decode(data)
	return block != nil && block.Headers[headerLock] != unlocked
}

// DecryptPrivateKey reads a private key file. One that is not locked is read
// whatever the password. Errors are trust.ErrNoPassword, trust.ErrWrongPassword,
// or say what is wrong with the file.
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
	if block.Headers[headerLock] != unlocked {
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
		panic(err) // only for costs that are no power of two
	}
	return key
}
