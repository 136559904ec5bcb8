package fleet

import (
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/kql"
)

// Departure is that no agent follows orders any more: it was unenrolled, or it is gone from its host.
type Departure struct {
	Cause Cause
	// Text completes a sentence about the agent: "was uninstalled on its host".
	Text string
	At   *time.Time // nil: not known
}

// NoOutcome says why an order that was open has no outcome, as a clause.
func (d Departure) NoOutcome() string { return "there is no outcome, since the agent " + d.Text }

// The reasons of audit/unenroll after which nothing runs on the host. The third, key_revoked, is none of
// them: the agent runs, and may enrol again.
const (
	goneUninstalled = "uninstall"
	goneOrphaned    = "orphaned"
)

// GoneFromHost are the values of AuditUnenrolledReason with which an agent has left its host.
var GoneFromHost = []string{goneUninstalled, goneOrphaned}

// goneFilter selects the agents that are gone from their hosts.
func goneFilter() kql.Filter {
	var gone kql.AnyOf
	for _, reason := range GoneFromHost {
		gone = append(gone, kql.Equals{Field: fieldAudit, Value: reason})
	}
	return gone
}

// Left returns why the agent follows no orders any more; ok is false if it may follow them. A host
// that checks in again after it was uninstalled has not left.
func (a *Agent) Left() (d Departure, ok bool) {
	switch {
	case !a.Active:
		return Departure{CauseUnenrolled, "is unenrolled", a.UnenrolledAt}, true
	case a.AuditUnenrolledReason == goneUninstalled:
		return Departure{CauseUninstalled, "was uninstalled on its host", a.AuditUnenrolledTime}, true
	case a.AuditUnenrolledReason == goneOrphaned:
		return Departure{CauseUninstalled, "is gone from its host (orphaned)", a.AuditUnenrolledTime}, true
	}
	return Departure{}, false
}

// HasLeft reports whether the agent follows no orders any more; see Left.
func (a *Agent) HasLeft() bool { _, left := a.Left(); return left }

// CheckEnrolled returns an error if the agent has left, and so follows no orders.
func (a *Agent) CheckEnrolled() error {
	d, left := a.Left()
	if !left {
		return nil
	}
	return Errorf(Invalid, "agent %s %s: enrol the host again", a.ID, d.Text).Because(d.Cause)
}

// checkStays returns an error if the agent has left, or was asked to leave.
func (a *Agent) checkStays() error {
	if d, left := a.Left(); left {
		return Errorf(Invalid, "agent %s %s", a.ID, d.Text).Because(d.Cause)
	}
	if a.UnenrollmentStartedAt != nil {
		return Errorf(Invalid, "agent %s is being unenrolled", a.ID).Because(CauseUnenrolled)
	}
	return nil
}

// HasPendingEnds reports whether the agent has left and its open orders may not have been ended.
func (a *Agent) HasPendingEnds() bool { return a.HasLeft() && a.OrdersEndedAt == nil }

// Unenroll ends the agent's membership: its keys become invalid.
func (a *Agent) Unenroll(reason string, now time.Time) {
	a.Active, a.UnenrolledAt, a.UnenrolledReason = false, &now, reason
	a.AccessKeyHash, a.WatcherKeyHash = "", "" // no secret matches it
}

// Return records that an agent checks in that has reported that it is gone from its host. Orders that
// ended meanwhile stay ended. It reports whether the document changed.
func (a *Agent) Return() bool {
	if a.AuditUnenrolledReason == "" {
		return false
	}
	a.AuditUnenrolledReason, a.AuditUnenrolledTime, a.OrdersEndedAt = "", nil, nil
	return true
}

// EndOrders ends what the document of an agent that has left says of open orders: the upgrades under
// way stop without an outcome, and one that is gone from its host and was asked to leave is unenrolled. It
// returns the actions of the upgrades that it stopped, and reports whether the document changed.
func (a *Agent) EndOrders(now time.Time) (stopped []string, changed bool) {
	d, left := a.Left()
	if !left {
		return nil, false
	}
	text := Sentence(d.NoOutcome())
	for range 2 { // an upgrade that a rollback was undoing shows again when the rollback stops
		id := a.UpgradeActionID
		if !a.noting(now, a.stopUpgrade) {
			break
		}
		a.UpgradeEndText, changed = text, true
		if id != "" {
			stopped = append(stopped, id)
		}
	}
	for name := range a.ComponentUpgrades {
		if u := a.upgradeOf(name); u.noting(now, u.cancel) {
			u.UpgradeEndText, changed = text, true
			stopped = append(stopped, u.UpgradeActionID)
			a.setUpgrade(name, *u)
		}
	}
	slices.Sort(stopped)
	if a.Active && a.UnenrollmentStartedAt != nil {
		a.Unenroll("uninstalled", now)
		changed = true
	}
	return stopped, changed
}

// stopUpgrade ends the agent's upgrade without an outcome, also if the version runs and is watched:
// the watch will report to nobody.
func (a *Agent) stopUpgrade() bool {
	switch d := a.UpgradeDetails; {
	case a.Upgrading():
		a.UpgradeStartedAt, a.UpgradeStatus, a.UpgradeDetails = nil, UpgradeNone, nil
		a.resume()
	case d != nil && !d.State.Ended() && a.UpgradeStatus == UpgradeNone:
		a.UpgradedAt, a.UpgradeDetails = nil, nil
	default:
		return false
	}
	return true
}
