package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Subject is what a rollout upgrades on a host: the agent, or one of its components. The
// fields mean what those of Agent do.
type Subject struct {
	Agent *Agent
	// Component is its name, empty for the agent itself.
	Component string
	// Reported is false if the agent reports no such component.
	Reported bool

	Version            string // empty for a component of which no version is installed
	VersionSince       *time.Time
	LastHealthyVersion string
	// The last upgrade that the server has ordered.
	ActionID, Target, From string
	StartedAt, UpgradedAt  *time.Time
	Status                 UpgradeStatus
	Details                *agentapi.UpgradeDetails
	// Watch is the last beacon; components have none, since the agent observes them itself.
	Watch *Watch
	// EndReported is UpgradeEndReported, and MovedAt UpgradeMoved.
	EndReported bool
	// EndedAt and CancelConfirmedAt are those of UpgradeOrder.
	EndedAt, CancelConfirmedAt *time.Time
	MovedAt                    *time.Time

	component Component
}

// Of returns a component of the agent, or the agent itself if the name is empty.
func (a *Agent) Of(component string) Subject {
	if component == "" {
		return Subject{
			Agent: a, Reported: true, Version: a.Version, VersionSince: a.VersionSince, LastHealthyVersion: a.LastHealthyVersion,
			ActionID: a.UpgradeActionID, Target: a.UpgradeTarget, From: a.UpgradeFrom, StartedAt: a.UpgradeStartedAt, UpgradedAt: a.UpgradedAt,
			Status: a.UpgradeStatus, Details: a.UpgradeDetails, Watch: a.Watch, EndReported: a.UpgradeEndReported, EndedAt: a.UpgradeEndedAt, CancelConfirmedAt: a.CancelConfirmedAt, MovedAt: a.UpgradeMoved,
		}
	}
	c, reported := a.Component(component)
	u := a.ComponentUpgrades[component]
	c.Upgrade = u
	return Subject{
		Agent: a, Component: component, Reported: reported, Version: c.Version, VersionSince: c.Since, LastHealthyVersion: c.LastHealthyVersion,
		ActionID: u.ActionID, Target: u.Target, From: u.From, StartedAt: u.StartedAt, UpgradedAt: u.UpgradedAt,
		Status: u.Status, Details: u.Details, EndReported: true, EndedAt: u.UpgradeEndedAt, CancelConfirmedAt: u.CancelConfirmedAt, MovedAt: u.UpgradeMoved, component: c,
	}
}

// Upgrading reports whether an upgrade is under way or scheduled.
func (s *Subject) Upgrading() bool { return s.StartedAt != nil && s.UpgradedAt == nil }

// LateReportWindow is how long it takes until what a host does with an order is known: a watcher may
// roll back an agent that was considered healthy, one that was considered silent may turn out to have
// been rolled back, and one whose order was withdrawn may carry it out. Watchers watch for ten minutes,
// and retry a rollback that fails for some more.
const LateReportWindow = 30 * time.Minute

// Unconfirmed reports whether the last upgrade was cancelled or withdrawn, and its host has not
// confirmed that: if it has the order, it may carry it out all the same. Elastic's agents do not stop
// a download for a CANCEL.
func (s *Subject) Unconfirmed() bool {
	return s.ActionID != "" && s.Status == UpgradeNone && s.StartedAt == nil && s.UpgradedAt == nil && s.CancelConfirmedAt == nil
}

// MayGoOn reports whether an upgrade that is Unconfirmed was called off within the LateReportWindow.
func (s *Subject) MayGoOn(now time.Time) bool {
	return s.Unconfirmed() && s.EndedAt != nil && now.Sub(*s.EndedAt) < LateReportWindow
}

// Busy reports whether something is under way that another upgrade would disturb.
func (s *Subject) Busy() bool {
	if s.Component != "" { // also an upgrade that was asked for on the host
		d := s.component.UpgradeDetails
		return s.Upgrading() || d != nil && d.State != agentapi.UpgradeFailed
	}
	return s.Upgrading() || s.Details != nil && !s.Details.State.Ended()
}

// Left returns the version that the last upgrade ordered has left, unless it is under way:
// its target, or what ran before if it failed. It is empty if that is not known, or is none.
func (s *Subject) Left() string {
	if s.UpgradedAt != nil {
		return s.Target
	}
	return s.From
}

// OnHost returns what the host reports of an upgrade of the component that the server has not
// ordered, nil if there is none. That of an agent itself is among the upgrades ordered.
func (s *Subject) OnHost() *agentapi.UpgradeDetails {
	d := s.component.UpgradeDetails
	if s.Component == "" || d == nil || s.Upgrading() || s.ActionID != "" && d.ActionID == s.ActionID {
		return nil
	}
	return d
}

// Runs reports whether an action has brought the version. The host reports a new version of
// a component only after it has observed it, so one that is observed runs too. An upgrade to
// the version that is installed changes the configuration.
func (s *Subject) Runs(version, from, actionID string) bool {
	if s.Component == "" {
		return s.Version == version
	}
	if s.ActionID == actionID && actionID != "" {
		if s.Observed() {
			return true
		}
		if from == version {
			return s.Version == version && s.UpgradedAt != nil
		}
	}
	return s.Version == version && from != version
}

// Observed reports whether the host observes a new version of the component.
func (s *Subject) Observed() bool {
	return s.Component != "" && s.Upgrading() && s.Details != nil && s.Details.State == agentapi.UpgradeWatching
}

// Stuck reports whether the last upgrade failed, and could not be undone either.
func (s *Subject) Stuck() bool {
	d := s.Details
	switch {
	case d == nil || s.Status != UpgradeFailed:
		return false
	case s.Component == "":
		return d.Metadata.FailedState == agentapi.UpgradeRollback
	}
	return d.Metadata.ReasonCode == agentapi.FailedRollback || strings.HasPrefix(d.Metadata.ErrorMsg, agentapi.FailedRollback)
}

// ComponentStatus returns what the agent says of the component.
func (s *Subject) ComponentStatus() (status, message string) {
	return s.component.Status, s.component.Message
}

// Restarts counts the restarts of the component that nobody asked for, since its version
// started.
func (s *Subject) Restarts() int { return s.component.Restarts }

// RenderedSHA256 identifies the component's configuration files that the server has rendered,
// of those that the host has; empty if there are none.
func (s *Subject) RenderedSHA256() string { return s.component.RenderedSHA256 }

// RollbackProblems are what versions lack that the component's host has kept.
func (s *Subject) RollbackProblems() []agentapi.RollbackProblem { return s.component.RollbackProblems }

// FailedBefore returns the failure of a version on the host; ok is false if it did not fail
// there.
func (s *Subject) FailedBefore(version string) (f FailedVersion, ok bool) {
	if s.Component == "" {
		return s.Agent.FailedBefore(version)
	}
	failed := s.component.Upgrade.Failed
	if i := slices.IndexFunc(failed, func(f FailedVersion) bool { return f.Version == version }); i >= 0 {
		return failed[i], true
	}
	return f, false
}

// CheckUpgrade returns an error that says why it cannot be upgraded as requested, or nil.
// catalog has the packages of the agent, or of the component.
func (s *Subject) CheckUpgrade(w UpgradeRequest, catalog Catalog) error {
	if s.Component == "" {
		return s.Agent.CheckUpgrade(w, catalog)
	}
	return s.Agent.CheckComponentUpgrade(ComponentRequest{Name: s.Component, UpgradeRequest: w}, catalog)
}

// CheckRollback returns the version to which the host would go back without a package, or an
// error that says why it cannot. A host keeps several versions of a component, and goes back
// to the one that is asked for.
func (s *Subject) CheckRollback(to string, now time.Time) (string, error) {
	a := s.Agent
	if s.Component == "" {
		kept, err := a.CheckRollback(now)
		return kept.Version, err
	}
	switch {
	case a.checkStays() != nil:
		return "", a.checkStays()
	case a.checkShared() != nil:
		return "", a.checkShared()
	case !s.Reported:
		return "", Errorf(Invalid, "agent %s reports no component %s", a.ID, s.Component).Because(CauseNoComponent)
	case s.Busy():
		return "", Errorf(Invalid, "component %s of agent %s is being upgraded: wait, or cancel that", s.Component, a.ID).Because(CauseUpgrading)
	case slices.Contains(s.component.Rollbacks, to):
		return to, nil
	case len(s.component.Rollbacks) == 0:
		return "", Errorf(Invalid, "agent %s keeps no earlier version of component %s", a.ID, s.Component).Because(CauseNoWayBack)
	}
	return s.component.Rollbacks[len(s.component.Rollbacks)-1], nil
}

// ComponentCensus is the census of one component. It is healthy for as long as its version
// and its agent are.
func (s *Subject) ComponentCensus() Census {
	a := s.Agent
	c := Census{
		ID: a.ID, PolicyID: a.PolicyID, Active: !a.HasLeft() && s.Reported, Version: s.Version, LastCheckin: a.Last.At, Labels: EncodeLabels(a.Labels()),
	}
	if s.VersionSince != nil {
		c.VersionSince = *s.VersionSince
	}
	if a.HealthySince != nil && s.Version != "" && s.Version == s.LastHealthyVersion && !isUnhealthy(s.component.Status) && !s.Busy() {
		c.HealthySince = *a.HealthySince
	}
	return c
}
