package agentapi

import "time"

// Beacon is the report of a host's watcher while it watches a new version. It is
// authorized by the watcher's own credential, since the agent may be what is broken.
// The response is 204. Fleet Server has no such request.
type Beacon struct {
	// ActionID is the UPGRADE's; empty for an upgrade started on the host.
	ActionID string       `json:"action_id,omitempty"`
	From     string       `json:"from"` // full version before the upgrade
	To       string       `json:"to"`   // full version being watched
	Phase    BeaconPhase  `json:"stage"`
	Agent    BeaconAgent  `json:"agent"`
	Reason   *BeaconCause `json:"reason,omitempty"` // why it is being, or was, rolled back
	// Waiting is a sentence that says what the watcher waits for.
	Waiting string    `json:"waiting,omitempty"`
	At      time.Time `json:"at"`
}

// BeaconPhase is the phase of a watch; its name on the wire is stage.
type BeaconPhase string

// Values of BeaconPhase. The last three end the watch.
const (
	BeaconWatching       BeaconPhase = "watching"
	BeaconRollingBack    BeaconPhase = "rolling_back"
	BeaconCommitted      BeaconPhase = "committed"
	BeaconRolledBack     BeaconPhase = "rolled_back"
	BeaconRollbackFailed BeaconPhase = "rollback_failed"
)

// Known reports whether s is one of the phases.
func (p BeaconPhase) Known() bool {
	switch p {
	case BeaconWatching, BeaconRollingBack, BeaconCommitted, BeaconRolledBack, BeaconRollbackFailed:
		return true
	}
	return false
}

// Ended reports whether the watch has ended.
func (p BeaconPhase) Ended() bool {
	return p == BeaconCommitted || p == BeaconRolledBack || p == BeaconRollbackFailed
}

// BeaconAgent is the agent as seen by the watcher.
type BeaconAgent struct {
	Alive bool `json:"alive"` // its process runs
	// State is its health as reported on the control socket: healthy, failed, …; empty
	// if it does not answer.
	State   string `json:"state,omitempty"`
	Version string `json:"version,omitempty"` // the version that answers
	Crashes int    `json:"crashes"`           // ends of its process in this watch
	// LastCheckin is when its last check-in was answered.
	LastCheckin *time.Time `json:"last_checkin,omitempty"`
}

// BeaconCause is a reason: a code, such as crash_loop, and a sentence.
type BeaconCause struct {
	Code string `json:"code"`
	Text string `json:"text"`
}
