// Package agentapi defines the wire format between agents and the server: Fleet
// Server's protocol, version 2023-06-01. Agents encode it and the server decodes it;
// either side may be Elastic's. The package imports no other package of Muster.
package agentapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// APIVersion is the value of the Elastic-Api-Version header, and the default if it is
// absent.
const APIVersion = "2023-06-01"

// Headers of the protocol.
const (
	HeaderAPIVersion = "Elastic-Api-Version"
	HeaderRequestID  = "X-Request-Id"
)

// Paths, with {id} for the agent's id.
const (
	PathStatus  = "/api/status"
	PathEnroll  = "/api/fleet/agents/enroll"
	PathCheckin = "/api/fleet/agents/{id}/checkin"
	PathAcks    = "/api/fleet/agents/{id}/acks"
	// PathArtifacts serves packages by file name, with ranges: the default
	// source of an UPGRADE.
	PathArtifacts = "/artifacts/"
	// PathElastic and PathElasticDownloads serve packages of Elastic's, with .sha512 and
	// .asc. Elastic Agents add beats/elastic-agent/ to the source that is configured.
	PathElastic          = PathArtifacts + "beats/elastic-agent/"
	PathElasticDownloads = "/downloads/beats/elastic-agent/"
	// PathOpenPGP serves the keys that these packages are signed with.
	PathOpenPGP = "/api/agents/upgrades/:version/pgp-public-key"
	// PathTrust serves the publishers' metadata by file name, such as
	// timestamp.json and 3.root.json; see package packaging/pkg/trust.
	PathTrust = "/trust/"
	// PathAgent has the newest agent for a platform, such as linux-amd64, for whoever holds an
	// enrollment token.
	PathAgent = "/api/muster/agent/"
	// PathBeacon accepts a [Beacon], authorized by the watcher's key.
	PathBeacon = "/api/fleet/agents/{id}/beacon"
	// PathHome answers a GET with [Home]. Agents ask the server of their enrolment while another one
	// has them, and after an UNENROLL. Fleet Server has no such path.
	PathHome = "/api/fleet/agents/{id}/home"
	// PathUploads accepts files in chunks; see [UploadBegin].
	PathUploads = "/api/fleet/uploads"
)

// Request body limits, in bytes as sent and as unpacked. They are many times what agents send: a
// host of Fleet needs less than 100 KB, a very large one some 300 KB. A Fleet Server unpacks a
// check-in to 20 MiB, which are a gigabyte once decoded.
const (
	MaxEnrollBody  = 128 << 10
	MaxCheckinBody = 1 << 20
	MaxAcksBody    = 1 << 20
	MaxBeaconBody  = 64 << 10
)

// Status is the response to GET /api/status: HTTP 200 if Status is HEALTHY, otherwise
// 503. Version is present only if the request has a valid key.
type Status struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	// Reason is why it is DEGRADED. Fleet Server has no such field.
	Reason  string         `json:"reason,omitempty"`
	Version *StatusVersion `json:"version,omitempty"`
}

// StatusVersion is the server's build.
type StatusVersion struct {
	Number    string `json:"number"`
	BuildHash string `json:"build_hash,omitempty"`
	BuildTime string `json:"build_time,omitempty"`
}

// Values of Status.Status.
const (
	StatusHealthy  = "HEALTHY"
	StatusDegraded = "DEGRADED"
	StatusStarting = "STARTING"
)

// Home says that the server wants an agent: its key is accepted, it is not unenrolled, and nobody has
// asked it to leave.
type Home struct {
	// Hosts are the servers (fleet.hosts) of the agent's policy. It is empty, and not absent, if the
	// policy names none.
	Hosts []string `json:"hosts"`
}

// EnrollRequest is authorized by an enrollment key.
type EnrollRequest struct {
	// Type is PERMANENT; EPHEMERAL and TEMPORARY are accepted too.
	Type string `json:"type"`
	// ID requests this agent id; with ReplaceToken, the request replaces the agent that
	// has it.
	ID           string         `json:"id,omitempty"`
	EnrollmentID string         `json:"enrollment_id,omitempty"`
	ReplaceToken string         `json:"replace_token,omitempty"`
	SharedID     string         `json:"shared_id,omitempty"` // ignored, as by Fleet Server
	Metadata     EnrollMetadata `json:"metadata"`
	// HeaderVersion is the server's: the UserAgentVersion of the request.
	HeaderVersion string `json:"-"`
}

// EnrollMetadata describes the host.
type EnrollMetadata struct {
	Local        json.RawMessage `json:"local,omitempty"`
	UserProvided json.RawMessage `json:"user_provided,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
}

// EnrollResponse has action "created".
type EnrollResponse struct {
	Action string     `json:"action"`
	Item   EnrollItem `json:"item"`
}

// EnrollItem is the new agent. AccessAPIKey cannot be shown again. It has the form of
// the Authorization header: base64(id:secret).
type EnrollItem struct {
	ID                   string            `json:"id"`
	Active               bool              `json:"active"`
	PolicyID             string            `json:"policy_id"`
	Type                 string            `json:"type"`
	EnrolledAt           time.Time         `json:"enrolled_at"`
	UserProvidedMetadata json.RawMessage   `json:"user_provided_metadata"`
	LocalMetadata        json.RawMessage   `json:"local_metadata"`
	AccessAPIKeyID       string            `json:"access_api_key_id"`
	AccessAPIKey         string            `json:"access_api_key"`
	Status               string            `json:"status"`
	Tags                 []string          `json:"tags"`
	Actions              []json.RawMessage `json:"actions"`
	// WatcherAPIKey is Muster's addition. It authorizes beacons for this agent and
	// nothing else, and cannot be shown again.
	WatcherAPIKey string `json:"watcher_api_key,omitempty"`
}

// CheckinRequest is the body of a long poll.
type CheckinRequest struct {
	// Status is required: online, error, degraded, starting, …
	Status     string          `json:"status"`
	Message    string          `json:"message"`
	AckToken   string          `json:"ack_token,omitempty"`
	LocalMeta  json.RawMessage `json:"local_metadata,omitempty"`
	Components json.RawMessage `json:"components,omitempty"`
	// PollTimeout is a Go duration: how long the agent is willing to wait.
	PollTimeout    string          `json:"poll_timeout,omitempty"`
	UpgradeDetails *UpgradeDetails `json:"upgrade_details,omitempty"`
	// UpgradesIdle means that the agent has read its journal and its queue, that neither has an
	// upgrade of the agent or of a component, and that the server has answered every result. An
	// agent that is starting, or that does not know the field, leaves it out. So an upgrade that is
	// missing in UpgradeDetails has ended only if it is set.
	UpgradesIdle      bool            `json:"upgrades_idle,omitempty"`
	AgentPolicyID     string          `json:"agent_policy_id,omitempty"`
	PolicyRevisionIdx int64           `json:"policy_revision_idx,omitempty"`
	Upgrade           *CheckinUpgrade `json:"upgrade,omitempty"`
	// StagedVersions are the versions that are installed beside the one that runs, and have not
	// run yet: full versions of the agent, and those of components as <name> <version>. nil is
	// that of an agent that does not know STAGE.
	StagedVersions []string `json:"staged_versions,omitzero"`
	// AwaitsAnswer means that a component is down until the server has answered, so that the
	// answer is to come at once, with whatever there is.
	AwaitsAnswer bool `json:"awaits_answer,omitempty"`
	// Instance is the program that checks in. A Fleet Server has no such field.
	Instance *Instance `json:"instance,omitempty"`
	// HeaderVersion is the server's: the UserAgentVersion of the request.
	HeaderVersion string `json:"-"`
}

// Instance tells the programs apart that check in with one agent's key: a cloned host has the key
// of its original. The machine's id is host.id in the metadata.
type Instance struct {
	// BootID is another one after each boot; empty if the system has none.
	BootID string `json:"boot_id,omitempty"`
	// ProcessID is another one after each start of the agent.
	ProcessID string `json:"process_id"`
}

// UserAgentVersion returns the version in the User-Agent header of an agent, such as
// "Elastic Agent v8.15.5", without what follows its first '-'; empty for other clients.
func UserAgentVersion(header string) string {
	const prefix = "elastic agent "
	if len(header) < len(prefix) || !strings.EqualFold(header[:len(prefix)], prefix) {
		return ""
	}
	v, _, _ := strings.Cut(strings.TrimSpace(header[len(prefix):]), "-")
	v = strings.TrimLeft(v, "vV")
	if v == "" || len(v) > maxHeaderVersion || strings.Trim(v, "0123456789.") != "" {
		return ""
	}
	return v
}

// maxHeaderVersion is more bytes than three numbers of a version have.
const maxHeaderVersion = 32

// CheckinUpgrade lists the versions that the host can go back to, and the sources of packages that have
// failed.
type CheckinUpgrade struct {
	Rollbacks []Rollback `json:"rollbacks,omitempty"`
	// FailedSources are the last of them, oldest first. A Fleet Server has no such field.
	FailedSources []FailedSource `json:"failed_sources,omitempty"`
}

// MaxFailedSources bounds the failed sources of a check-in: the mirrors of an order, a policy and a
// configuration.
const MaxFailedSources = 8

// FailedSource is a source that was asked for a package and has failed, though the package may have come
// from another one.
type FailedSource struct {
	// Package is the URL of the package there, without password and query.
	Package string `json:"package"`
	Reason  string `json:"reason"`
}

// Rollback is a version that the host can go back to.
type Rollback struct {
	Version    string    `json:"version"`
	ValidUntil time.Time `json:"valid_until"`
}

// Component is the part of a check-in's component that the server reads.
type Component struct {
	ID      string          `json:"id"`
	Type    string          `json:"type"`
	Status  string          `json:"status"`
	Message string          `json:"message"`
	Units   json.RawMessage `json:"units,omitempty"`
	ComponentReport
}

// UpgradeState is a phase of an upgrade.
type UpgradeState string

// Values of UpgradeState. COMPLETED is never sent; the details become absent instead.
const (
	UpgradeRequested   UpgradeState = "UPG_REQUESTED"
	UpgradeScheduled   UpgradeState = "UPG_SCHEDULED"
	UpgradeDownloading UpgradeState = "UPG_DOWNLOADING"
	UpgradeExtracting  UpgradeState = "UPG_EXTRACTING"
	UpgradeReplacing   UpgradeState = "UPG_REPLACING"
	UpgradeRestarting  UpgradeState = "UPG_RESTARTING"
	UpgradeWatching    UpgradeState = "UPG_WATCHING"
	UpgradeRollback    UpgradeState = "UPG_ROLLBACK"
	UpgradeFailed      UpgradeState = "UPG_FAILED"
)

// Known reports whether s is one of the phases.
func (s UpgradeState) Known() bool {
	switch s {
	case UpgradeRequested, UpgradeScheduled, UpgradeDownloading, UpgradeExtracting, UpgradeReplacing,
		UpgradeRestarting, UpgradeWatching, UpgradeRollback, UpgradeFailed:
		return true
	}
	return false
}

// Ended reports whether the upgrade has ended without success.
func (s UpgradeState) Ended() bool { return s == UpgradeRollback || s == UpgradeFailed }

// UpgradeDetails is an agent's report on its upgrade.
type UpgradeDetails struct {
	TargetVersion string          `json:"target_version"`
	ActionID      string          `json:"action_id"`
	State         UpgradeState    `json:"state"`
	Metadata      UpgradeMetadata `json:"metadata,omitzero"`
}

// UpgradeMetadata depends on the state: ScheduledAt in SCHEDULED, the download fields
// in DOWNLOADING, the retry fields in both, the rest in FAILED and ROLLBACK. An agent
// that will retry goes back to SCHEDULED: ScheduledAt is then the next attempt,
// RetryErrorMsg why the last one failed.
type UpgradeMetadata struct {
	ScheduledAt     *time.Time `json:"scheduled_at,omitempty"`
	DownloadPercent float64    `json:"download_percent,omitempty"` // 0 to 100
	DownloadRate    Rate       `json:"download_rate,omitempty"`
	RetryErrorMsg   string     `json:"retry_error_msg,omitempty"`
	RetryUntil      *time.Time `json:"retry_until,omitempty"` // no attempt begins after it
	// RetryAttempt counts the attempts after the first, and RetryLimit is their
	// maximum. Fleet Server has neither.
	RetryAttempt int          `json:"retry_attempt,omitempty"`
	RetryLimit   int          `json:"retry_limit,omitempty"`
	FailedState  UpgradeState `json:"failed_state,omitempty"`
	ErrorMsg     string       `json:"error_msg,omitempty"`
	// Reason is a text for operators ("watch failed" from Elastic's agents).
	Reason string `json:"reason,omitempty"`
	// ReasonCode is Muster's typed reason, such as crash_loop.
	ReasonCode string `json:"reason_code,omitempty"`
	// Phase is that of a component's upgrade.
	Phase string `json:"phase,omitempty"`
	// Lockstep is that of a component's upgrade in lockstep; nil: it is none.
	Lockstep *LockstepReport `json:"lockstep,omitempty"`
}

// Rate is in bytes per second. Elastic's agents send a number or text such as
// "10kBps".
type Rate float64

// UnmarshalJSON accepts both forms.
func (r *Rate) UnmarshalJSON(b []byte) error {
	var number float64
	if err := json.Unmarshal(b, &number); err == nil {
		*r = Rate(number)
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("download_rate: want a number or text such as %q", "10kBps")
	}
	digits := strings.TrimRight(s, "BGMTkps")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return fmt.Errorf("download_rate: is %q, want a number or text such as %q", s, "10kBps")
	}
	unit := s[len(digits):]
	factor, ok := map[string]float64{"": 1, "Bps": 1, "kBps": 1e3, "MBps": 1e6, "GBps": 1e9, "TBps": 1e12}[unit]
	if !ok {
		return fmt.Errorf("download_rate: is %q, its unit %q is unknown", s, unit)
	}
	// JSON cannot represent NaN and infinities.
	if n *= factor; math.IsNaN(n) || math.IsInf(n, 0) {
		return fmt.Errorf("download_rate: is %q, want a finite number", s)
	}
	*r = Rate(n)
	return nil
}

// CheckinResponse has action "checkin". AckToken is "" if nothing was delivered; the
// agent then keeps its token.
type CheckinResponse struct {
	AckToken string   `json:"ack_token"`
	Action   string   `json:"action"`
	Actions  []Action `json:"actions"`
}

// ActionType is the type of an action.
type ActionType string

// Action types that the server delivers to agents.
const (
	ActionUpgrade              ActionType = "UPGRADE"
	ActionUnenroll             ActionType = "UNENROLL"
	ActionPolicyChange         ActionType = "POLICY_CHANGE"
	ActionPolicyReassign       ActionType = "POLICY_REASSIGN"
	ActionSettings             ActionType = "SETTINGS"
	ActionCancel               ActionType = "CANCEL"
	ActionRequestDiagnostics   ActionType = "REQUEST_DIAGNOSTICS"
	ActionInput                ActionType = "INPUT_ACTION"
	ActionMigrate              ActionType = "MIGRATE"
	ActionPrivilegeLevelChange ActionType = "PRIVILEGE_LEVEL_CHANGE"
	// ActionStage is known to Muster's agents only. Its data is UpgradeData: the version is
	// fetched, verified and unpacked, and nothing that runs is changed. The agent acknowledges
	// it once the version is staged.
	ActionStage ActionType = "STAGE"
	// ActionProceed is known to Muster's agents only, and its data is ProceedData.
	ActionProceed ActionType = "PROCEED"
)

// ActionUpdateTags is Kibana's type for the record of changed tags. It is never delivered.
const ActionUpdateTags ActionType = "UPDATE_TAGS"

// ActionForceUnenroll is Kibana's type for the record of a forced unenrolment. It is
// never delivered.
const ActionForceUnenroll ActionType = "FORCE_UNENROLL"

// Action is what an agent is asked to do.
type Action struct {
	ID        string     `json:"id"`
	AgentID   string     `json:"agent_id"`
	Type      ActionType `json:"type"`
	CreatedAt time.Time  `json:"created_at"`
	InputType string     `json:"input_type"`
	// Data depends on Type: UpgradeData for UPGRADE, and so on. UNENROLL has none, and that
	// of an INPUT_ACTION is the input's.
	Data       json.RawMessage `json:"data,omitempty"`
	StartTime  *time.Time      `json:"start_time,omitempty"`
	Expiration *time.Time      `json:"expiration,omitempty"`
	// Timeout is how many seconds the input of an INPUT_ACTION has.
	Timeout int64   `json:"timeout,omitempty"`
	Signed  *Signed `json:"signed,omitempty"`
}

// EncodedAction is an action that many agents receive, encoded once: only the agent's id
// differs between them.
type EncodedAction struct {
	ID             string
	before, behind []byte
}

// EncodeAction encodes an action without its AgentID.
func EncodeAction(a Action) EncodedAction {
	a.AgentID = ""
	b, err := json.Marshal(a)
	if err != nil {
		panic("action " + a.ID + ": " + err.Error()) // Data is JSON already
	}
	// Quotes within JSON strings are escaped, and the field comes before Data, so this only
	// matches the field.
	const field = `"agent_id":`
	at := bytes.Index(b, []byte(field+`""`)) + len(field)
	return EncodedAction{a.ID, b[:at:at], b[at+len(`""`):]}
}

// AppendTo appends the action of an agent to b.
func (e EncodedAction) AppendTo(b []byte, agentID string) []byte {
	id, err := json.Marshal(agentID)
	if err != nil {
		panic(err) // a string always encodes
	}
	b = append(append(b, e.before...), id...)
	return append(b, e.behind...)
}

// Len is the length of the action without the agent's id.
func (e EncodedAction) Len() int { return len(e.before) + len(e.behind) }

// Signed is the signed copy of an action, for agents that are protected from tampering.
type Signed struct {
	Data      string `json:"data"`
	Signature string `json:"signature"`
}

// UpgradeData is the data of an UPGRADE.
type UpgradeData struct {
	Version string `json:"version"` // full version, 1.1.0 or 1.1.0-SNAPSHOT
	// SourceURI is a base URL that holds <archive>; empty
	// means the server's own PathArtifacts.
	SourceURI string `json:"source_uri,omitempty"`
	Rollback  bool   `json:"rollback,omitempty"`
	// Force installs a version even if it was rolled back on the host before. Elastic's
	// agents ignore it.
	Force bool `json:"force,omitempty"`
	// Component makes it the upgrade of a component; nil: the agent upgrades itself.
	Component *ComponentData `json:"component,omitempty"`
}

// CancelData is the data of a CANCEL.
type CancelData struct {
	TargetID string `json:"target_id"`
}

// PolicyChangeData is the data of a POLICY_CHANGE, whose id is
// policy:<id>:<revision>.
type PolicyChangeData struct {
	Policy json.RawMessage `json:"policy"`
}

// PolicyReassignData is the data of a POLICY_REASSIGN.
type PolicyReassignData struct {
	PolicyID string `json:"policy_id"`
}

// SettingsData is the data of a SETTINGS. A LogLevel of nil is null on the wire: the agent
// returns to the level of its policy.
type SettingsData struct {
	LogLevel *string `json:"log_level"`
}

// RequestDiagnosticsData is the data of a REQUEST_DIAGNOSTICS, which may have none.
type RequestDiagnosticsData struct {
	AdditionalMetrics []string `json:"additional_metrics,omitempty"` // CPU, CONN
	ExcludeEventsLog  bool     `json:"exclude_events_log,omitempty"`
}

// MigrateData is the data of a MIGRATE: the agent leaves this server and enrols at another.
type MigrateData struct {
	TargetURI       string          `json:"target_uri"`
	EnrollmentToken string          `json:"enrollment_token"`
	Settings        json.RawMessage `json:"settings,omitempty"`
}

// PrivilegeLevelChangeData is the data of a PRIVILEGE_LEVEL_CHANGE.
type PrivilegeLevelChangeData struct {
	Unprivileged bool      `json:"unprivileged"`
	UserInfo     *UserInfo `json:"user_info,omitempty"`
}

// UserInfo names the account that an agent shall run as.
type UserInfo struct {
	Username  string `json:"username,omitempty"`
	Groupname string `json:"groupname,omitempty"`
	Password  string `json:"password,omitempty"`
}

// AckRequest reports the results of actions.
type AckRequest struct {
	Events []AckEvent `json:"events"`
}

// AckEvent is the result of one action. A non-empty Error means that it failed.
type AckEvent struct {
	Type      string          `json:"type"`    // ACTION_RESULT
	Subtype   string          `json:"subtype"` // ACKNOWLEDGED
	AgentID   string          `json:"agent_id"`
	ActionID  string          `json:"action_id"`
	Message   string          `json:"message"`
	Timestamp time.Time       `json:"timestamp"`
	Error     string          `json:"error,omitempty"`
	Payload   *AckPayload     `json:"payload,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
}

// Constant fields of an AckEvent.
const (
	AckType    = "ACTION_RESULT"
	AckSubtype = "ACKNOWLEDGED"
)

// Cancelled begins the error of an UPGRADE that was ended by a CANCEL, in its
// acknowledgement and in FAILED details.
const Cancelled = "cancelled"

// FailedBefore occurs in the error of an UPGRADE to a version that the host refuses
// because it failed there before.
const FailedBefore = "failed here before"

// Reason codes of upgrades that failed because of the host or the package, mostly before anything ran. The
// phase alone would blame the download.
const (
	ReasonNoSpace   = "no_space"  // the disk has too little room
	ReasonUntrusted = "untrusted" // the host does not trust the publisher, or the signature is bad
	ReasonSettings  = "settings"  // the host's configuration or identity is not valid; also of a rollback
)

// Unwritable occurs in the message of a DEGRADED host that cannot write to its disk.
const Unwritable = "cannot write to its disk"

// ReasonUnwritable is the reason_code of a rollback on a host that cannot write to its disk.
const ReasonUnwritable = "unwritable"

// NoFaults are the reason codes of rollbacks that say nothing of the version: somebody asked for the
// rollback, or the host itself kept the version from running. It may be tried again.
func NoFaults() []string { return []string{ReasonManual, ReasonSettings, ReasonUnwritable} }

// IsFault reports whether a rollback with this reason_code says that the version is bad.
func IsFault(reasonCode string) bool { return !slices.Contains(NoFaults(), reasonCode) }

// ReasonManual is the reason_code of a rollback that somebody asked for.
const ReasonManual = "manual"

// The reason_code of a component's new version that its host has put back, if the host knows one.
const (
	ReasonCrashLoop   = "crash_loop"   // it was restarted too often
	ReasonNotRunning  = "not_running"  // it ended, or never ran
	ReasonNotReady    = "not_ready"    // it runs, and does not get ready
	ReasonCheckFailed = "check_failed" // a check of the package or of the policy fails
)

// AckPayload accompanies a failed UPGRADE.
type AckPayload struct {
	Retry        bool `json:"retry"`
	RetryAttempt int  `json:"retry_attempt"`
}

// AckResponse has action "acks" and one item per event, in order. The HTTP
// status is the highest item status.
type AckResponse struct {
	Action string    `json:"action"`
	Errors bool      `json:"errors,omitempty"`
	Items  []AckItem `json:"items"`
}

// AckItem is the response to one event.
type AckItem struct {
	Status  int    `json:"status"`
	Message string `json:"message,omitempty"`
}

// Error is the body of every error response.
type Error struct {
	StatusCode int    `json:"statusCode"`
	Code       string `json:"error"`
	Message    string `json:"message"`
}

func (e *Error) Error() string { return e.Message }
