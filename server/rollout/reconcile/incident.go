package reconcile

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// IncidentReporter opens incidents. Opening the same incident again is no error and
// opens no second one.
type IncidentReporter interface {
	Open(ctx context.Context, i fleet.Incident) error
}

// stopIncident returns the incident of a rollout that a step stops; ok is false if the
// step does not stop it.
func stopIncident(was, next *fleet.Rollout) (i fleet.Incident, ok bool) {
	i = fleet.Incident{Category: fleet.IncidentRolloutStopped, RolloutID: next.ID}
	stop := next.Stop
	switch {
	case next.State == fleet.RolloutFailed && was.State != fleet.RolloutFailed:
		i.Title = "The " + plan.Name(next) + " has failed"
		i.Text = fmt.Sprintf("%d of %d agents failed.", next.Counts.Bad(), next.Counts.Total)
		if n := next.Counts.Refused; n > 0 {
			i.Text = strings.TrimSuffix(i.Text, ".") + fmt.Sprintf(", and %d could not be given the version.", n)
		}
		if l := next.Lockstep; l != nil && l.Undo != nil {
			i.Text = fmt.Sprintf("Everything was undone: %s.", strings.TrimSuffix(l.Undo.Why, "."))
		}
		if l := next.Lockstep; l != nil && len(l.Failed) > 0 {
			i.Text += " Look at " + strings.Join(l.Failed, ", ") + "."
		}
	case next.State == fleet.RolloutPaused && stop != nil && stop.Kind.Gate() && (was.Stop == nil || !was.Stop.At.Equal(stop.At)):
		i.Title = "The " + plan.Name(next) + " is paused by itself"
		i.Text = strings.TrimSuffix(stop.Text, ".") + "."
	default:
		return i, false
	}
	if next.Counts.Bad() > 0 {
		i.RecoveryPlan = next.Plan.Migration.RecoveryPlan
	}
	return i, true
}

// openIncident opens an incident for a target that needs a person. It runs before the
// target is written, since a written target is not assessed again.
func (r *Reconciler) openIncident(ctx context.Context, run *runState, t *fleet.Target, now time.Time) error {
	putBack := t.State == fleet.TargetRolledBack && run.rollout.RollbackOf != "" // the newer version runs again
	if r.incidents == nil || t.State != fleet.TargetFailed && !putBack {
		return nil
	}
	i := fleet.Incident{
		Severity: "critical", RolloutID: run.rollout.ID, AgentID: t.AgentID, Hostname: t.Hostname, Component: run.rollout.Plan.Component, OpenedAt: now,
		State: fleet.IncidentOpen, RecoveryPlan: run.rollout.Plan.Migration.RecoveryPlan, Text: t.Error,
	}
	host := t.Hostname
	if c := run.rollout.Plan.Component; c != "" {
		host = c + " on " + host
	}
	switch {
	case putBack:
		i.Category, i.Title = fleet.IncidentRollbackFailed, fmt.Sprintf("%s was rolled back to %s, and put %s back", host, t.To, plan.VersionText(t.From))
	case run.rollout.RollbackOf != "":
		i.Category, i.Title = fleet.IncidentRollbackFailed, fmt.Sprintf("%s could not be rolled back to %s", host, t.To)
	case t.Code == fleet.WhyStuck:
		i.Category, i.Title = fleet.IncidentUpgradeFailed, fmt.Sprintf("%s failed to upgrade to %s, and could not go back", host, t.To)
	case t.Code == fleet.WhyNoProgress:
		i.Category, i.Severity, i.Title = fleet.IncidentStalled, "warning", fmt.Sprintf("%s is online, and makes no progress with its upgrade to %s", host, t.To)
		i.RecoveryPlan = ""
	case t.Code == fleet.WhyStalled:
		i.Category, i.Severity, i.Title = fleet.IncidentStalled, "warning", fmt.Sprintf("%s runs %s, and does not become healthy", host, t.To)
		i.RecoveryPlan = ""
	default:
		return nil
	}
	i.ID = fmt.Sprintf("%s:%s:%s", i.Category, i.RolloutID, i.AgentID)
	return r.incidents.Open(ctx, i)
}
