// Package policy manages the policies that agents belong to. A policy is a name and the
// time after which a silent agent counts as inactive.
package policy

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/audit"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Service creates and lists policies.
type Service struct {
	Store  store.Store
	Events *event.Stream
	Now    clock.Clock
	// Changed is called after a policy was written; it may be nil.
	Changed func()
}

// changed reports that a policy was written.
func (s *Service) changed() {
	if s.Changed != nil {
		s.Changed()
	}
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Create stores a policy. An empty id is replaced by a random one.
func (s *Service) Create(ctx context.Context, p fleet.Policy, actor string) (fleet.Policy, error) {
	p.Name = strings.TrimSpace(p.Name)
	switch {
	case p.Name == "":
		return p, fleet.FieldError("body.name", "is missing: give the policy a name")
	case p.Namespace == "":
		return p, fleet.FieldError("body.namespace", `is missing: say "default"`)
	case p.InactivityTimeout < 0:
		return p, fleet.FieldError("body.inactivity_timeout", "is below 0")
	case p.ID != "" && !idForm.MatchString(p.ID):
		return p, fleet.FieldError("body.id", "is %q, want up to 100 letters, digits, '.', '_' or '-'", p.ID)
	}
	if p.ID == "" {
		p.ID = fleet.NewID()
	}
	all, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return p, err
	}
	for _, other := range all {
		if other.Name == p.Name {
			return p, fleet.Errorf(fleet.Conflict, "a policy named %q exists (%s): choose another name", p.Name, other.ID)
		}
	}
	p.PolicyRev, p.UpdatedAt, p.UpdatedBy = 1, s.Now.UTC(), actor
	err = audit.Record(ctx, s.Store.Audit(), p.UpdatedAt, fleet.AuditEntry{
		Actor: actor, Verb: "policy.create", Subject: p.ID, Text: "created the policy " + p.Name,
	})
	if err != nil {
		return p, err
	}
	if err := s.Store.Policies().Create(ctx, p); err != nil {
		return p, err
	}
	s.changed()
	s.Events.Publish(ctx, fleet.Event{Type: fleet.EventPolicyCreated, Subject: p.ID, Actor: actor, Data: event.Data(map[string]string{"name": p.Name})})
	return p, nil
}

// EnsureDefault creates the policy that hosts enrol into by default.
func (s *Service) EnsureDefault(ctx context.Context) error {
	_, err := s.Store.Policies().Get(ctx, fleet.DefaultPolicyID)
	if err == nil || fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	err = s.Store.Policies().Create(ctx, fleet.Policy{
		ID: fleet.DefaultPolicyID, Name: "Default policy", Namespace: "default", PolicyRev: 1,
		InactivityTimeout: fleet.DefaultInactivityTimeout, UpdatedAt: s.Now.UTC(), UpdatedBy: "muster",
	})
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		return nil // another server created it
	}
	s.changed()
	return err
}

// Timeouts returns the inactivity timeouts by policy.
func (s *Service) Timeouts(ctx context.Context) (map[string]time.Duration, error) {
	all, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	m := make(map[string]time.Duration, len(all))
	for _, p := range all {
		m[p.ID] = p.InactivityTimeout
	}
	return m, nil
}
