// Package elastic implements package store on Elasticsearch, for users who run several
// servers. Only this package talks to Elasticsearch. It works with any version 8 or 9 under
// any licence: it uses no scripts, no operations by query and only basic field types.
//
// Any number of processes may use the same prefix of index names concurrently. DESIGN.md
// explains the indices.
package elastic

import (
	"sync"
	"sync/atomic"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Store is an open set of indices. It is safe for concurrent use.
type Store struct {
	c *client

	exclusive store.Exclusive
	locks     sync.Map // observedLock by the id of the lock

	heads   headCache
	keys    keyCache
	actions store.ActionCache[string]

	eventBounds atomic.Pointer[bounds] // nil before the first call of Bounds

	actionOrder *order
	eventOrder  *order
	clock       creationClock
	transfers   transfers
}

var _ store.Store = (*Store)(nil)

func (s *Store) Agents() store.Agents   { return agents{s} }
func (s *Store) Actions() store.Actions { return actions{s} }
func (s *Store) Results() store.Results { return results{s} }

// Unreadable returns the documents that lists and scans have left out.
func (s *Store) Unreadable() *store.Unreadables { return &s.c.unreadable }

func (s *Store) Policies() store.Collection[fleet.Policy] {
	return collection[fleet.Policy]{
		s: s, index: indexPolicies, noun: "policy", page: documentsPage,
		head: func(v *fleet.Policy) (string, *int64) { return v.ID, &v.Revision },
		fields: func(v *fleet.Policy) map[string]any {
			return map[string]any{
				"policy_id": v.ID, "revision_idx": v.PolicyRev, "name": text(v.Name), "namespaces": text(v.Namespace),
				"inactivity_timeout": int64(v.InactivityTimeout.Seconds()), "@timestamp": when(v.UpdatedAt),
			}
		},
	}
}

func (s *Store) EnrollmentKeys() store.Collection[fleet.EnrollmentKey] {
	return collection[fleet.EnrollmentKey]{
		s: s, index: indexEnrollmentKeys, noun: "enrollment key", page: documentsPage,
		head: func(v *fleet.EnrollmentKey) (string, *int64) { return v.ID, &v.Revision },
		fields: func(v *fleet.EnrollmentKey) map[string]any {
			return map[string]any{
				"api_key_id": v.ID, "name": text(v.Name), "policy_id": text(v.PolicyID), "active": v.Active,
				"created_at": when(v.CreatedAt), "expire_at": v.ExpireAt,
			}
		},
	}
}

func (s *Store) FleetServerHosts() store.Collection[fleet.FleetServerHost] {
	return small(s, "fleet server host", func(v *fleet.FleetServerHost) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) DownloadSources() store.Collection[fleet.DownloadSource] {
	return small(s, "download source", func(v *fleet.DownloadSource) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) FleetProxies() store.Collection[fleet.FleetProxy] {
	return small(s, "fleet proxy", func(v *fleet.FleetProxy) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Outputs() store.Collection[fleet.Output] {
	return small(s, "output", func(v *fleet.Output) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Packages() store.Collection[fleet.Package] {
	return small(s, "package", func(v *fleet.Package) (string, *int64) { return v.File, &v.Revision })
}

func (s *Store) AdminKeys() store.Collection[fleet.AdminKey] {
	return small(s, "admin key", func(v *fleet.AdminKey) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) PublisherKeys() store.Collection[fleet.PublisherKey] {
	return small(s, "publisher key", func(v *fleet.PublisherKey) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) TrustFiles() store.Collection[fleet.TrustFile] {
	return small(s, "trust file", func(v *fleet.TrustFile) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Previews() store.Collection[fleet.Preview] {
	c := small(s, "preview", func(v *fleet.Preview) (string, *int64) { return v.Hash, &v.Revision })
	c.page = largePage
	return c
}

func (s *Store) AcceptedOrders() store.Collection[fleet.AcceptedOrder] {
	c := small(s, "accepted order", func(v *fleet.AcceptedOrder) (string, *int64) { return v.ID, &v.Revision })
	c.page = largePage
	return c
}

func (s *Store) Leases() store.Collection[fleet.Lease] {
	return small(s, "lease", func(v *fleet.Lease) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) RolloutGroups() store.Collection[fleet.RolloutGroup] {
	return small(s, "rollout group", func(v *fleet.RolloutGroup) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) DeclaredFleets() store.Collection[fleet.DeclaredFleet] {
	return small(s, "declared fleet", func(v *fleet.DeclaredFleet) (string, *int64) { return v.Name, &v.Revision })
}

func (s *Store) PolicyLocks() store.Collection[fleet.PolicyLock] {
	return small(s, "policy lock", func(v *fleet.PolicyLock) (string, *int64) { return v.Key(), &v.Revision })
}

func (s *Store) ExposureRules() store.Collection[fleet.ExposureRule] {
	return small(s, "exposure rule", func(v *fleet.ExposureRule) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Freezes() store.Collection[fleet.Freeze] {
	return small(s, "freeze", func(v *fleet.Freeze) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Incidents() store.Collection[fleet.Incident] {
	return small(s, "incident", func(v *fleet.Incident) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Webhooks() store.Collection[fleet.Webhook] {
	return small(s, "webhook", func(v *fleet.Webhook) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) DeadLetters() store.Collection[fleet.DeadLetter] {
	return small(s, "dead letter", func(v *fleet.DeadLetter) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Uploads() store.Collection[fleet.Upload] {
	return small(s, "upload", func(v *fleet.Upload) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Servers() store.Collection[fleet.Server] {
	return small(s, "server", func(v *fleet.Server) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) ServerUpgrades() store.Collection[fleet.ServerUpgrade] {
	return small(s, "server upgrade", func(v *fleet.ServerUpgrade) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Views() store.Collection[fleet.View] {
	return small(s, "view", func(v *fleet.View) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) AgentOrders() store.Collection[fleet.AgentOrder] {
	c := small(s, "agent order", func(v *fleet.AgentOrder) (string, *int64) { return v.ID, &v.Revision })
	c.page = largePage
	return c
}

func (s *Store) Samples() store.Collection[fleet.Sample] {
	return small(s, "sample", func(v *fleet.Sample) (string, *int64) { return v.ID, &v.Revision })
}

func (s *Store) Rollouts() store.Rollouts { return newRollouts(s) }
func (s *Store) Targets() store.Targets   { return targets{s} }
func (s *Store) Audit() store.Audit       { return audit{s} }
func (s *Store) History() store.History   { return history{s} }
func (s *Store) Events() store.Events     { return events{s} }
func (s *Store) Settings() store.Settings { return settings{s} }

func (s *Store) PackageData() store.PackageData { return packageData{s} }

// Schema returns the version of the mappings, which Open has brought the indices to.
func (s *Store) Schema() int { return schemaVersion }

// NewestSchema returns the version of the mappings that this program writes.
func NewestSchema() int { return schemaVersion }

// OnAgentChange returns false: other servers may write to the indices.
func (s *Store) OnAgentChange(func([]store.AgentChange)) bool { return false }

// Close does not interrupt running calls. Later calls fail with Unavailable.
func (s *Store) Close() error {
	s.c.close()
	return nil
}
