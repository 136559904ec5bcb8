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

	"github.com/muster-fleet/muster/server/store"
)

// Store is an open set of indices. It is safe for concurrent use.
type Store struct {
	store.Typed

	c *client

	exclusive store.Exclusive
	locks     sync.Map // observedLock by the id of the lock

	heads   headCache
	keys    keyCache
	actions store.ActionCache[string]

	eventBounds atomic.Pointer[bounds] // nil before the first call of Bounds

	actionSequence *sequence
	eventSequence  *sequence
	clock          creationClock
	transfers      transfers
}

var _ store.Store = (*Store)(nil)

func (s *Store) Agents() store.Agents   { return agents{s} }
func (s *Store) Actions() store.Actions { return actions{s} }
func (s *Store) Results() store.Results { return results{s} }

// Unreadable returns the documents that lists and scans have left out.
func (s *Store) Unreadable() *store.Unreadables { return &s.c.unreadable }

func (s *Store) Rollouts() store.Rollouts {
	return rollouts{store.KindRollouts.In(s.Documents(store.KindRollouts.Info)), s}
}

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
