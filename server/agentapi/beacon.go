package agentapi

import "time"

// Beacon is what the watcher of a host tells the server while it judges a new
// version, with a credential of its own: the agent is what may be broken. It is
// answered 204. Fleet Server has no such call.
type Beacon struct {
	// ActionID is the UPGRADE's; empty for one asked for on the host.
	ActionID string       `json:"action_id,omitempty"`
	From     string       `json:"from"` // full version before the upgrade
	To       string       `json:"to"`   // full version under judgement
	Stage    BeaconStage  `json:"stage"`
	Agent    BeaconAgent  `json:"agent"`
	Reason   *BeaconCause `json:"reason,omitempty"` // why it is, or was, rolled back
	// Waiting is a sentence on what the watcher waits for.
	Waiting string    `json:"waiting,omitempty"`
	At      time.Time `json:"at"`
}

// BeaconStage is how far a watch is.
type BeaconStage string

// The stages. The last three end the watch.
const (
	BeaconWatching       BeaconStage = "watching"
	BeaconRollingBack    BeaconStage = "rolling_back"
	BeaconCommitted      BeaconStage = "committed"
	BeaconRolledBack     BeaconStage = "rolled_back"
	BeaconRollbackFailed BeaconStage = "rollback_failed"
)

// Known says whether s is one of the stages.
func (s BeaconStage) Known() bool {
	switch s {
	case BeaconWatching, BeaconRollingBack, BeaconCommitted, BeaconRolledBack, BeaconRollbackFailed:
		return true
	}
	return false
}

// Over says whether the watch has ended.
func (s BeaconStage) Over() bool {
	return s == BeaconCommitted || s == BeaconRolledBack || s == BeaconRollbackFailed
}

// BeaconAgent is what the watcher sees of the agent.
type BeaconAgent struct {
	Alive bool `json:"alive"` // its process is there
	// State is its own health, as of the control socket: healthy, failed, …;
	// empty when it does not answer.
	State   string `json:"state,omitempty"`
	Version string `json:"version,omitempty"` // that answers
	Crashes int    `json:"crashes"`           // ends of its process in this watch
	// LastCheckin is when it last heard its server.
	LastCheckin *time.Time `json:"last_checkin,omitempty"`
}

// BeaconCause is a reason code, such as crash_loop, and a sentence.
type BeaconCause struct {
	Code string `json:"code"`
	Text string `json:"text"`
}
