package access

import (
	"context"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
)

const (
	// MaxGrace bounds how long a rotated key stays usable. A rotation is to end a secret; a
	// week suffices to replace it everywhere, weekends included.
	MaxGrace = 7 * 24 * time.Hour
	// usedEvery is how often it is written that a key is in use. A write for each request
	// would make every read of the admin API a write of the store; a minute suffices to
	// tell which keys are in use.
	usedEvery = time.Minute
)

// Keys returns a page of the admin keys, and how many there are.
func (s *Service) Keys(ctx context.Context, offset, limit int) ([]fleet.AdminKey, int, error) {
	return s.Store.AdminKeys().List(ctx, offset, limit)
}

// CreateKey creates an admin key, whose name must not look like that of another usable key, or of
// the server itself: it shows who did something. Only the hash of the secret is stored, so the credential cannot
// be shown again. A lifetime of 0 means that the key does not expire.
func (s *Service) CreateKey(ctx context.Context, name string, lifetime time.Duration, actor string) (fleet.AdminKey, fleet.Credential, error) {
	name, err := checkName("body.name", name)
	if err != nil {
		return fleet.AdminKey{}, fleet.Credential{}, err
	}
	if lifetime < 0 {
		return fleet.AdminKey{}, fleet.Credential{}, fleet.FieldError("body.expiration", "is in the past: leave it out for a key that does not expire")
	}
	var cred fleet.Credential
	key, err := store.Exclusively(ctx, s.Store, exclusive, func(ctx context.Context) (k fleet.AdminKey, err error) {
		keys, _, err := s.Store.AdminKeys().List(ctx, 0, 0)
		if err != nil {
			return k, err
		}
		for _, k := range keys {
			if k.Usable(s.Now.UTC()) == nil && looksLike(k.Name, name) {
				return k, nameTaken(k, name)
			}
		}
		k, cred, err = s.create(ctx, fleet.NewCredential(), name, lifetime, actor)
		return k, err
	})
	if err != nil {
		return fleet.AdminKey{}, fleet.Credential{}, err
	}
	return key, cred, nil
}

// exclusive is what the names of keys, and that one is left, are checked and written under.
const exclusive = "admin keys"

func (s *Service) create(ctx context.Context, cred fleet.Credential, name string, lifetime time.Duration, actor string) (fleet.AdminKey, fleet.Credential, error) {
	k := fleet.AdminKey{ID: cred.ID, Hash: cred.Hash(), Name: name, Active: true, CreatedAt: s.Now.UTC(), CreatedBy: actor}
	if lifetime > 0 {
		at := k.CreatedAt.Add(lifetime)
		k.ExpireAt = &at
	}
	err := audit.Record(ctx, s.Store.Audit(), k.CreatedAt, fleet.AuditEntry{Actor: actor, Verb: "admin_key.create", Subject: k.ID, Text: "created the admin key " + k.Name})
	if err != nil {
		return k, cred, err
	}
	if err := s.Store.AdminKeys().Create(ctx, k); err != nil {
		return k, cred, err
	}
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventKeyCreated, Subject: k.ID, Actor: actor, Data: event.Data(map[string]string{"admin": k.Name})})
	return k, cred, nil
}

// RevokeKey revokes an admin key and ends its sessions. The last key that lasts cannot be
// revoked, since then nobody could make another one over the network.
func (s *Service) RevokeKey(ctx context.Context, id, actor string) error {
	return s.Store.Exclusively(ctx, exclusive, func(ctx context.Context) error { return s.revokeUnlessLast(ctx, id, actor) })
}

func (s *Service) revokeUnlessLast(ctx context.Context, id, actor string) error {
	keys, _, err := s.Store.AdminKeys().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	if !s.otherLasts(keys, id) {
		return fleet.Errorf(fleet.Conflict, "no other admin key is usable for a day, so revoking this one would lock everybody out: rotate it for another secret, or create another key first")
	}
	return s.revoke(ctx, id, actor)
}

// lasting is how long a key is usable that lets another one be revoked: in a day somebody notices
// that no other is left.
const lasting = 24 * time.Hour

// otherLasts reports whether one of the keys besides id is usable for as long as lasting.
func (s *Service) otherLasts(keys []fleet.AdminKey, id string) bool {
	now := s.Now.UTC()
	return slices.ContainsFunc(keys, func(k fleet.AdminKey) bool {
		return k.ID != id && k.Usable(now) == nil && k.Usable(now.Add(lasting)) == nil
	})
}

func (s *Service) revoke(ctx context.Context, id, actor string) error {
	err := audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{Actor: actor, Verb: "admin_key.revoke", Subject: id, Text: "revoked the admin key " + id})
	if err != nil {
		return err
	}
	was := false
	k, err := s.change(ctx, id, func(k *fleet.AdminKey) {
		was = k.Active
		if k.Active {
			k.Active = false
			k.Generation++
		}
	})
	if err == nil && was {
		s.Events.Publish(ctx, fleet.Event{Type: fleet.EventKeyRevoked, Subject: id, Actor: actor, Data: event.Data(map[string]string{"admin": k.Name})})
	}
	return err
}

// RotateKey creates a key with the name of the key id, and revokes that one, at once or
// after the grace period. Without a lifetime the new key has that of the old one. Only the key
// itself, by, is rotated: whoever gets the new secret acts under its name.
func (s *Service) RotateKey(ctx context.Context, id string, lifetime, grace time.Duration, by fleet.AdminKey) (fleet.AdminKey, fleet.Credential, error) {
	actor := by.Name
	switch {
	case lifetime < 0:
		return fleet.AdminKey{}, fleet.Credential{}, fleet.FieldError("body.expiration", "is in the past: leave it out for the lifetime of the old key")
	case grace < 0 || grace > MaxGrace:
		return fleet.AdminKey{}, fleet.Credential{}, fleet.FieldError("body.grace", "is %s, want 0 to %s", grace, MaxGrace)
	}
	old, err := s.Store.AdminKeys().Get(ctx, id)
	if err != nil {
		return fleet.AdminKey{}, fleet.Credential{}, err
	}
	now := s.Now.UTC()
	if err := old.Usable(now); err != nil {
		return fleet.AdminKey{}, fleet.Credential{}, fleet.Errorf(fleet.Conflict, "%v: create another key instead", err)
	}
	if by.ID != id {
		return fleet.AdminKey{}, fleet.Credential{}, fleet.Errorf(fleet.Forbidden, "the key %s is %s's, and only its owner rotates it, with the key itself: whoever gets the new secret acts under that name. Revoke it, and create a key of another name", id, old.Name)
	}
	if own := reservedBy(old.Name); own != "" {
		return fleet.AdminKey{}, fleet.Credential{}, fleet.Errorf(fleet.Conflict, "the key %s has the name %q, which is the server's own: create a key of another name, and revoke this one", id, old.Name)
	}
	if lifetime == 0 && old.ExpireAt != nil {
		lifetime = old.ExpireAt.Sub(old.CreatedAt)
	}
	if lifetime > 0 && lifetime < lasting && old.Usable(now.Add(lasting)) == nil {
		keys, _, err := s.Store.AdminKeys().List(ctx, 0, 0)
		if err != nil {
			return fleet.AdminKey{}, fleet.Credential{}, err
		}
		if !s.otherLasts(keys, id) {
			return fleet.AdminKey{}, fleet.Credential{}, fleet.FieldError("body.expiration", "is less than a day, and no other admin key is usable for as long: everybody would be locked out")
		}
	}
	k, cred, err := s.create(ctx, fleet.NewCredential(), old.Name, lifetime, actor)
	if err != nil {
		return fleet.AdminKey{}, fleet.Credential{}, err
	}
	if grace == 0 {
		err = s.revoke(ctx, id, actor)
	} else {
		_, err = s.change(ctx, id, func(k *fleet.AdminKey) {
			if end := now.Add(grace); k.ExpireAt == nil || end.Before(*k.ExpireAt) {
				k.ExpireAt = &end
			}
		})
	}
	if err != nil {
		// Nobody would have the secret of the new key.
		_ = s.Store.AdminKeys().Delete(context.WithoutCancel(ctx), k.ID)
		return fleet.AdminKey{}, fleet.Credential{}, err
	}
	return k, cred, nil
}

// EndSessions ends all sessions of a key, on all servers.
func (s *Service) EndSessions(ctx context.Context, id string) error {
	_, err := s.change(ctx, id, func(k *fleet.AdminKey) { k.Generation++ })
	return err
}

// SeeFailures records that the owner of a key has seen the failures of upgrades that ended until
// a time. What has been seen stays seen.
func (s *Service) SeeFailures(ctx context.Context, id string, until time.Time) error {
	_, err := s.change(ctx, id, func(k *fleet.AdminKey) {
		if k.FailuresSeenAt == nil || until.After(*k.FailuresSeenAt) {
			k.FailuresSeenAt = &until
		}
	})
	return err
}

// change applies f to the stored key.
func (s *Service) change(ctx context.Context, id string, f func(*fleet.AdminKey)) (fleet.AdminKey, error) {
	k, _, err := store.Change(ctx, s.Store.AdminKeys(), id, func(k fleet.AdminKey) (fleet.AdminKey, error) {
		f(&k)
		return k, nil
	})
	return k, err
}

// seenKey is a key that has authenticated on this server.
type seenKey struct {
	recorded time.Time // when its use was last written
	hash     string
}

// hasSeen reports whether a key has authenticated on this server, and the hash that it had.
func (s *Service) hasSeen(id string) (hash string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.seen[id]
	return k.hash, ok
}

// used records that k is in use. A conflict means that somebody has changed the key, and
// any other failure that the store is away; the next minute tries again.
func (s *Service) used(ctx context.Context, k fleet.AdminKey) {
	now := s.Now.UTC()
	s.mu.Lock()
	recent := now.Sub(s.seen[k.ID].recorded) < usedEvery
	if !recent {
		s.seen[k.ID] = seenKey{now, k.Hash}
	}
	s.mu.Unlock()
	if recent || k.LastUsedAt != nil && now.Sub(*k.LastUsedAt) < usedEvery {
		return
	}
	k.LastUsedAt = &now
	_, _ = s.Store.AdminKeys().Update(ctx, k)
}
