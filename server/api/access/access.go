// Package access authenticates users of the admin API, by an admin key or by a session
// cookie created from one.
package access

import (
	"context"
	"crypto/hmac"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
)

// SessionLifetime is how long a login lasts: one working day.
const SessionLifetime = 12 * time.Hour

// Service authenticates users of the admin API.
type Service struct {
	Store  store.Store
	Events *event.Stream
	Now    clock.Clock

	sessions SessionKey
	attempts attempts

	mu sync.Mutex
	// seen has the keys that have authenticated on this server, and when that was last
	// written.
	seen map[string]seenKey
}

// New returns a Service. A process that opens no sessions passes the zero SessionKey.
func New(s store.Store, sessions SessionKey, events *event.Stream, now clock.Clock) *Service {
	return &Service{Store: s, Events: events, Now: now, sessions: sessions, seen: map[string]seenKey{}}
}

// Problem returns why nobody can log in to this server, empty if they can.
func (s *Service) Problem() string { return s.sessions.problem }

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
	_, cred, err = s.create(ctx, cred, "first key", 0, "muster")
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

// Authenticate checks an admin credential that came from a remote address. After wrong
// keys, their source has to wait longer and longer before another is looked at.
//
// A key that has been used on this server is counted apart from the others of its source,
// so that people behind the same address cannot keep each other out: they do not know the
// ids of each other's keys.
func (s *Service) Authenticate(ctx context.Context, cred fleet.Credential, remote string) (fleet.AdminKey, error) {
	source := sourceOf(remote)
	hash, seen := s.hasSeen(cred.ID)
	if seen {
		source += " " + cred.ID
	}
	// Whoever knows the id of a key sends wrong secrets for it from the address of its owner, whom
	// they must not lock out.
	if !seen || !cred.Matches(hash) {
		if err := s.attempts.allow(source, s.Now.UTC()); err != nil {
			return fleet.AdminKey{}, err
		}
	}
	k, err := s.key(ctx, cred.ID)
	if err == nil && !cred.Matches(k.Hash) {
		err = errUnknown()
	}
	switch {
	case err == nil:
		s.attempts.succeeded(source)
	case fleet.KindOf(err) == fleet.Unauthorized:
		s.attempts.failed(source, s.Now.UTC())
		return k, err
	default:
		return k, err
	}
	if err := k.Usable(s.Now.UTC()); err != nil {
		return k, err
	}
	s.used(ctx, k)
	return k, nil
}

func errUnknown() error {
	return errKey("the admin API key is not valid here: copy it whole, or make one on the server with `muster admin-key`")
}

func (s *Service) key(ctx context.Context, id string) (fleet.AdminKey, error) {
	k, err := s.Store.AdminKeys().Get(ctx, id)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		err = errUnknown()
	}
	return k, err
}

// SessionEnd returns when a session of k ends that begins now.
func SessionEnd(k fleet.AdminKey, now time.Time) time.Time {
	end := now.Add(SessionLifetime)
	if k.ExpireAt != nil && k.ExpireAt.Before(end) {
		end = *k.ExpireAt
	}
	return end.Truncate(time.Second)
}

// NewSession returns the value of a session cookie: the key's id, its generation and the
// expiry, signed. Nothing is stored, and every server can verify it. A session is never
// prolonged: it ends at expires, whatever the browser keeps.
func (s *Service) NewSession(k fleet.AdminKey) (value string, expires time.Time, err error) {
	if err := s.sessions.usable(); err != nil {
		return "", time.Time{}, err
	}
	expires = SessionEnd(k, s.Now.UTC())
	body := k.ID + "." + strconv.FormatInt(k.Generation, 10) + "." + strconv.FormatInt(expires.Unix(), 10)
	return body + "." + s.sessions.sign(body), expires, nil
}

// Session verifies a cookie's value. A session ends at its expiry, when its key is
// revoked, and when somebody logs out of a session of the same key.
func (s *Service) Session(ctx context.Context, value string) (fleet.AdminKey, time.Time, error) {
	if err := s.sessions.usable(); err != nil {
		return fleet.AdminKey{}, time.Time{}, err
	}
	i := strings.LastIndexByte(value, '.')
	if i < 0 || !hmac.Equal([]byte(s.sessions.sign(value[:i])), []byte(value[i+1:])) {
		return fleet.AdminKey{}, time.Time{}, errKey("the session is not valid: log in again")
	}
	fields := strings.Split(value[:i], ".")
	if len(fields) != 3 {
		return fleet.AdminKey{}, time.Time{}, errKey("the session is not valid: log in again")
	}
	generation, gerr := strconv.ParseInt(fields[1], 10, 64)
	until, uerr := strconv.ParseInt(fields[2], 10, 64)
	expires := time.Unix(until, 0).UTC()
	if gerr != nil || uerr != nil || !s.Now.UTC().Before(expires) {
		return fleet.AdminKey{}, time.Time{}, errKey("the session has ended: log in again")
	}
	k, err := s.key(ctx, fields[0])
	if err == nil {
		err = k.Usable(s.Now.UTC())
	}
	if err == nil && k.Generation != generation {
		err = errKey("the session was ended by a logout: log in again")
	}
	if err == nil {
		s.used(ctx, k)
	}
	return k, expires, err
}

// Ended reports whether a login that was accepted as k has ended since: a request may last
// for hours. until is the end of its session, zero if the key itself was presented. While
// the store is away no login has ended.
func (s *Service) Ended(ctx context.Context, k fleet.AdminKey, until time.Time) bool {
	now, session := s.Now.UTC(), !until.IsZero()
	if session && !now.Before(until) {
		return true
	}
	current, err := s.key(ctx, k.ID)
	if err != nil {
		return fleet.KindOf(err) == fleet.Unauthorized
	}
	return current.Usable(now) != nil || session && current.Generation != k.Generation
}
