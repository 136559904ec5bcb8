package tuf

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/theupdateframework/go-tuf/v2/metadata"

	"github.com/muster-fleet/muster/packaging/pkg/trust"
)

// PublicKey is an Ed25519 key as a root names it. The zero value is no key.
type PublicKey struct {
	// Name is the owner's name, for messages only. It may be empty.
	Name string
	key  ed25519.PublicKey
}

// nameForm restricts names to one word, so that lists of signers stay readable.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$`)

func checkName(name string) error {
	if name != "" && !nameForm.MatchString(name) {
		return fmt.Errorf("key name %q: want up to 64 letters, digits and . _ @ + -", name)
	}
	return nil
}

const publicPrefix = "muster-tuf-ed25519"

// ParsePublicKey parses a line as [PublicKey.String] returns it.
func ParsePublicKey(text string) (PublicKey, error) {
	fields := strings.Fields(text)
	if len(fields) < 2 || len(fields) > 3 || fields[0] != publicPrefix {
		return PublicKey{}, fmt.Errorf("public key is not a line such as %q", publicPrefix+" <base64> <name>")
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(fields[1])
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return PublicKey{}, fmt.Errorf("public key: %q is not the base64 of %d bytes", fields[1], ed25519.PublicKeySize)
	}
	if err := trust.CheckEd25519(raw); err != nil {
		return PublicKey{}, fmt.Errorf("public key %s cannot be used: %w", fields[1], err)
	}
	k := PublicKey{key: raw}
	if len(fields) == 3 {
		k.Name = fields[2]
	}
	return k, checkName(k.Name)
}

// String returns the key as one line of text, with its name.
func (k PublicKey) String() string {
	return strings.TrimSpace(publicPrefix + " " + base64.StdEncoding.EncodeToString(k.key) + " " + k.Name)
}

// ID returns the key's id in signed files: 64 hexadecimal digits.
func (k PublicKey) ID() string {
	id, err := k.meta().ID()
	if err != nil {
		panic(err) // two strings always encode
	}
	return id
}

// Short returns the first 16 digits of the id, for messages.
func (k PublicKey) Short() string { return k.ID()[:16] }

// Label returns name and short id: "ann (3f2a…)".
func (k PublicKey) Label() string {
	if k.Name == "" {
		return k.Short()
	}
	return k.Name + " (" + k.Short() + ")"
}

// IsZero reports whether k is the zero value.
func (k PublicKey) IsZero() bool { return len(k.key) == 0 }

// Equal reports whether k and other are the same key, whatever their names.
func (k PublicKey) Equal(other PublicKey) bool { return k.key.Equal(other.key) }

func (k PublicKey) meta() *metadata.Key {
	return &metadata.Key{
		Type: metadata.KeyTypeEd25519, Scheme: metadata.KeySchemeEd25519,
		Value: metadata.KeyVal{PublicKey: hex.EncodeToString(k.key)},
	}
}

func publicKeyOf(key *metadata.Key, name string) (PublicKey, error) {
	if key.Type != metadata.KeyTypeEd25519 || key.Scheme != metadata.KeySchemeEd25519 {
		return PublicKey{}, fmt.Errorf("is of type %q, scheme %q: want ed25519", key.Type, key.Scheme)
	}
	raw, err := hex.DecodeString(key.Value.PublicKey)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return PublicKey{}, fmt.Errorf("is not %d bytes in hexadecimal", ed25519.PublicKeySize)
	}
	if err := trust.CheckEd25519(raw); err != nil {
		return PublicKey{}, fmt.Errorf("cannot be used: %w", err)
	}
	return PublicKey{Name: name, key: raw}, checkName(name)
}

func labels(keys []PublicKey) string {
	texts := make([]string, len(keys))
	for i, k := range keys {
		texts[i] = k.Label()
	}
	return strings.Join(texts, ", ")
}

// PrivateKey signs roles. An offline key belongs to one person at the publisher,
// the online key to the server.
type PrivateKey struct {
	name string
	key  ed25519.PrivateKey
}

// GenerateKey generates a key. rand is crypto/rand.Reader, or in a test a
// deterministic reader. name may be empty.
func GenerateKey(rand io.Reader, name string) (PrivateKey, error) {
	if err := checkName(name); err != nil {
		return PrivateKey{}, err
	}
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(rand, seed); err != nil {
		return PrivateKey{}, fmt.Errorf("generate key: %w", err)
	}
	return PrivateKey{name: name, key: ed25519.NewKeyFromSeed(seed)}, nil
}

// Public returns the key that verifies the signatures of k.
func (k PrivateKey) Public() PublicKey {
	return PublicKey{Name: k.name, key: k.key.Public().(ed25519.PublicKey)}
}
