package fleet

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"
)

// Credential is an API key. Its holder sends base64(id:secret) after "ApiKey " in the
// Authorization header.
type Credential struct {
	ID     string
	Secret string
}

// NewCredential returns a random credential.
func NewCredential() Credential { return Credential{ID: NewID()[:20], Secret: newSecret()} }

// Encode returns base64(id:secret).
func (c Credential) Encode() string {
	return base64.StdEncoding.EncodeToString([]byte(c.ID + ":" + c.Secret))
}

// Hash returns what is stored of the secret. A plain SHA-256 suffices: the secret has
// 256 random bits, so a slow hash would protect nothing, and every check-in pays for
// it.
func (c Credential) Hash() string {
	sum := sha256.Sum256([]byte(c.Secret))
	return hex.EncodeToString(sum[:])
}

// Matches reports whether a stored hash is that of the credential, in constant time.
func (c Credential) Matches(hash string) bool {
	return hash != "" && subtle.ConstantTimeCompare([]byte(c.Hash()), []byte(hash)) == 1
}

// ParseCredential parses the form of Encode.
func ParseCredential(s string) (Credential, error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
	if err != nil {
		return Credential{}, Errorf(Unauthorized, "the API key is not base64: copy it whole")
	}
	id, secret, ok := strings.Cut(string(b), ":")
	if !ok || id == "" || secret == "" || strings.Contains(secret, ":") {
		return Credential{}, Errorf(Unauthorized, "the API key is not of the form base64(id:secret): copy it whole")
	}
	return Credential{ID: id, Secret: secret}, nil
}

// EnrollmentKey lets hosts enrol into a policy.
type EnrollmentKey struct {
	ID   string `json:"api_key_id"` // id of the credential, and of the document
	Hash string `json:"hash"`
	// Sealed is the secret, encrypted with a key that the store does not have. It is empty if
	// the key cannot be shown again.
	Sealed    []byte     `json:"sealed,omitempty"`
	Name      string     `json:"name"`
	PolicyID  string     `json:"policy_id"`
	Active    bool       `json:"active"`
	CreatedAt time.Time  `json:"created_at"`
	ExpireAt  *time.Time `json:"expire_at,omitempty"`
	Revision  int64      `json:"-"`
}

// Usable returns an error if the key cannot enrol hosts at now.
func (k EnrollmentKey) Usable(now time.Time) error {
	switch {
	case !k.Active:
		return &Error{Kind: Unauthorized, Code: "ErrUnauthorized", Message: "the enrollment key has been revoked: ask for a new one"}
	case k.ExpireAt != nil && !now.Before(*k.ExpireAt):
		return &Error{Kind: Unauthorized, Code: "ErrUnauthorized", Message: "the enrollment key expired at " + k.ExpireAt.Format(time.RFC3339) + ": ask for a new one"}
	}
	return nil
}

// AdminKey gives access to the admin API.
type AdminKey struct {
	ID        string     `json:"id"` // id of the credential
	Hash      string     `json:"hash"`
	Name      string     `json:"name"`
	Active    bool       `json:"active"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by,omitempty"`
	ExpireAt  *time.Time `json:"expire_at,omitempty"`
	// LastUsedAt is accurate to a minute.
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
	// Generation is part of each session of the key. Raising it ends them all.
	Generation int64 `json:"generation,omitempty"`
	// FailuresSeenAt is until when its owner has seen the failures of upgrades.
	FailuresSeenAt *time.Time `json:"failures_seen_at,omitempty"`
	Revision       int64      `json:"-"`
}

// Usable returns an error if the key gives no access at now.
func (k AdminKey) Usable(now time.Time) error {
	switch {
	case !k.Active:
		return Errorf(Unauthorized, "the admin API key has been revoked")
	case k.ExpireAt != nil && !now.Before(*k.ExpireAt):
		return Errorf(Unauthorized, "the admin API key expired at %s", k.ExpireAt.Format(time.RFC3339))
	}
	return nil
}

// PublisherKey is an OpenPGP key with which Elastic signs packages that the server accepts.
type PublisherKey struct {
	// 16 hexadecimal digits
	ID string `json:"id"`
	// An armored OpenPGP key
	PublicKey string    `json:"public_key"`
	Name      string    `json:"name"`
	AddedAt   time.Time `json:"added_at"`
	AddedBy   string    `json:"added_by,omitempty"`
	Revision  int64     `json:"-"`
}
