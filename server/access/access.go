// Package access authenticates users of the admin API, by an admin key or by a session
// cookie created from one.
package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// SessionLifetime is how long a login lasts: one working day.
const SessionLifetime = 12 * time.Hour

// Service authenticates users of the admin API.
type Service struct {
	Store store.Store
	Now   clock.Clock

	sessionKey []byte
}

// New returns a Service. All servers share the key that signs sessions through the
// store.
func New(ctx context.Context, s store.Store, now func() time.Time) (*Service, error) {
	fresh := make([]byte, 32)
	rand.Read(fresh) // never fails, by its documentation
	key, err := s.Settings().GetOrPut(ctx, "session-key", fresh)
	if err != nil {
		return nil, err
	}
	return &Service{Store: s, Now: now, sessionKey: key}, nil
}

// CreateKey creates an admin key. Only its hash is stored, so the credential cannot be
// shown again.
func (s *Service) CreateKey(ctx context.Context, name string) (fleet.AdminKey, fleet.Credential, error) {
	return s.create(ctx, fleet.NewCredential(), name)
}

func (s *Service) create(ctx context.Context, cred fleet.Credential, name string) (fleet.AdminKey, fleet.Credential, error) {
	k := fleet.AdminKey{ID: cred.ID, Hash: cred.Hash(), Name: name, Active: true, CreatedAt: s.Now.UTC()}
	return k, cred, s.Store.AdminKeys().Create(ctx, k)
}

// firstKeySetting is the setting with the id of the first admin key. The store keeps the
// id that is offered first, so that of several servers that start for the first time at
// the same moment only one creates the key. The id is random, as every key's: one that
// is known beforehand is half of a credential.
const firstKeySetting = "first-admin-key-id"

// FirstKey creates an admin key if there is none; ok reports whether it did.
func (s *Service) FirstKey(ctx context.Context) (cred fleet.Credential, ok bool, err error) {
	_, n, err := s.Store.AdminKeys().List(ctx, 0, 1)
	if err != nil || n > 0 {
		return fleet.Credential{}, false, err
	}
	cred = fleet.NewCredential()
	id, err := s.Store.Settings().GetOrPut(ctx, firstKeySetting, []byte(cred.ID))
	if err != nil {
		return fleet.Credential{}, false, err
	}
	cred.ID = string(id)
	_, cred, err = s.create(ctx, cred, "first key")
	switch {
	case err == nil:
		return cred, true, nil
	case fleet.KindOf(err) == fleet.Conflict:
		return fleet.Credential{}, false, nil // another server created it
	}
	return fleet.Credential{}, false, err
}

func errKey(format string, args ...any) error {
	return fleet.Errorf(fleet.Unauthorized, format, args...)
}

// Authenticate checks an admin credential.
func (s *Service) Authenticate(ctx context.Context, cred fleet.Credential) (fleet.AdminKey, error) {
	k, err := s.key(ctx, cred.ID)
	if err == nil && !cred.Matches(k.Hash) {
		err = errKey("the admin API key is not valid here: copy it whole, or make one on the server with `muster admin-key`")
	}
	return k, err
}

func (s *Service) key(ctx context.Context, id string) (fleet.AdminKey, error) {
	k, err := s.Store.AdminKeys().Get(ctx, id)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return k, errKey("the admin API key is not valid here: copy it whole, or make one on the server with `muster admin-key`")
	case err != nil:
		return k, err
	case !k.Active:
		return k, errKey("the admin API key has been revoked")
	}
	return k, nil
}

// NewSession returns the value of a session cookie: the key's id and the expiry,
// signed. Nothing is stored, and every server can verify it.
func (s *Service) NewSession(k fleet.AdminKey) (value string, expires time.Time) {
	expires = s.Now.UTC().Add(SessionLifetime).Truncate(time.Second)
	body := k.ID + "." + strconv.FormatInt(expires.Unix(), 10)
	return body + "." + s.sign(body), expires
}

// Session verifies a cookie's value. A session ends when its key is revoked.
func (s *Service) Session(ctx context.Context, value string) (fleet.AdminKey, time.Time, error) {
	i := strings.LastIndexByte(value, '.')
	if i < 0 || !hmac.Equal([]byte(s.sign(value[:i])), []byte(value[i+1:])) {
		return fleet.AdminKey{}, time.Time{}, errKey("the session is not valid: log in again")
	}
	id, until, _ := strings.Cut(value[:i], ".")
	n, err := strconv.ParseInt(until, 10, 64)
	expires := time.Unix(n, 0).UTC()
	if err != nil || !s.Now.UTC().Before(expires) {
		return fleet.AdminKey{}, time.Time{}, errKey("the session has ended: log in again")
	}
	k, err := s.key(ctx, id)
	return k, expires, err
}

func (s *Service) sign(body string) string {
	mac := hmac.New(sha256.New, s.sessionKey)
	mac.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
