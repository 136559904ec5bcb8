package tuf

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/theupdateframework/go-tuf/v2/metadata"

	"github.com/muster-fleet/muster/packaging/pkg/trust"
)

func TestWeakRootAndTargetsKeysAreRefused(t *testing.T) {
	zeros := make([]byte, 32)
	if _, err := ParsePublicKey(publicPrefix + " " + base64.StdEncoding.EncodeToString(zeros) + " bob"); !errors.Is(err, trust.ErrWeakKey) {
		t.Errorf("a line: error is %v", err)
	}
	key := metadata.Key{Type: metadata.KeyTypeEd25519, Scheme: metadata.KeySchemeEd25519, Value: metadata.KeyVal{PublicKey: hex.EncodeToString(zeros)}}
	if _, err := publicKeyOf(&key, "bob"); !errors.Is(err, trust.ErrWeakKey) {
		t.Errorf("a key of a root: error is %v", err)
	}
}
