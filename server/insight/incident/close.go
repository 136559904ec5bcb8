package incident

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
)

const (
	// closeInterval is how often CloseRun looks whether the causes of incidents are gone: often enough
	// that an alert stops within the minutes for which Prometheus waits.
	closeInterval = 30 * time.Second
	// closeAtOnce bounds the incidents of one round. Each needs up to three reads.
	closeAtOnce = 500
	// scanPage is how many targets of a rollout are read at once, with their agents: some megabytes.
	scanPage = 500
	// scanPages bounds the pages of one round, of all incidents about many hosts: a host that still
	// has the trouble ends the search, so one page is enough for most.
	scanPages = 8
)

// world is what the server knows of the rollout and the host of an incident.
type world struct {
	rollout *fleet.Rollout // nil: it was removed, or there is none
	target  *fleet.Target  // nil likewise
	agent   *fleet.Agent   // nil likewise
	// rolledBack is how many hosts are still as their watchers left them after they had put the version
	// of the incident back.
	rolledBack int
	// repaired means that none of the rollout's hosts has the trouble any more that the incident is
	// about; see troubled.
	repaired bool
}

// gone returns why the cause of an incident is gone, as a clause; empty if it is not, or if that is not
// known.
//
//	category                 cause                                   it is gone when
//	rollout_stopped          a gate paused a rollout, or it failed   it runs again, has completed, was cancelled, rolled back or removed;
//	                                                                 or it failed, and each host that it could not bring to the version
//	                                                                 runs it, or a later one, and is healthy
//	upgrade_stalled          a host runs a version without becoming  it is healthy, runs another version, or its target ended otherwise
//	                         healthy
//	upgrade_failed           a host could neither upgrade nor go     it reports healthy again, or its next upgrade has ended otherwise
//	                         back
//	upgrade_rollback_failed  a rollback failed on a host             it runs the version of the rollback, or its target ended otherwise
//	version_rolled_back      hosts put the version back              none of them is as that left it
//
// Besides, an incident about a host ends with the host: it was deleted, unenrolled or uninstalled. One that
// stands for many hosts of a rollout ends when that of each host would have ended.
func gone(i *fleet.Incident, w world) string {
	switch i.Category {
	case fleet.IncidentRolloutStopped:
		return stopGone(w)
	case fleet.IncidentVersionRolledBack:
		if w.rolledBack == 0 {
			return "no host is as the rollback left it any more"
		}
		return ""
	}
	if i.AgentID == "" {
		switch {
		case i.RolloutID == "":
		case w.rollout == nil:
			return "the rollout was removed"
		case w.repaired:
			return "no host of the rollout has this trouble any more"
		}
		return ""
	}
	return hostGone(i, w)
}

// hostGone is gone of an incident about one host.
func hostGone(i *fleet.Incident, w world) string {
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
		case !s.Stuck() && !s.Upgrading() && s.UpgradeStatus == fleet.UpgradeNone && s.UpgradedAt != nil:
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
	case t.State != fleet.TargetFailed && (i.Category != fleet.IncidentRollbackFailed || t.State != fleet.TargetRolledBack): // it put the newer version back
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

func stopGone(w world) string {
	r := w.rollout
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
	case fleet.RolloutFailed:
		if w.repaired {
			return "the hosts that the rollout could not upgrade were repaired"
		}
	}
	return ""
}

// needsScan reports whether the end of an incident depends on many hosts of its rollout.
func needsScan(i *fleet.Incident, r *fleet.Rollout) bool {
	return i.AgentID == "" && r != nil && (i.Category != fleet.IncidentRolloutStopped || r.State == fleet.RolloutFailed)
}

// scanned are the states of targets that troubled is asked about.
func scanned(r *fleet.Rollout) []fleet.TargetState {
	states := []fleet.TargetState{fleet.TargetFailed, fleet.TargetRolledBack}
	if r.Counts.Refused > 0 {
		states = append(states, fleet.TargetSkipped)
	}
	if undone(r) {
		states = append(states, fleet.TargetWithdrawn, fleet.TargetCancelled)
	}
	return states
}

// undone reports whether a rollout in lockstep has put all of its targets back.
func undone(r *fleet.Rollout) bool { return r.Lockstep != nil && r.Lockstep.Undo != nil }

// troubled reports whether a target's host still has the trouble that an incident without a host is about.
func troubled(i *fleet.Incident, r *fleet.Rollout, t *fleet.Target, a *fleet.Agent) bool {
	if i.Category != fleet.IncidentRolloutStopped {
		return kindOf(r, t) == i.Category && hostGone(i, world{target: t, agent: a}) == ""
	}
	if t.State == fleet.TargetSkipped && !plan.Refused(t) && !undone(r) || a == nil {
		return false
	}
	if _, left := a.Left(); left {
		return false
	}
	s := a.Of(r.Plan.Component)
	return !reached(r, t, s.Version) || s.Busy() || !isWell(&s)
}

// reached reports whether a host runs what its rollout should have brought, or a later version: then
// another upgrade has repaired it. A rollback has brought the earlier version only.
func reached(r *fleet.Rollout, t *fleet.Target, version string) bool {
	if version == t.To || r.RollbackOf != "" {
		return version == t.To
	}
	c, err := manifest.CompareVersions(version, t.To)
	return err == nil && c > 0
}

// kindOf returns the category of the incident about a target; empty: there is none.
func kindOf(r *fleet.Rollout, t *fleet.Target) fleet.IncidentKind {
	switch {
	case r.RollbackOf != "":
		return fleet.IncidentRollbackFailed
	case t.State != fleet.TargetFailed:
	case t.Code == fleet.WhyStuck:
		return fleet.IncidentUpgradeFailed
	case t.Code == fleet.WhyNoProgress, t.Code == fleet.WhyStalled:
		return fleet.IncidentStalled
	}
	return ""
}

// CloseRun resolves incidents whose cause is gone, as the server, with the reason. It runs a round every
// closeInterval until ctx ends. Several servers may run it at the same time.
func (s *Service) CloseRun(ctx context.Context) {
	lease.Rounds{Work: "comparisons of incidents with their causes", Interval: closeInterval, AtOnce: true, Log: s.Log}.Run(ctx, s.CloseOnce)
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
	scans := s.scans
	s.scans, s.pages = map[string]scan{}, scanPages
	for n := range all { // those that this round does not come to stay as they were found
		if i := &all[n]; i.State != fleet.IncidentResolved {
			if rev, known := before[i.ID]; known {
				s.gone[i.ID] = rev
			}
			if sc, known := scans[i.ID]; known && sc.revision == i.Revision {
				s.scans[i.ID] = sc
			}
		}
	}
	for n := range all {
		// The round begins where the last one ended.
		i := &all[(s.next+n)%len(all)]
		if i.State == fleet.IncidentResolved {
			continue
		}
		if looked++; looked > closeAtOnce || s.pages == 0 {
			s.next = (s.next + n) % len(all)
			break
		}
		why, err := s.goneNow(ctx, i)
		if err != nil {
			return err
		}
		if why == "" {
			delete(s.gone, i.ID)
			continue
		}
		if rev, known := s.gone[i.ID]; !known || rev != i.Revision {
			s.gone[i.ID] = i.Revision
			continue
		}
		delete(s.gone, i.ID)
		i.State, i.Resolved = fleet.IncidentResolved, &fleet.Decision{By: System, At: s.Now.UTC(), Why: fleet.Sentence(why)}
		switch _, err := s.Store.Update(ctx, *i); {
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
		w.rollout, err = store.Optional(s.Rollouts.Get(ctx, i.RolloutID))
	}
	if err == nil && needsScan(i, w.rollout) {
		w.repaired, err = s.scan(ctx, i, w.rollout)
	}
	if err == nil && i.AgentID != "" {
		w.agent, err = store.Optional(s.Agents.Get(ctx, i.AgentID))
	}
	if err == nil && i.AgentID != "" && i.RolloutID != "" {
		w.target, err = store.Optional(s.Targets.Get(ctx, i.RolloutID, i.AgentID))
	}
	if err != nil {
		return "", err
	}
	return gone(i, w), nil
}

// scan is how far the targets of an incident's rollout were read.
type scan struct {
	revision int64 // of the incident
	offset   int
	total    int
	done     bool
}

// scan reports whether none of the rollout's hosts has the trouble of the incident any more. It reads some
// pages in a round, ends at the first host that has it, and goes on there in the next round. When it has
// come to the end it says so in the next round, too, without reading again.
func (s *Service) scan(ctx context.Context, i *fleet.Incident, r *fleet.Rollout) (repaired bool, err error) {
	sc := s.scans[i.ID] // one of another revision is not there
	if sc.done {
		delete(s.scans, i.ID)
		return true, nil
	}
	sc.revision = i.Revision
	for s.pages > 0 {
		s.pages--
		targets, total, err := s.Targets.List(ctx, store.TargetQuery{RolloutID: r.ID, States: scanned(r), Offset: sc.offset, Limit: scanPage})
		if err != nil {
			return false, err
		}
		if sc.offset > 0 && total != sc.total { // the pages have shifted
			sc.offset = 0
			continue
		}
		sc.total = total
		has, err := s.anyTroubled(ctx, i, r, targets)
		if err != nil || has {
			s.scans[i.ID] = sc
			return false, err
		}
		if sc.offset += len(targets); len(targets) == 0 || sc.offset >= total {
			// Without a target the rollout failed for another reason, which no host can repair.
			sc.done = total > 0 || i.Category != fleet.IncidentRolloutStopped
			s.scans[i.ID] = sc
			return sc.done, nil
		}
	}
	s.scans[i.ID] = sc
	return false, nil
}

func (s *Service) anyTroubled(ctx context.Context, i *fleet.Incident, r *fleet.Rollout, targets []fleet.Target) (bool, error) {
	ids := make([]string, len(targets))
	for n := range targets {
		ids[n] = targets[n].AgentID
	}
	agents, err := s.Agents.GetMany(ctx, ids)
	if err != nil {
		return false, err
	}
	byID := make(map[string]*fleet.Agent, len(agents))
	for n := range agents {
		byID[agents[n].ID] = &agents[n]
	}
	for n := range targets {
		if troubled(i, r, &targets[n], byID[targets[n].AgentID]) {
			return true, nil
		}
	}
	return false, nil
}

// stillRolledBack counts hosts whose last upgrade was to the release, and was rolled back; at most some.
func (s *Service) stillRolledBack(ctx context.Context, r release) (n int, err error) {
	hosts, err := s.findRolledBack(ctx, r)
	for i := range hosts {
		if of := hosts[i].Of(r.component); of.UpgradeStatus == fleet.UpgradeRolledBack && of.UpgradeTo == r.version && !of.Upgrading() {
			n++
		}
	}
	return n, err
}
