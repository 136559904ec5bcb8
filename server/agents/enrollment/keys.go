package enrollment

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
)

// CreateKey creates an enrollment key for a policy, with the rules and messages of Kibana: the
// key's own name is followed by its id, and a policy has one key of a name, revoked or not. A
// lifetime of 0 means no expiry.
func (s *Service) CreateKey(ctx context.Context, name, policyID string, lifetime time.Duration, actor string) (fleet.EnrollmentKey, fleet.Credential, error) {
	if _, err := s.Store.Policies().Get(ctx, policyID); err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			err = fleet.Errorf(fleet.NotFound, "Agent policy %q not found", policyID)
		}
		return fleet.EnrollmentKey{}, fleet.Credential{}, err
	}
	if name == "" {
		return s.create(ctx, name, policyID, lifetime, actor)
	}
	var cred fleet.Credential
	key, err := store.Exclusively(ctx, s.Store, "enrollment keys", func(ctx context.Context) (k fleet.EnrollmentKey, err error) {
		keys, _, err := s.Store.EnrollmentKeys().List(ctx, 0, 0)
		if err != nil {
			return k, err
		}
		for _, k := range keys {
			if k.PolicyID == policyID && k.Name == fullName(name, k.ID) {
				return k, fleet.Errorf(fleet.Conflict, "An enrollment key named %s already exists for agent policy %s", name, policyID)
			}
		}
		k, cred, err = s.create(ctx, name, policyID, lifetime, actor)
		return k, err
	})
	return key, cred, err
}

// FirstKey creates the first key of an installation.
func (s *Service) FirstKey(ctx context.Context) (fleet.Credential, error) {
	_, cred, err := s.create(ctx, "first key", fleet.DefaultPolicyID, 0, fleet.System)
	return cred, err
}

// defaultKeyName is that of Kibana's. Terraform's data source and the container of Elastic's agent
// look for the key of a policy by it.
const defaultKeyName = "Default"

// CreateDefaultKey makes the default key of a policy if DefaultKeys is set, unless the policy has
// had one: a key that was revoked is not replaced.
func (s *Service) CreateDefaultKey(ctx context.Context, policyID, actor string) error {
	if !s.DefaultKeys {
		return nil
	}
	_, _, err := s.CreateKey(ctx, defaultKeyName, policyID, 0, actor)
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		return nil
	}
	return err
}

// CreateDefaultKeys makes the default keys of the policies that were created without one.
func (s *Service) CreateDefaultKeys(ctx context.Context) error {
	if !s.DefaultKeys {
		return nil
	}
	policies, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, p := range policies {
		if err := s.CreateDefaultKey(ctx, p.ID, fleet.System); err != nil && fleet.KindOf(err) != fleet.NotFound { // deleted meanwhile
			return fmt.Errorf("the default enrollment key of the policy %s: %w", p.ID, err)
		}
	}
	return nil
}

// fullName is the stored name of a key.
func fullName(name, id string) string {
	if name == "" {
		return id
	}
	return name + " (" + id + ")"
}

func (s *Service) create(ctx context.Context, name, policyID string, lifetime time.Duration, actor string) (fleet.EnrollmentKey, fleet.Credential, error) {
	cred := fleet.NewCredential()
	cred.ID = uuid.NewString() // clients of Kibana recognise the end of a name by it
	k := fleet.EnrollmentKey{
		ID: cred.ID, Hash: cred.Hash(), Sealed: s.Sealer.Seal(ownerOf(cred.ID), cred.Secret), Name: fullName(name, cred.ID), PolicyID: policyID,
		Active: true, CreatedAt: s.Now.UTC(),
	}
	if lifetime > 0 {
		at := k.CreatedAt.Add(lifetime)
		k.ExpireAt = &at
	}
	err := audit.Record(ctx, s.Store.Audit(), k.CreatedAt, fleet.AuditEntry{
		Actor: actor, Verb: "enrollment_key.create", Subject: k.ID, Text: "created the enrollment key " + k.Name + " for the policy " + policyID,
	})
	if err != nil {
		return fleet.EnrollmentKey{}, fleet.Credential{}, err
	}
	if err := s.Store.EnrollmentKeys().Create(ctx, k); err != nil {
		return fleet.EnrollmentKey{}, fleet.Credential{}, err
	}
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventKeyCreated, Subject: k.ID, Actor: actor, Data: event.Data(map[string]string{"policy_id": policyID, "name": k.Name})})
	return k, cred, nil
}

// ownerOf names the owner of a sealed secret.
func ownerOf(id string) string { return "enrollment key " + id }

// Reveal returns the credential of a key. ok is false if it cannot be shown again: its secret
// is not stored, or this server lacks the key that decrypts it.
func (s *Service) Reveal(k fleet.EnrollmentKey) (cred fleet.Credential, ok bool) {
	secret, ok := s.Sealer.Open(ownerOf(k.ID), k.Sealed)
	return fleet.Credential{ID: k.ID, Secret: secret}, ok
}

// Keys returns a page of the keys that match a query, and how many do. A query finds a key by its
// credential, too, if it can be shown.
func (s *Service) Keys(ctx context.Context, f kql.Filter, offset, limit int) ([]fleet.EnrollmentKey, int, error) {
	if _, everything := f.(kql.Everything); everything {
		return s.Store.EnrollmentKeys().List(ctx, offset, limit)
	}
	list, err := store.Matching(ctx, s.Store.EnrollmentKeys(), f, func(k *fleet.EnrollmentKey, f *kql.Field) []any {
		if f.Name != fleet.FieldAPIKey {
			return k.Values(f)
		}
		if cred, ok := s.Reveal(*k); ok {
			return []any{cred.Encode()}
		}
		return nil
	})
	return fleet.Part(list, offset, limit), len(list), err
}

// GetKey returns a key. Its error is Kibana's.
func (s *Service) GetKey(ctx context.Context, id string) (fleet.EnrollmentKey, error) {
	k, err := s.Store.EnrollmentKeys().Get(ctx, id)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		err = fleet.Errorf(fleet.NotFound, "Enrollment api key %s not found", id)
	}
	return k, err
}

// RevokeKey revokes a key. Agents that enrolled with it stay enrolled.
func (s *Service) RevokeKey(ctx context.Context, id, actor string) error {
	_, revoked, err := store.Change(ctx, store.WithGet(s.Store.EnrollmentKeys(), s.GetKey), id, func(k fleet.EnrollmentKey) (fleet.EnrollmentKey, error) {
		k.Active = false
		return k, nil
	}, func(_, k fleet.EnrollmentKey) error {
		return audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{
			Actor: actor, Verb: "enrollment_key.revoke", Subject: id, Text: "revoked the enrollment key " + k.Name,
		})
	})
	if revoked {
		s.Events.Publish(ctx, fleet.Event{Type: fleet.EventKeyRevoked, Subject: id, Actor: actor})
	}
	return err
}

// DeleteKey revokes a key by removing it.
func (s *Service) DeleteKey(ctx context.Context, id, actor string) error {
	k, err := s.GetKey(ctx, id)
	if err != nil {
		return err
	}
	err = audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{
		Actor: actor, Verb: "enrollment_key.delete", Subject: id, Text: "deleted the enrollment key " + k.Name,
	})
	if err != nil {
		return err
	}
	if err := s.Store.EnrollmentKeys().Delete(ctx, id); err != nil {
		return err
	}
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventKeyRevoked, Subject: id, Actor: actor})
	return nil
}
