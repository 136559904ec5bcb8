// Package action creates the actions that operators order for agents, wakes the parked
// polls of these agents, handles acknowledgements, cancels actions, and ends upgrades that
// no message will end. The handlers of the admin API and of agents call it. The check-in
// delivers the actions.
package action

import (
	"context"
	"log/slog"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/keyfile"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// Service creates actions and handles what agents answer.
type Service struct {
	Store  store.Store
	Health *storehealth.Monitor
	Feed   *Feed
	Events *event.Stream
	Log    *slog.Logger
	Now    clock.Clock
	// Sealer encrypts the data of actions that has secrets. Without a key such actions are
	// refused.
	Sealer keyfile.Sealer
	// Trust may be nil; then no package is withheld.
	Trust Trust
	// Locks may be nil; then no agent is locked.
	Locks Locks
	// Guards may be nil; then there are no freezes and no exposure budget.
	Guards Guards
	// RemovalsPerHour is how many agents operators may unenrol, migrate or move to another
	// policy or server within an hour unless they override it; 0: see removalLimit.
	RemovalsPerHour int
	// Owners may be nil; then no agent belongs to a declared fleet.
	Owners Owners
	// Lease says which server carries an accepted order out. It is nil if the store belongs to
	// this process.
	Lease *lease.Owner
	// Release answers the parked poll of an agent. It may be nil; then the poll ends by
	// itself.
	Release func(agentID string)

	reconciled store.UpgradingSince // the last agent of the last round of ReconcileUpgrades
	components *store.AgentPosition // the last one of those whose components are upgraded
	carrying   carrying
	page       int // of agents; zero: judgeSize
	leavers    leavers
}

// Trust decides which packages the publishers have signed.
type Trust interface {
	// SetWithheld sets Withheld of packages that hosts will not install.
	SetWithheld(ctx context.Context, packages []fleet.Package) error
}

// Locks returns the agents of running rollouts, for which orders are refused.
type Locks interface {
	// Locked returns, by agent id, a sentence that names the rollout which has the agent, or
	// the component of it.
	Locked(ctx context.Context, component string, agents []fleet.Agent) (map[string]string, error)
}

// apply writes the report, and wakes the readers of the event stream if it has events.
func (s *Service) apply(ctx context.Context, agent fleet.Agent, now time.Time, report func(*fleet.Agent) store.Report) error {
	events, err := store.ApplyReport(ctx, s.Store.Agents(), agent, now, report)
	if events {
		s.Events.Wake()
	}
	return err
}
