package reconcile

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
)

// IncidentReporter opens incidents. Opening the same incident again is no error
// and makes no second one.
type IncidentReporter interface {
	Open(ctx context.Context, i fleet.Incident) error
}
