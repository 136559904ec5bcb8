package fleet

import (
	"encoding/json"
	"strings"
	"time"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/muster-fleet/muster/server/agentapi"
)

// Agent is the document the server keeps of one agent. Field names are those of
// Fleet's agent index.
type Agent struct {
	ID           string `json:"id"`
	Type         string `json:"type"`
	Active       bool   `json:"active"`
	PolicyID     string `json:"policy_id"`
	PolicyRev    int64  `json:"policy_revision_idx,omitempty"`
	EnrollmentID string `json:"enrollment_id,omitempty"`
	// ReplaceTokenHash lets the host that has the token enrol again under ID.
	ReplaceTokenHash string `json:"replace_token,omitempty"`

	AccessKeyID   string `json:"access_api_key_id"`
	AccessKeyHash string `json:"access_api_key_hash"`
	// The watcher's key, good for beacons alone. Agents of before there were
	// beacons have none.
	WatcherKeyID   string `json:"watcher_api_key_id,omitempty"`
	WatcherKeyHash string `json:"watcher_api_key_hash,omitempty"`

	EnrolledAt            time.Time  `json:"enrolled_at"`
	UnenrolledAt          *time.Time `json:"unenrolled_at,omitempty"`
	UnenrolledReason      string     `json:"unenrolled_reason,omitempty"`
	UnenrollmentStartedAt *time.Time `json:"unenrollment_started_at,omitempty"`
	AuditUnenrolledReason string     `json:"audit_unenrolled_reason,omitempty"`
	AuditUnenrolledTime   *time.Time `json:"audit_unenrolled_time,omitempty"`

	// Last is what the last check-in said; it is written in bulk, apart from
	// the rest of the document.
	Last LastSeen `json:"-"`

	Version       string          `json:"version"`
	LocalMetadata json.RawMessage `json:"local_metadata,omitempty"`
	UserMetadata  json.RawMessage `json:"user_provided_metadata,omitempty"`
	Components    json.RawMessage `json:"components,omitempty"`
	Tags          []string        `json:"tags"`

	UpgradeStartedAt *time.Time               `json:"upgrade_started_at"`
	UpgradedAt       *time.Time               `json:"upgraded_at"`
	UpgradeStatus    UpgradeStatus            `json:"upgrade_status"`
	UpgradeDetails   *agentapi.UpgradeDetails `json:"upgrade_details"`
	// UpgradeActionID and UpgradeTarget are of the upgrade under way, or of the
	// last one.
	UpgradeActionID string `json:"upgrade_action_id,omitempty"`
	UpgradeTarget   string `json:"upgrade_target,omitempty"`
	UpgradeFrom     string `json:"upgrade_from,omitempty"` // what ran when it began
	// UpgradeRollback says that it is, or was, a rollback an operator asked for.
	UpgradeRollback bool `json:"upgrade_rollback,omitempty"`
	// Undoes is the upgrade that was being watched when such a rollback began.
	Undoes *UndoneUpgrade `json:"undoes,omitempty"`
	// UpgradeEndTold says that the agent itself has said how its upgrade ended
	// badly: then its watcher does not have the last word.
	UpgradeEndTold bool `json:"upgrade_end_told,omitempty"`
	// Kept is what the host could go back to.
	Kept agentapi.CheckinUpgrade `json:"upgrade,omitzero"`
	// VersionSince is when Version first checked in.
	VersionSince *time.Time `json:"version_since,omitempty"`
	// HealthySince is since when the agent has said without a break that it is
	// well; nil while it does not.
	HealthySince *time.Time `json:"healthy_since,omitempty"`
	// LastHealthyVersion is the last one that was well while nobody watched it any
	// more: where a rollback goes.
	LastHealthyVersion string `json:"last_healthy_version,omitempty"`
	// UsualGap is how long the agent is usually silent at most, 0 before it ever
	// was for longer than parked agents are.
	UsualGap Duration `json:"usual_gap,omitempty"`
	// Watch is what the host's watcher said last, nil before it ever spoke.
	Watch *Watch `json:"watch,omitempty"`

	// Revision is the store's, for optimistic concurrency.
	Revision int64 `json:"-"`

	// read is a copy of what DecodeAgent read; nil: the agent was not read from a document.
	read *Agent
}

// LastSeen is what changes at every check-in.
type LastSeen struct {
	At      *time.Time // nil: never checked in
	Status  string     // online, degraded, error, starting
	Message string
	// ActionSeq is the sequence number of the last action the agent has shown
	// to have received. It only grows.
	ActionSeq int64
}

// Touch is a coalesced last-seen write. An empty Status means that the agent was
// seen, but said nothing new: status and message stay as they are.
type Touch struct {
	AgentID string
	At      time.Time // zero: ActionSeq is all there is
	Status  string
	Message string
	// ActionSeq is the number that the agent has shown; 0: none.
	ActionSeq int64
}

// UpgradeStatus is how the last upgrade stands: none (also after success),
// started, failed or rolled back.
type UpgradeStatus string

const (
	UpgradeNone       UpgradeStatus = ""
	UpgradeStarted    UpgradeStatus = "started"
	UpgradeFailed     UpgradeStatus = "failed"
	UpgradeRolledBack UpgradeStatus = "rolled_back"
)

// HostMetadata is what the server reads of an agent's local metadata.
type HostMetadata struct {
	Elastic struct {
		Agent struct {
			Version     string `json:"version"`
			Snapshot    bool   `json:"snapshot"`
			Upgradeable bool   `json:"upgradeable"`
		} `json:"agent"`
	} `json:"elastic"`
	Host struct {
		Hostname     string `json:"hostname"`
		Name         string `json:"name"`
		Architecture string `json:"architecture"`
	} `json:"host"`
	OS osMetadata `json:"os"`
}

type osMetadata struct {
	Platform string `json:"platform"` // debian
	Family   string `json:"family"`
	// Type is Go's name of the system (linux) in Muster's agents and Elastic's.
	Type string `json:"type"`
}

// FullVersion is the version that runs, with -SNAPSHOT where it is one; empty if
// the host did not say.
func (m HostMetadata) FullVersion() string {
	a := m.Elastic.Agent
	if a.Version == "" || !a.Snapshot || strings.HasSuffix(a.Version, "-SNAPSHOT") {
		return a.Version
	}
	return a.Version + "-SNAPSHOT"
}

// Host reads the local metadata. What is missing or malformed is zero.
func (a *Agent) Host() HostMetadata {
	var m HostMetadata
	_ = jsonv1.Unmarshal(a.LocalMetadata, &m) // other people's agents send what they like
	return m
}

// Hostname is the host's name, or the agent's id where it said none.
func (a *Agent) Hostname() string { return a.HostnameOn(a.Host()) }

// HostnameOn is Hostname for a caller that has read the host's metadata.
func (a *Agent) HostnameOn(m HostMetadata) string {
	for _, name := range []string{m.Host.Hostname, m.Host.Name} {
		if name != "" {
			return name
		}
	}
	return a.ID
}

// LastActivity is the last check-in, or the enrolment before the first.
func (a *Agent) LastActivity() time.Time {
	if a.Last.At != nil {
		return *a.Last.At
	}
	return a.EnrolledAt
}

// Policy groups agents. Its content comes later.
type Policy struct {
	ID                string        `json:"id"`
	Name              string        `json:"name"`
	Namespace         string        `json:"namespace"`
	Description       string        `json:"description,omitempty"`
	MonitoringEnabled []string      `json:"monitoring_enabled,omitempty"`
	PolicyRev         int64         `json:"revision"`
	InactivityTimeout time.Duration `json:"inactivity_timeout"` // 0: never inactive
	Protected         bool          `json:"is_protected,omitempty"`
	UpdatedAt         time.Time     `json:"updated_at"`
	UpdatedBy         string        `json:"updated_by"`
	Revision          int64         `json:"-"`
}

// DefaultInactivityTimeout is Fleet's: two weeks, past any holiday shutdown.
const DefaultInactivityTimeout = 14 * 24 * time.Hour

// DefaultPolicyID is the policy that exists from the first start.
const DefaultPolicyID = "default"

// Package is a published archive. Its bytes lie elsewhere.
type Package struct {
	File     string    `json:"file"` // archive name, and id
	Version  string    `json:"version"`
	Snapshot bool      `json:"snapshot"`
	Hash     string    `json:"hash"`
	OS       string    `json:"os"`
	Arch     string    `json:"arch"`
	Size     int64     `json:"size"`
	SHA256   string    `json:"sha256"`
	SHA512   string    `json:"sha512"`
	KeyID    string    `json:"key_id"`
	PushedAt time.Time `json:"pushed_at"`
	PushedBy string    `json:"pushed_by"`
	// Signature is the .minisig file.
	Signature []byte `json:"signature"`
	Revision  int64  `json:"-"`
	// Withheld says why hosts that trust the publishers' root will not install
	// it; empty where they will, or no root is published. It is not stored.
	Withheld string `json:"-"`
}

// Event is one thing that happened. Seq grows from event to event over all
// replicas.
type Event struct {
	Seq     int64           `json:"seq"`
	At      time.Time       `json:"at"`
	Type    string          `json:"type"`
	Subject string          `json:"subject"`
	Actor   string          `json:"actor,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// UpgradeEvent tells how the agent's upgrade stands.
func (a *Agent) UpgradeEvent() Event {
	data, err := json.Marshal(map[string]any{
		"version": a.Version, "action_id": a.UpgradeActionID, "target_version": a.UpgradeTarget,
		"upgrade_status": a.UpgradeStatus, "upgrade_details": a.UpgradeDetails,
	})
	if err != nil {
		panic(err) // types of ours
	}
	return Event{Type: EventAgentUpgrade, Subject: a.ID, Data: data}
}

// Event types. Append only.
const (
	EventAgentEnrolled   = "agent.enrolled"
	EventAgentStatus     = "agent.status"
	EventAgentUpgrade    = "agent.upgrade"
	EventAgentWatch      = "agent.watch"
	EventAgentUnenrolled = "agent.unenrolled"
	EventActionCreated   = "action.created"
	EventActionResult    = "action.result"
	EventActionCancelled = "action.cancelled"
	EventPackagePushed   = "package.pushed"
	EventPackageDeleted  = "package.deleted"
	EventKeyCreated      = "key.created"
	EventKeyRevoked      = "key.revoked"
	EventPolicyCreated   = "policy.created"
)
