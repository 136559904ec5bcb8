package tuf

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"

	"github.com/secure-systems-lab/go-securesystemslib/cjson"
)

// Forge replaces all signatures by those of keys, as a thief of the keys would: it
// checks neither that the keys belong to the role nor that the file is valid.
func Forge(file []byte, keys ...PrivateKey) ([]byte, error) {
	var f struct {
		Signatures []map[string]string `json:"signatures"`
		Signed     json.RawMessage     `json:"signed"`
	}
	if err := json.Unmarshal(file, &f); err != nil {
		return nil, err
	}
	payload, err := cjson.EncodeCanonical(f.Signed)
	if err != nil {
		return nil, err
	}
	f.Signatures = nil
	for _, k := range keys {
		f.Signatures = append(f.Signatures, map[string]string{
			"keyid": k.Public().ID(), "sig": hex.EncodeToString(ed25519.Sign(k.key, payload)),
		})
	}
	return json.Marshal(f)
}

// EncryptCheaply is EncryptPrivateKey at a low cost.
func EncryptCheaply(password string, k PrivateKey) ([]byte, error) { return lock(password, k, 4) }
