package trust

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"aead.dev/minisign"
	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/scrypt"
)

// lockCost is the base-2 logarithm of scrypt's N: 2^17 takes 128 MiB and under a
// second for each guess at a password, as OWASP recommends. minisign's own 2^20
// takes 1 GiB, which build machines often do not have. The file states its cost,
// so minisign opens it.
const lockCost = 17

// EncryptPrivateKey returns the text of a key file that is encrypted with a
// password.
func EncryptPrivateKey(password string, k PrivateKey) ([]byte, error) {
	if password == "" {
		return nil, ErrNoPassword
	}
	return lock(password, k, lockCost)
}

// Layout of a key file's one base64 line: two bytes each for the algorithms of
// key, password and checksum, the salt, the two limits, and then id, key and
// checksum, which the password hides.
const (
	lockSalt   = 6
	lockOps    = 38
	lockMemory = 46
	lockHidden = 54
	lockTag    = 126
	lockSize   = 158
)

func lock(password string, k PrivateKey, cost int) ([]byte, error) {
	raw, err := plainBytes(k)
	if err != nil {
		return nil, err
	}
	copy(raw[2:], "Sc") // scrypt; the algorithms of key and checksum stay as they are
	if _, err := rand.Read(raw[lockSalt:lockOps]); err != nil {
		return nil, fmt.Errorf("encrypt private key: %w", err)
	}
	// libsodium derives N from these limits, and r=8 and p=1 whatever the cost.
	binary.LittleEndian.PutUint64(raw[lockOps:], 32<<cost)
	binary.LittleEndian.PutUint64(raw[lockMemory:], 1024<<cost)
	tag := blake2b.Sum256(append(append([]byte{}, raw[:2]...), raw[lockHidden:lockTag]...))
	copy(raw[lockTag:], tag[:])
	stream, err := scrypt.Key([]byte(password), raw[lockSalt:lockOps], 1<<cost, 8, 1, lockSize-lockHidden)
	if err != nil {
		return nil, fmt.Errorf("encrypt private key: %w", err)
	}
	subtle.XORBytes(raw[lockHidden:], raw[lockHidden:], stream)
	text := fmt.Appendf(nil, "untrusted comment: minisign encrypted secret key\n%s\n", base64.StdEncoding.EncodeToString(raw))
	// The file may become the only copy of the key, so check that it opens.
	back, err := minisign.DecryptKey(password, text)
	if err == nil && !back.Equal(k.key) {
		err = errors.New("it holds another key")
	}
	if err != nil {
		return nil, fmt.Errorf("encrypt private key: check what was written: %w", err)
	}
	return text, nil
}

func plainBytes(k PrivateKey) ([]byte, error) {
	text, err := k.key.MarshalText()
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	_, body, _ := strings.Cut(string(text), "\n")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(body))
	if err != nil || len(raw) != lockSize {
		return nil, fmt.Errorf("encode private key: %d bytes, want %d", len(raw), lockSize)
	}
	return raw, nil
}
