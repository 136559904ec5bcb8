package incident

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// closeInterval is how often CloseRun looks whether the causes of incidents are gone: often enough
	// that an alert stops within the minutes for which Prometheus waits.
	closeInterval = 30 * time.Second
	// closeAtOnce bounds the incidents of one round. Each needs up to three reads.
	closeAtOnce = 500
)

// world is what the server knows of the rollout and the host of an incident.
type world struct {
	rollout *fleet.Rollout // nil: it was removed, or there is none
	target  *fleet.Target  // nil likewise
	agent   *fleet.Agent   // nil likewise
	// rolledBack is how many hosts are still as their watchers left them after they had put the version
	// of the incident back.
	rolledBack int
}

// gone returns why the cause of an incident is gone, as a clause; empty if it is not, or if that is not
// known.
//
//	category                 cause                                   it is gone when
//	rollout_stopped          a gate paused a rollout, or it failed   it runs again, has completed, was cancelled, rolled back or removed
//	upgrade_stalled          a host runs a version without becoming  it is healthy, runs another version, or its target ended otherwise
//	                         healthy
//	upgrade_failed           a host could neither upgrade nor go     it reports healthy again, or its next upgrade has ended otherwise
//	                         back
//	upgrade_rollback_failed  a rollback failed on a host             it runs the version of the rollback, or its target ended otherwise
//	version_rolled_back      hosts put the version back              none of them is as that left it
//
// Besides, an incident about a host ends with the host: it was deleted, unenrolled or uninstalled.
func gone(i *fleet.Incident, w world) string {
	switch i.Category {
	case fleet.IncidentRolloutStopped:
		return stopGone(w.rollout)
	case fleet.IncidentVersionRolledBack:
		if w.rolledBack == 0 {
			return "no host is as the rollback left it any more"
		}
		return ""
	}
	if i.AgentID == "" {
		return "" // it stands for many hosts
	}
	if w.agent == nil {
		return "the agent was deleted"
	}
	if left, ok := w.agent.Left(); ok {
		return "the agent " + left.Text
	}
	s := w.agent.Of(i.Component)
	switch i.Category {
	case fleet.IncidentUpgradeFailed:
		switch {
		case i.Component == "" && w.agent.HealthySince != nil && w.agent.HealthySince.After(i.OpenedAt):
			return "the host reports that it is healthy again"
		case !s.Stuck() && !s.Upgrading() && s.Status == fleet.UpgradeNone && s.UpgradedAt != nil:
			return "the next upgrade has reached " + s.Version
		}
		return ""
	case fleet.IncidentStalled, fleet.IncidentRollbackFailed:
	default:
		return ""
	}
	t := w.target
	switch {
	case t == nil:
		return ""
	case t.State != fleet.TargetFailed:
		return fmt.Sprintf("its target in the rollout is %s now", strings.ReplaceAll(string(t.State), "_", " "))
	case i.Category == fleet.IncidentRollbackFailed && s.Version == t.To && !s.Busy():
		return "the host runs " + t.To
	case t.Code == fleet.WhyNoProgress && s.Version == t.From: // it never left it, and the next upgrade may stand still too
	case i.Category == fleet.IncidentStalled && s.Version != "" && s.Version != t.To && !s.Busy():
		return "the host runs " + s.Version + " now"
	case i.Category == fleet.IncidentStalled && s.Version == t.To && isWell(&s):
		return "the host runs " + t.To + ", and is healthy"
	}
	return ""
}

// isWell reports whether the agent, or its component, says that it is healthy.
func isWell(s *fleet.Subject) bool {
	if s.Component == "" {
		return s.Agent.HealthySince != nil && s.Agent.PolicyRev != 0
	}
	status, _ := s.ComponentStatus()
	return strings.EqualFold(status, "healthy")
}

func stopGone(r *fleet.Rollout) string {
	if r == nil {
		return "the rollout was removed"
	}
	switch r.State {
	case fleet.RolloutRunning:
		return "the rollout runs again"
	case fleet.RolloutCompleted:
		return "the rollout was resumed, and has completed"
	case fleet.RolloutCancelled:
		return "the rollout was cancelled"
	case fleet.RolloutRolledBack:
		return "the rollout was rolled back"
	}
	return ""
}

// CloseRun resolves incidents whose cause is gone, as the server, with the reason. It runs a round every
// closeInterval until ctx ends. Several servers may run it at the same time.
func (s *Service) CloseRun(ctx context.Context) {
	tick := time.NewTicker(closeInterval)
	defer tick.Stop()
	for {
		if err := s.CloseOnce(ctx); err != nil && ctx.Err() == nil {
			s.Log.Warn("incidents not compared with their causes", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// CloseOnce runs one round. A cause must be gone in two rounds between which the incident did not change:
// incidents are written before the state that they are about. It must not be called concurrently.
func (s *Service) CloseOnce(ctx context.Context) error {
	all, _, err := s.Store.List(ctx, 0, 0)
	if err != nil {
		return err
	}
	before, looked := s.gone, 0
	s.gone = map[string]int64{}
	for n := range all {
		// The round begins where the last one ended.
		i := &all[(s.next+n)%len(all)]
		if i.State == fleet.IncidentResolved {
			continue
		}
		if looked++; looked > closeAtOnce {
			s.next = (s.next + n) % len(all)
			break
		}
		why, err := s.goneNow(ctx, i)
		if err != nil {
			return err
		}
		if why == "" {
			continue
		}
		if rev, known := before[i.ID]; !known || rev != i.Revision {
			s.gone[i.ID] = i.Revision
			continue
		}
		i.State, i.Resolved = fleet.IncidentResolved, &fleet.Decision{By: System, At: s.Now.UTC(), Why: fleet.Sentence(why)}
		switch err := s.Store.Update(ctx, *i); {
		case err != nil && fleet.KindOf(err) == fleet.Conflict:
			continue // it has opened again, or somebody else was faster
		case err != nil:
			return err
		}
		s.Log.Info("incident resolved, since its cause is gone", "incident", i.ID, "because", why)
		s.publish(ctx, *i, System)
		if err := s.record(ctx, *i); err != nil {
			return err
		}
	}
	return nil
}

// goneNow is gone of the world as the store has it.
func (s *Service) goneNow(ctx context.Context, i *fleet.Incident) (string, error) {
	var w world
	var err error
	if i.Category == fleet.IncidentVersionRolledBack {
		w.rolledBack, err = s.stillRolledBack(ctx, release{i.Component, i.Version})
		return gone(i, w), err
	}
	if i.RolloutID != "" && i.AgentID == "" {
		w.rollout, err = optional(s.Rollouts.Get(ctx, i.RolloutID))
	}
	if err == nil && i.AgentID != "" {
		w.agent, err = optional(s.Agents.Get(ctx, i.AgentID))
	}
	if err == nil && i.AgentID != "" && i.RolloutID != "" {
		w.target, err = optional(s.Targets.Get(ctx, i.RolloutID, i.AgentID))
	}
	if err != nil {
		return "", err
	}
	return gone(i, w), nil
}

// stillRolledBack counts hosts whose last upgrade was to the release, and was rolled back; at most some.
func (s *Service) stillRolledBack(ctx context.Context, r release) (n int, err error) {
	hosts, err := s.findRolledBack(ctx, r)
	for i := range hosts {
		if of := hosts[i].Of(r.component); of.Status == fleet.UpgradeRolledBack && of.Target == r.version && !of.Upgrading() {
			n++
		}
	}
	return n, err
}

// optional turns NotFound into nil.
func optional[T any](v T, err error) (*T, error) {
	switch {
	case err == nil:
		return &v, nil
	case fleet.KindOf(err) == fleet.NotFound:
		return nil, nil
	}
	return nil, err
}
