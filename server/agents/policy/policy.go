// Package policy manages the policies that agents belong to: their settings, what of them
// agents get, and which versions they are upgraded to.
package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/agents/infra"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Service creates, changes, copies and deletes policies.
type Service struct {
	Store  store.Store
	Events *event.Stream
	// Keys makes the default enrollment key of a policy that is created, and revokes the keys of
	// one that is deleted. It may be nil.
	Keys Keys
	// Objects are what agents' policies are made from besides themselves.
	Objects infra.Objects
	// Removals bounds how many agents are sent to other servers; nil: any number may be.
	Removals Removals
	// Changed is called after a policy was written; it may be nil.
	Changed func()
	Now     clock.Clock
}

// Keys makes and revokes enrollment keys.
type Keys interface {
	// CreateDefaultKey makes the default key of a policy if policies have one, unless it exists.
	CreateDefaultKey(ctx context.Context, policyID, actor string) error
	RevokeKey(ctx context.Context, id, actor string) error
}

// errNotFound is Kibana's error for a policy that does not exist.
func errNotFound() error { return fleet.Errorf(fleet.NotFound, "Agent policy not found") }

func (s *Service) changed() {
	if s.Changed != nil {
		s.Changed()
	}
}

// Get returns a policy.
func (s *Service) Get(ctx context.Context, id string) (fleet.Policy, error) {
	p, err := s.Store.Policies().Get(ctx, id)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		err = errNotFound()
	}
	return p, err
}

// List returns the policies that match a query.
func (s *Service) List(ctx context.Context, f kql.Filter) ([]fleet.Policy, error) {
	return store.Matching(ctx, s.Store.Policies(), f, (*fleet.Policy).Values)
}

// ByID returns all policies by their ids.
func (s *Service) ByID(ctx context.Context) (map[string]fleet.Policy, error) {
	all, _, err := s.Store.Policies().List(ctx, 0, 0)
	byID := make(map[string]fleet.Policy, len(all))
	for _, p := range all {
		byID[p.ID] = p
	}
	return byID, err
}

// Create stores a policy. An empty id is replaced by a random one.
func (s *Service) Create(ctx context.Context, p fleet.Policy, actor string) (fleet.Policy, error) {
	return s.create(ctx, p, fleet.Policy{}, "created the policy "+strings.TrimSpace(p.Name), actor)
}

// create stores a policy, which may be a copy of base.
func (s *Service) create(ctx context.Context, p, base fleet.Policy, text, actor string) (fleet.Policy, error) {
	p.Name = strings.TrimSpace(p.Name)
	if err := checkPolicy(&p); err != nil {
		return p, err
	}
	if err := s.checkPublished(ctx, &base, &p); err != nil {
		return p, err
	}
	if p.ID == "" {
		p.ID = fleet.NewID()
	}
	p.PolicyRev, p.Revisions = 0, nil
	p.NextRevision(actor, s.Now.UTC())
	err := s.Store.Exclusively(ctx, exclusive, func(ctx context.Context) error {
		if err := s.checkName(ctx, &p); err != nil {
			return err
		}
		if err := s.record(ctx, &p, "policy.create", text, nil); err != nil {
			return err
		}
		if err := s.Store.Policies().Create(ctx, p); err != nil {
			return err
		}
		return s.takeDefault(ctx, &p)
	})
	if err != nil {
		return p, err
	}
	s.publish(ctx, fleet.EventPolicyCreated, &p)
	if s.Keys != nil {
		if err := s.Keys.CreateDefaultKey(ctx, p.ID, actor); err != nil {
			return p, fmt.Errorf("the policy %s was created, and its default enrollment key was not: %w", p.ID, err)
		}
	}
	return p, nil
}

// exclusive is what policies' names and the flag of the default are checked and written under.
const exclusive = "agent policies"

// takeDefault takes the flag of the default from the other policies if p has it. If it is
// interrupted, EnsureDefault completes it.
func (s *Service) takeDefault(ctx context.Context, p *fleet.Policy) error {
	if !p.Default {
		return nil
	}
	all, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.ID != p.ID && other.Default {
			if err := s.setDefault(ctx, other.ID, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// setDefault sets the flag of the default. Agents do not get it, so the revision stays.
func (s *Service) setDefault(ctx context.Context, id string, to bool) error {
	_, _, err := store.Change(ctx, s.Store.Policies(), id, func(p fleet.Policy) (fleet.Policy, error) {
		p.Default = to
		return p, nil
	})
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return nil
	}
	return err
}

// Copy creates a policy with the settings of another, as Kibana does: without its required
// versions, so that a copy begins no upgrades.
func (s *Service) Copy(ctx context.Context, id, name string, description *string, actor string) (fleet.Policy, error) {
	base, err := s.Get(ctx, id)
	if err != nil {
		return base, err
	}
	p := base
	p.ID, p.Name, p.Description = "", name, ""
	p.Components = withoutInForce(base.Components)
	p.RequiredVersions, p.Managed, p.Default, p.DefaultFleetServer, p.HasFleetServer, p.SpaceIDs, p.Revision = nil, false, false, false, nil, nil, 0
	if description != nil {
		p.Description = *description
	}
	return s.create(ctx, p, base, fmt.Sprintf("copied the policy %s to %s", base.Name, strings.TrimSpace(name)), actor)
}

// withoutInForce returns components of which no version is in force: agents of another policy
// run what they have until a rollout in lockstep.
func withoutInForce(list []agentapi.PolicyComponent) []agentapi.PolicyComponent {
	list = slices.Clone(list)
	for i := range list {
		list[i].InForce = nil
	}
	return list
}

// Change is how a policy is changed.
type Change struct {
	// Edit sets the new values. It returns the names of the fields that it changed, and may
	// be called several times.
	Edit func(p *fleet.Policy) (changed []string, err error)
	// Force changes even a managed policy.
	Force bool
	// Quiet leaves the revision as it is, so that agents do not learn of the change.
	Quiet bool
	// OverrideLimit changes the policy even if more agents follow it to another server than the
	// removal limit permits.
	OverrideLimit bool
}

// Update changes a policy. Its revision grows, also if nothing else changes.
func (s *Service) Update(ctx context.Context, id string, c Change, actor string) (fleet.Policy, error) {
	p, err := store.Exclusively(ctx, s.Store, exclusive, func(ctx context.Context) (fleet.Policy, error) { return s.update(ctx, id, c, actor) })
	if err == nil {
		s.publish(ctx, fleet.EventPolicyUpdated, &p)
	}
	return p, err
}

func (s *Service) update(ctx context.Context, id string, c Change, actor string) (fleet.Policy, error) {
	var fields []string
	p, _, err := store.Change(ctx, store.WithGet(s.Store.Policies(), s.Get), id, func(p fleet.Policy) (fleet.Policy, error) {
		old := p
		var err error
		if fields, err = c.Edit(&p); err != nil {
			return p, err
		}
		p.Name = strings.TrimSpace(p.Name)
		if c.Quiet {
			p.UpdatedAt, p.UpdatedBy = s.Now.UTC(), actor
		} else {
			p.NextRevision(actor, s.Now.UTC())
		}
		return p, s.checkChange(ctx, &old, &p, fields, c.Force)
	}, func(old, p fleet.Policy) error {
		if err := s.allowChange(ctx, &old, &p, c.OverrideLimit, actor); err != nil {
			return err
		}
		return s.record(ctx, &p, "policy.update", fmt.Sprintf("changed the policy %s: %s", p.Name, textOf(fields)), audit.Changes(old, p))
	})
	if err != nil {
		return p, err
	}
	return p, s.takeDefault(ctx, &p)
}

func textOf(fields []string) string {
	if len(fields) == 0 {
		return "nothing, but its agents get it again"
	}
	return strings.Join(fields, ", ")
}

// checkChange returns an error if a policy may not be changed so.
func (s *Service) checkChange(ctx context.Context, old, p *fleet.Policy, fields []string, force bool) error {
	if err := checkPolicy(p); err != nil {
		return err
	}
	if err := s.checkPublished(ctx, old, p); err != nil {
		return err
	}
	if p.Name != old.Name {
		if err := s.checkName(ctx, p); err != nil {
			return err
		}
	}
	if old.Default && !p.Default {
		return fleet.Errorf(fleet.Invalid, "The policy %s is the default: make another policy the default instead of clearing is_default", p.ID)
	}
	if old.Managed && !force && len(fields) > 0 {
		return fleet.Errorf(fleet.Invalid, "Cannot update %s: the policy is managed (is_managed), so send force to change it", fields[0])
	}
	return nil
}

// checkName refuses a name that another policy has.
func (s *Service) checkName(ctx context.Context, p *fleet.Policy) error {
	all, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Name == p.Name && other.ID != p.ID {
			return fleet.Errorf(fleet.Conflict, "Agent Policy '%s' already exists with name '%s'", other.ID, p.Name)
		}
	}
	return nil
}

// Delete removes a policy and revokes its enrollment keys. A policy with agents is kept,
// also if force is set, which is for managed policies.
func (s *Service) Delete(ctx context.Context, id string, force bool, actor string) (fleet.Policy, error) {
	p, err := s.Get(ctx, id)
	if err != nil {
		return p, err
	}
	switch {
	case p.Managed && !force:
		return p, fleet.Errorf(fleet.Invalid, "Cannot delete hosted agent policy %s: it is managed (is_managed), so send force to delete it", id)
	case p.Default || p.ID == fleet.DefaultPolicyID: // the latter would come back at the next start
		return p, fleet.Errorf(fleet.Invalid, "The default agent policy cannot be deleted")
	}
	agents, err := s.CountAgents(ctx, id)
	if err != nil {
		return p, err
	}
	if agents > 0 {
		return p, fleet.Errorf(fleet.Invalid, "Cannot delete an agent policy that is assigned to any active or inactive agents")
	}
	keys, _, err := s.Store.EnrollmentKeys().List(ctx, 0, 0)
	if err != nil {
		return p, err
	}
	p.UpdatedBy = actor
	if err := s.record(ctx, &p, "policy.delete", "deleted the policy "+p.Name, nil); err != nil {
		return p, err
	}
	// Before the policy: deleting again completes what a crash interrupted, and no host
	// enrols into a policy that is gone.
	for _, k := range keys {
		if k.PolicyID == id && k.Active {
			if err := s.Keys.RevokeKey(ctx, k.ID, actor); err != nil {
				return p, err
			}
		}
	}
	if err := s.Store.Policies().Delete(ctx, id); err != nil {
		return p, err
	}
	s.publish(ctx, fleet.EventPolicyDeleted, &p)
	return p, nil
}

// CountAgents returns how many agents, without unenrolled ones, a policy has.
func (s *Service) CountAgents(ctx context.Context, id string) (int, error) {
	// An empty page has the total.
	_, n, err := s.Store.Agents().List(ctx, store.AgentQuery{AgentFilter: store.AgentFilter{PolicyID: id, ActiveOnly: true}})
	return n, err
}

// AgentCounts returns how many agents that have not left each policy has, in one pass.
func (s *Service) AgentCounts(ctx context.Context) (map[string]int, error) {
	n := map[string]int{}
	return n, s.Store.Agents().Census(ctx, func(a fleet.Census) { n[a.PolicyID]++ })
}

// Bump increases the revision of the policies that use a stored object which has changed,
// so that their agents get it.
func (s *Service) Bump(ctx context.Context, uses func(fleet.Policy) bool, actor string) error {
	all, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, p := range all {
		if !uses(p) {
			continue
		}
		next, changed, err := store.Change(ctx, s.Store.Policies(), p.ID, func(p fleet.Policy) (fleet.Policy, error) {
			if uses(p) {
				p.NextRevision(actor, s.Now.UTC())
			}
			return p, nil
		})
		if err != nil && fleet.KindOf(err) != fleet.NotFound { // NotFound: deleted meanwhile
			return err
		}
		if changed {
			s.publish(ctx, fleet.EventPolicyUpdated, &next)
		}
	}
	return nil
}

// maxRecorded bounds the settings in an audit entry, which lists read as a whole. Those of
// fifty components without long variables have about a third of it.
const maxRecorded = 32 << 10

// recorded are the settings of a policy in the audit trail, so that a reader can compare its
// revisions: the policy itself holds only the newest.
type recorded struct {
	Revision          int64                        `json:"revision"`
	Name              string                       `json:"name"`
	Description       string                       `json:"description,omitempty"`
	InactivityTimeout int64                        `json:"inactivity_timeout"` // seconds
	UnenrollTimeout   *int64                       `json:"unenroll_timeout,omitempty"`
	RequiredVersions  []fleet.RequiredVersion      `json:"required_versions,omitempty"`
	UpgradeWindows    []fleet.Window               `json:"upgrade_windows,omitempty"`
	Components        []agentapi.PolicyComponent   `json:"components,omitempty"`
	Variables         map[string]map[string]string `json:"variables,omitempty"`
	Changes           []audit.FieldChange          `json:"changes,omitempty"`
}

func (s *Service) record(ctx context.Context, p *fleet.Policy, verb, text string, changes []audit.FieldChange) error {
	data := event.Data(recorded{
		p.PolicyRev, p.Name, p.Description, int64(p.InactivityTimeout / time.Second), p.UnenrollTimeout, p.RequiredVersions, p.UpgradeWindows, p.Components, p.ComponentVariables,
		changes,
	})
	if len(data) > maxRecorded {
		data = event.Data(struct {
			Revision int64               `json:"revision"`
			Changes  []audit.FieldChange `json:"changes,omitempty"`
		}{p.PolicyRev, changes})
	}
	return audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{Actor: p.UpdatedBy, Verb: verb, Subject: p.ID, Text: text, Data: data})
}

// publish signals the feed, and publishes the event of a change.
func (s *Service) publish(ctx context.Context, typ string, p *fleet.Policy) {
	s.changed()
	s.Events.Publish(ctx, fleet.Event{
		Type: typ, Subject: p.ID, Actor: p.UpdatedBy, Data: event.Data(map[string]any{"name": p.Name, "revision": p.PolicyRev}),
	})
}

// EnsureDefault creates the policy that hosts enrol into first, and makes sure that one policy is
// the default: of several, which a server that died while it changed the default leaves, the one
// that was changed last.
func (s *Service) EnsureDefault(ctx context.Context) error {
	if err := s.ensureFirst(ctx); err != nil {
		return err
	}
	return s.Store.Exclusively(ctx, exclusive, func(ctx context.Context) error {
		all, _, err := s.Store.Policies().List(ctx, 0, 0)
		if err != nil {
			return err
		}
		var chosen *fleet.Policy
		for i, p := range all {
			if p.Default && (chosen == nil || p.UpdatedAt.After(chosen.UpdatedAt)) {
				chosen = &all[i]
			}
		}
		if chosen == nil {
			return nil
		}
		return s.takeDefault(ctx, chosen)
	})
}

func (s *Service) ensureFirst(ctx context.Context) error {
	_, err := s.Store.Policies().Get(ctx, fleet.DefaultPolicyID)
	if err == nil || fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	p := fleet.Policy{
		ID: fleet.DefaultPolicyID, Name: "Default policy", Namespace: "default", Default: true, InactivityTimeout: fleet.DefaultInactivityTimeout,
	}
	p.NextRevision(fleet.System, s.Now.UTC())
	err = s.Store.Policies().Create(ctx, p)
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
