package fleet

import "time"

// Status is the status of an agent as operators see it.
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

// Statuses lists all statuses in display order.
var Statuses = [...]Status{
	StatusOnline, StatusError, StatusDegraded, StatusOffline, StatusInactive, StatusUnenrolled,
	StatusUninstalled, StatusOrphaned, StatusUpdating, StatusEnrolling, StatusUnenrolling,
}

// OfflineAfter is Fleet's value: a parked agent's last-seen time is written every 30
// seconds, so ten writes in a row are missing.
const OfflineAfter = 5 * time.Minute

// ConnectedWithin is how recently an agent whose connection is open was seen: three writes in a row
// of a parked agent are missing if it was not. What must not begin without a host, such as a
// rollout in lockstep, does not wait until the agent counts as offline.
const ConnectedWithin = 3 * OfflineAfter / 10

// ReconnectWithin is how long after its last poll an agent still counts as connected where the server
// knows its connection. Between two polls an agent waits for 1.5 seconds at most, and makes four tries
// in the first ten seconds after its connection was lost, so one that is running is back by then.
const ReconnectWithin = 10 * time.Second

// Connection is what a server knows of the connection of an agent.
type Connection uint8

const (
	// ConnectionUnknown means that only when the agent was seen is known: several servers share the
	// store, and none has seen its connection being closed, or the server has just begun.
	ConnectionUnknown Connection = iota
	// ConnectionOpen means that the agent has a poll, or had one within ReconnectWithin.
	ConnectionOpen
	ConnectionClosed
)

// Connections returns what is known of the connection of an agent. Nil: nothing is known of any.
type Connections func(a *Agent) Connection

// Of is Connections of an agent, nil if it is gone, and may be called on nil.
func (f Connections) Of(a *Agent) Connection {
	if f == nil || a == nil {
		return ConnectionUnknown
	}
	return f(a)
}

// StatusFacts are the inputs of an agent's status. Stores can read them without the
// whole document.
type StatusFacts struct {
	Active                bool
	PolicyID              string
	EnrolledAt            time.Time
	LastCheckin           *time.Time
	LastCheckinStatus     string
	AuditUnenrolledReason string
	// UpgradingSince is when the upgrade under way begins, in the future if it is
	// scheduled; nil if there is none.
	UpgradingSince *time.Time
	Unenrolling    bool // unenrollment_started_at set
	// NoPolicy means that the agent has no revision of its policy yet.
	NoPolicy bool
}

// Facts returns the inputs of the agent's status.
func (a *Agent) Facts() StatusFacts {
	f := StatusFacts{
		Active:                a.Active,
		PolicyID:              a.PolicyID,
		EnrolledAt:            a.EnrolledAt,
		LastCheckin:           a.Last.At,
		LastCheckinStatus:     a.Last.Status,
		AuditUnenrolledReason: a.AuditUnenrolledReason,
		Unenrolling:           a.UnenrollmentStartedAt != nil,
		NoPolicy:              a.PolicyRev == 0,
	}
	if a.Upgrading() {
		f.UpgradingSince = a.UpgradeStartedAt
	}
	return f
}

// StatusAt applies the rules of Kibana's Fleet; the first match wins. inactivity is the
// policy's timeout, 0 for none.
//
// One rule is narrower than Kibana's: a scheduled upgrade makes an agent "updating" only
// when it begins. As there, an agent without any revision of its policy is "updating", and
// one with an older revision than the newest is not.
func (f StatusFacts) StatusAt(now time.Time, inactivity time.Duration) Status {
	silent := now.Sub(f.seen())
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
	case f.NoPolicy, f.UpgradingSince != nil && !f.UpgradingSince.After(now):
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

// seen is Agent.LastActivity.
func (f StatusFacts) seen() time.Time {
	if f.LastCheckin != nil {
		return *f.LastCheckin
	}
	return f.EnrolledAt
}
