package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// IncidentReporter opens incidents. Opening the same incident again is no error and
// opens no second one.
type IncidentReporter interface {
	Open(ctx context.Context, i fleet.Incident) error
}

// openIncident opens an incident for a target that needs a person. It runs before the
// target is written, since a written target is not assessed again.
func (r *Reconciler) openIncident(ctx context.Context, run *runState, t *fleet.Target, now time.Time) error {
	if r.incidents == nil || t.State != fleet.TargetFailed {
		return nil
	}
	i := fleet.Incident{
		Severity: "critical", RolloutID: run.rollout.ID, AgentID: t.AgentID, Hostname: t.Hostname, OpenedAt: now,
		State: fleet.IncidentOpen, RecoveryPlan: run.rollout.Plan.Migration.RecoveryPlan, Text: t.Error,
	}
	switch {
	case run.rollout.RollbackOf != "":
		i.Category, i.Title = fleet.IncidentRollbackFailed, fmt.Sprintf("%s could not be rolled back to %s", t.Hostname, t.To)
	case t.Code == fleet.WhyStuck:
		i.Category, i.Title = fleet.IncidentUpgradeFailed, fmt.Sprintf("%s failed to upgrade to %s, and could not go back", t.Hostname, t.To)
	case t.Code == fleet.WhyStalled:
		i.Category, i.Severity, i.Title = fleet.IncidentStalled, "warning", fmt.Sprintf("%s runs %s, and does not become healthy", t.Hostname, t.To)
		i.RecoveryPlan = ""
	default:
		return nil
	}
	i.ID = fmt.Sprintf("%s:%s:%s", i.Category, i.RolloutID, i.AgentID)
	return r.incidents.Open(ctx, i)
}
