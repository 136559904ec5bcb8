package fleet

import "time"

// Status is what people see of an agent.
type Status string

const (
	StatusOnline      Status = "online"
	StatusError       Status = "error"
	StatusDegraded    Status = "degraded"
	StatusOffline     Status = "offline"
	StatusInactive    Status = "inactive"
	StatusUnenrolled  Status = "unenrolled"
	StatusUninstalled Status = "uninstalled"
	StatusOrphaned    Status = "orphaned"
	StatusUpdating    Status = "updating"
	StatusEnrolling   Status = "enrolling"
	StatusUnenrolling Status = "unenrolling"
)

// Statuses in the order they are listed.
var Statuses = [...]Status{
	StatusOnline, StatusError, StatusDegraded, StatusOffline, StatusInactive, StatusUnenrolled,
	StatusUninstalled, StatusOrphaned, StatusUpdating, StatusEnrolling, StatusUnenrolling,
}

// OfflineAfter is Fleet's: ten missed writes of the 30 seconds between two
// last-seen updates of a parked agent.
const OfflineAfter = 5 * time.Minute

// StatusFacts is what the status of an agent depends on. Stores can read it
// without the whole document.
type StatusFacts struct {
	Active                bool
	PolicyID              string
	EnrolledAt            time.Time
	LastCheckin           *time.Time
	LastCheckinStatus     string
	AuditUnenrolledReason string
	Upgrading             bool // upgrade_started_at set, upgraded_at not
	Unenrolling           bool // unenrollment_started_at set
}

// Facts of an agent.
func (a *Agent) Facts() StatusFacts {
	return StatusFacts{
		Active:                a.Active,
		PolicyID:              a.PolicyID,
		EnrolledAt:            a.EnrolledAt,
		LastCheckin:           a.Last.At,
		LastCheckinStatus:     a.Last.Status,
		AuditUnenrolledReason: a.AuditUnenrolledReason,
		Upgrading:             a.Upgrading(),
		Unenrolling:           a.UnenrollmentStartedAt != nil,
	}
}

// StatusAt applies the rules of Kibana's Fleet, first match wins. inactivity is
// the policy's timeout, 0 for none.
//
// One rule of Kibana's is left out: an agent that has not received a policy
// revision counts as "updating" there. Muster's policies carry nothing an agent
// must fetch yet, so the rule would call every agent updating for ever.
func (f StatusFacts) StatusAt(now time.Time, inactivity time.Duration) Status {
	seen := f.EnrolledAt
	if f.LastCheckin != nil {
		seen = *f.LastCheckin
	}
	silent := now.Sub(seen)
	switch {
	case !f.Active:
		return StatusUnenrolled
	case inactivity > 0 && silent > inactivity:
		return StatusInactive
	case f.AuditUnenrolledReason == "uninstall":
		return StatusUninstalled
	case f.AuditUnenrolledReason == "orphaned":
		return StatusOrphaned
	case silent > OfflineAfter:
		return StatusOffline
	case f.Upgrading:
		return StatusUpdating
	case f.LastCheckin == nil:
		return StatusEnrolling
	case f.Unenrolling:
		return StatusUnenrolling
	case f.LastCheckinStatus == "error":
		return StatusError
	case f.LastCheckinStatus == "degraded":
		return StatusDegraded
	}
	return StatusOnline
}
