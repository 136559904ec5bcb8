package rollout

import (
	"context"
	"log/slog"

	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/store"
)

// Reconciler works on the rollouts whose leases it holds.
type Reconciler struct {
	Store   store.Store
	Actions *action.Service
	Events  *event.Stream
	Log     *slog.Logger
	Now     clock.Clock
	// Holder names this replica in leases.
	Holder string
	// Incidents hears of targets that need a person; nil drops it.
	Incidents IncidentReporter
}

// Run does rounds until ctx ends.
func (r *Reconciler) Run(ctx context.Context) { panic("unwritten") }

// Signal asks for a round now.
func (r *Reconciler) Signal() { panic("unwritten") }

// Round looks at every active rollout once.
func (r *Reconciler) Round(ctx context.Context) error { panic("unwritten") }
