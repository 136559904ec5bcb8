package infra

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// UninstallTokens are the tokens that hosts of a protected policy ask for before they
// uninstall. They are derived from a key in the data folder, so the store has none of them,
// and all servers with the key have the same.
type UninstallTokens struct {
	key []byte
}

// NewUninstallTokens derives tokens from a key. It returns nil, which has no tokens, if the
// key is nil.
func NewUninstallTokens(key []byte) *UninstallTokens {
	if key == nil {
		return nil
	}
	return &UninstallTokens{key: key}
}

func (u *UninstallTokens) derive(purpose, policyID string) []byte {
	mac := hmac.New(sha256.New, u.key)
	fmt.Fprintf(mac, "%s of the policy %s", purpose, policyID)
	return mac.Sum(nil)
}

// Token returns the token of a policy, in the form of Kibana's: 32 hexadecimal digits.
func (u *UninstallTokens) Token(policyID string) string {
	return hex.EncodeToString(u.derive("uninstall token", policyID)[:16])
}

// ID returns the id of the token of a policy, which says nothing about the token.
func (u *UninstallTokens) ID(policyID string) string {
	b := u.derive("id of the uninstall token", policyID)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// Hash returns what agents get of the token of a policy.
func (u *UninstallTokens) Hash(policyID string) string {
	sum := sha256.Sum256([]byte(u.Token(policyID)))
	return base64.StdEncoding.EncodeToString(sum[:])
}
