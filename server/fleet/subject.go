package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Subject is what a rollout upgrades on a host: the agent, or one of its components. The
// fields mean what those of Agent do. Its rules are in upgraderules.go.
type Subject struct {
	Agent *Agent
	// Component is its name, empty for the agent itself.
	Component string
	// Reported is false if the agent reports no such component.
	Reported bool

	Version            string // empty for a component of which no version is installed
	VersionSince       *time.Time
	LastHealthyVersion string
	// Upgrade is the last one: that of an agent, or a copy of that of a component.
	*Upgrade
	// Watch is the last beacon; components have none, since the agent observes them itself.
	Watch *Watch

	component Component
}

// Of returns a component of the agent, or the agent itself if the name is empty.
func (a *Agent) Of(component string) Subject {
	if component == "" {
		return Subject{
			Agent: a, Reported: true, Version: a.Version, VersionSince: a.VersionSince, LastHealthyVersion: a.LastHealthyVersion,
			Upgrade: &a.Upgrade, Watch: a.Watch,
		}
	}
	c, reported := a.Component(component)
	u := a.upgradeOf(component)
	c.Upgrade = *u
	return Subject{
		Agent: a, Component: component, Reported: reported, Version: c.Version, VersionSince: c.Since, LastHealthyVersion: c.LastHealthyVersion,
		Upgrade: u, component: c,
	}
}

// NoSubject returns the subject of an agent that is gone.
func NoSubject() Subject { return Subject{Upgrade: &Upgrade{}} }

// EndReported reports whether nobody but the agent reports how the upgrade ended: the watcher's report
// comes later than the agent's, and a component has no watcher.
func (s *Subject) EndReported() bool { return s.Component != "" || s.UpgradeEndReported }

// LateReportWindow is how long it takes until what a host does with an order is known: a watcher may
// roll back an agent that was considered healthy, one that was considered silent may turn out to have
// been rolled back, and one whose order was withdrawn may carry it out. Watchers watch for ten minutes,
// and retry a rollback that fails for some more.
const LateReportWindow = 30 * time.Minute

// Unconfirmed reports whether the last upgrade was cancelled or withdrawn, and its host has not
// confirmed that: if it has the order, it may carry it out all the same. Elastic's agents do not stop
// a download for a CANCEL.
func (s *Subject) Unconfirmed() bool {
	return s.calledOff() && s.CancelConfirmedAt == nil
}

// MayGoOn reports whether an upgrade that is Unconfirmed was called off within the LateReportWindow.
func (s *Subject) MayGoOn(now time.Time) bool {
	return s.Unconfirmed() && s.UpgradeEndedAt != nil && now.Sub(*s.UpgradeEndedAt) < LateReportWindow
}

// Busy reports whether something is under way that another upgrade would disturb.
func (s *Subject) Busy() bool {
	if s.Component != "" { // also an upgrade that was asked for on the host
		d := s.component.UpgradeDetails
		return s.Upgrading() || d != nil && d.State != agentapi.UpgradeFailed
	}
	return s.Upgrading() || s.UpgradeDetails != nil && !s.UpgradeDetails.State.Ended()
}

// Left returns the version that the last upgrade ordered has left, unless it is under way:
// the version it leads to, or what ran before if it failed. It is empty if that is not known, or is none.
func (s *Subject) Left() string {
	if s.UpgradedAt != nil {
		return s.UpgradeTo
	}
	return s.UpgradeFrom
}

// OnHost returns what the host reports of an upgrade of the component that the server has not
// ordered, nil if there is none. That of an agent itself is among the upgrades ordered.
func (s *Subject) OnHost() *agentapi.UpgradeDetails {
	d := s.component.UpgradeDetails
	if d == nil || s.Upgrading() || s.UpgradeActionID != "" && d.ActionID == s.UpgradeActionID {
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
	if s.UpgradeActionID == actionID && actionID != "" {
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
	return s.Component != "" && s.Upgrading() && s.UpgradeDetails != nil && s.UpgradeDetails.State == agentapi.UpgradeWatching
}

// Stuck reports whether the last upgrade failed, and could not be undone either.
func (s *Subject) Stuck() bool {
	d := s.UpgradeDetails
	switch {
	case d == nil || s.UpgradeStatus != UpgradeFailed:
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

// CheckUpgrade returns an error that says why it cannot be upgraded as requested, or nil.
// catalog has the packages of the agent, or of the component.
func (s *Subject) CheckUpgrade(w UpgradeRequest, catalog Catalog) error {
	if s.Component == "" {
		return s.Agent.CheckUpgrade(w, catalog)
	}
	return s.checkComponentUpgrade(w, catalog)
}

// AlreadyHas refuses an order of a version that an agent, or its component, has.
func AlreadyHas(component, agentID, version string) *Error {
	if component == "" {
		return Errorf(Invalid, "agent %s already runs %s", agentID, version)
	}
	return Errorf(Invalid, "component %s of agent %s already is %s", component, agentID, version)
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
