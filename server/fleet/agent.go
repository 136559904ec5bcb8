package fleet

import (
	"encoding/json"
	"strings"
	"time"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Agent is the stored document of one agent. Field names are those of Fleet's agent
// index.
type Agent struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Active    bool   `json:"active"`
	PolicyID  string `json:"policy_id"`
	PolicyRev int64  `json:"policy_revision_idx,omitempty"`
	// PolicyCoordinator is the coordinator's number of the revision that the agent last
	// acknowledged; nil: that revision has none.
	PolicyCoordinator *int64 `json:"policy_coordinator_idx,omitempty"`
	EnrollmentID      string `json:"enrollment_id,omitempty"`
	// ReplaceTokenHash lets the host that has the token enrol again under ID.
	ReplaceTokenHash string `json:"replace_token,omitempty"`

	AccessKeyID   string `json:"access_api_key_id"`
	AccessKeyHash string `json:"access_api_key_hash"`
	// The watcher's key, valid for beacons only.
	WatcherKeyID   string `json:"watcher_api_key_id,omitempty"`
	WatcherKeyHash string `json:"watcher_api_key_hash,omitempty"`

	EnrolledAt            time.Time  `json:"enrolled_at"`
	UnenrolledAt          *time.Time `json:"unenrolled_at,omitempty"`
	UnenrolledReason      string     `json:"unenrolled_reason,omitempty"`
	UnenrollmentStartedAt *time.Time `json:"unenrollment_started_at,omitempty"`
	AuditUnenrolledReason string     `json:"audit_unenrolled_reason,omitempty"`
	AuditUnenrolledTime   *time.Time `json:"audit_unenrolled_time,omitempty"`
	// OrdersEndedAt is when the orders were ended that were open when the agent left; nil: it has not
	// left, or they still have to be.
	OrdersEndedAt *time.Time `json:"orders_ended_at,omitempty"`

	// Last is the state of the last check-in. It is written in bulk, apart from the
	// rest of the document.
	Last LastSeen `json:"-"`

	Version       string          `json:"version"`
	LocalMetadata json.RawMessage `json:"local_metadata,omitempty"`
	UserMetadata  json.RawMessage `json:"user_provided_metadata,omitempty"`
	Components    json.RawMessage `json:"components,omitempty"`
	// ComponentUpgrades are the last upgrades of components, by name.
	ComponentUpgrades map[string]ComponentUpgrade `json:"component_upgrades,omitempty"`
	// ComponentActions are the actions of those under way, and ComponentsSince is when the
	// first of them began.
	ComponentActions []string   `json:"component_actions,omitempty"`
	ComponentsSince  *time.Time `json:"component_upgrade_started_at,omitempty"`
	Tags             []string   `json:"tags"`
	// UnhealthyReason is what of the agent is unhealthy: input, output or other.
	UnhealthyReason []string `json:"unhealthy_reason,omitempty"`

	Upgrade
	// Kept lists the versions the host can go back to.
	Kept agentapi.CheckinUpgrade `json:"upgrade,omitzero"`
	// StagedVersions are what the last check-in said of them; nil: the agent knows no STAGE.
	StagedVersions []string `json:"staged_versions,omitzero"`
	// VersionSince is when Version first checked in.
	VersionSince *time.Time `json:"version_since,omitempty"`
	// HealthySince is when the agent began to report without a break that it is
	// healthy; nil while it does not.
	HealthySince *time.Time `json:"healthy_since,omitempty"`
	// LastHealthyVersion is the last version that was healthy after its watch had
	// ended. Rollbacks go there.
	LastHealthyVersion string `json:"last_healthy_version,omitempty"`
	// UsualGap is the longest silence that is usual for the agent; 0 if it was never
	// silent for longer than parked agents are.
	UsualGap Duration `json:"usual_gap,omitempty"`
	// Diagnostics are the latest requests for diagnostics, the newest last.
	Diagnostics []DiagnosticsRequest `json:"diagnostics,omitempty"`
	// Bearers are the programs that have checked in with the agent's key lately, in the order in
	// which they first did.
	Bearers []Bearer `json:"bearers,omitempty"`
	// SharedSince is since when several of them check in side by side, nil while there is one.
	SharedSince *time.Time `json:"shared_since,omitempty"`
	// NewHostSince is since when a machine with another id than the document's checks in. It is nil
	// again when one of the two was alone for a minute, or both count as sharing the identity.
	NewHostSince *time.Time `json:"new_host_since,omitempty"`
	// Watch is the last beacon of the host's watcher, nil before the first.
	Watch *Watch `json:"watch,omitempty"`

	// Revision is set by the store, for optimistic concurrency.
	Revision int64 `json:"-"`

	// read is a copy of what was read; nil: the agent was not read from a document.
	read *Agent
}

// LastSeen is the part of an agent that changes at every check-in.
type LastSeen struct {
	At      *time.Time // nil: never checked in
	Status  string     // online, degraded, error, starting
	Message string
	// ActionSeq is the sequence number of the last action the agent has confirmed
	// to have received. It never decreases.
	ActionSeq int64
}

// Touch is a coalesced last-seen write. An empty Status means that the agent was seen
// and reported nothing new: status and message stay as they are.
type Touch struct {
	AgentID string
	At      time.Time // zero: only ActionSeq is written
	Status  string
	Message string
	// ActionSeq is the sequence number that the agent has confirmed; 0: none.
	ActionSeq int64
}

// UpgradeStatus is the state of the last upgrade: none (also after success), started,
// failed or rolled back.
type UpgradeStatus string

const (
	UpgradeNone       UpgradeStatus = ""
	UpgradeStarted    UpgradeStatus = "started"
	UpgradeFailed     UpgradeStatus = "failed"
	UpgradeRolledBack UpgradeStatus = "rolled_back"
)

// HostMetadata is the part of an agent's local metadata that the server reads.
type HostMetadata struct {
	Elastic struct {
		Agent struct {
			Version     string `json:"version"`
			Snapshot    bool   `json:"snapshot"`
			Upgradeable bool   `json:"upgradeable"`
			Build       struct {
				Original string `json:"original"`
			} `json:"build"`
		} `json:"agent"`
	} `json:"elastic"`
	Host struct {
		ID           string `json:"id"` // the machine's
		Hostname     string `json:"hostname"`
		Name         string `json:"name"`
		Architecture string `json:"architecture"`
	} `json:"host"`
	OS     osMetadata `json:"os"`
	Muster struct {
		// FreeBytes is what is free on the disk of the agent, rounded down; nil if it does not
		// report that.
		FreeBytes *int64 `json:"free_bytes"`
	} `json:"muster"`
	// Maker is whose agent it is.
	Maker Maker `json:"-"`
}

type osMetadata struct {
	Platform string `json:"platform"` // debian
	Family   string `json:"family"`
	// Type is Go's name of the system, such as linux. Where the agent does not report it,
	// it is derived from platform and family, and is empty if these are not known.
	Type string `json:"type"`
}

// FullVersion returns the version that runs, with -SNAPSHOT if it is a snapshot; empty
// if the host did not report it.
func (m HostMetadata) FullVersion() string {
	a := m.Elastic.Agent
	if a.Version == "" || !a.Snapshot || strings.Contains(a.Version, "-SNAPSHOT") {
		return a.Version
	}
	if m.Maker == MakerElastic {
		// Its build metadata comes last, as Semantic Versioning wants.
		version, build, _ := strings.Cut(a.Version, "+")
		return strings.TrimSuffix(version+"-SNAPSHOT+"+build, "+")
	}
	return a.Version + "-SNAPSHOT"
}

// Host decodes the local metadata. Missing or malformed parts are zero.
func (a *Agent) Host() HostMetadata {
	var m HostMetadata
	_ = jsonv1.Unmarshal(a.LocalMetadata, &m) // agents of other makers send what they like
	m.Maker = m.maker()
	m.OS.Type = m.OS.system()
	return m
}

// MaxHostname is the length of the longest name in DNS, in characters. A host that reported a
// longer one to an earlier version is listed by its first characters.
const MaxHostname = 253

// Hostname returns the host's name, or the agent's id if the host reported none.
func (a *Agent) Hostname() string { return a.HostnameOn(a.Host()) }

// HostnameOn is Hostname for a caller that has already decoded the host's metadata.
func (a *Agent) HostnameOn(m HostMetadata) string {
	for _, name := range []string{m.Host.Hostname, m.Host.Name} {
		if name != "" {
			return firstRunes(name, MaxHostname)
		}
	}
	return a.ID
}

// LastActivity returns the time of the last check-in, or that of the enrolment before
// the first.
func (a *Agent) LastActivity() time.Time {
	if a.Last.At != nil {
		return *a.Last.At
	}
	return a.EnrolledAt
}

// Package describes a published archive. Its bytes are stored apart.
type Package struct {
	File     string `json:"file"` // archive name, and id
	Version  string `json:"version"`
	Snapshot bool   `json:"snapshot"`
	Hash     string `json:"hash"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	SHA512   string `json:"sha512"`
	// KeyID is the OpenPGP key that signed an Elastic package.
	KeyID    string    `json:"key_id"`
	PushedAt time.Time `json:"pushed_at"`
	PushedBy string    `json:"pushed_by"`
	// Component is the name of the component whose package it is, empty: it is an agent's.
	// Runtime is how hosts run the component, and Image the image of a container.
	Component string `json:"component,omitempty"`
	Runtime   string `json:"runtime,omitempty"`
	Image     string `json:"image,omitempty"`
	// ServerFiles are the files, and with a slash at the end the folders, that the publishers
	// let a server write.
	ServerFiles []string `json:"server_files,omitempty"`
	// Migrations are those of the component's state, oldest first.
	Migrations []PackageMigration `json:"migrations,omitempty"`
	// Maker is whose agents it is for.
	Maker Maker `json:"maker,omitempty"`
	// OpenPGP is the .asc file of an Elastic package.
	OpenPGP  []byte `json:"openpgp,omitempty"`
	Revision int64  `json:"-"`
	// Withheld is why hosts that trust the publishers' root refuse the package; empty
	// if they accept it, or if no root is published. It is not stored.
	Withheld string `json:"-"`
	// BelowFloor means that it is withheld because the publishers allow no version below a higher
	// one. Hosts refuse it also with force.
	BelowFloor bool `json:"-"`
	// Downgrade means that the publishers let hosts go back to this version. It is not
	// stored.
	Downgrade bool `json:"-"`
	// Needs is how many bytes must be free on a host that upgrades to it; 0 if that is not known. It
	// is not stored.
	Needs int64 `json:"-"`
}

// PackageMigration is a migration of a component's state; see manifest.Migration.
type PackageMigration struct {
	Version string `json:"version"`
	Down    bool   `json:"down,omitempty"`
}

// Event records something that happened. Seq increases across all servers.
type Event struct {
	Seq     int64           `json:"seq"`
	At      time.Time       `json:"at"`
	Type    string          `json:"type"`
	Subject string          `json:"subject"`
	Actor   string          `json:"actor,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// UpgradeEvent returns an event with the state of a component, or of the agent's upgrade if the name is
// empty.
func (a *Agent) UpgradeEvent(component string) Event {
	e, s := Event{Type: EventAgentUpgrade, Subject: a.ID}, a.Of(component)
	values := map[string]any{
		"version": s.Version, "action_id": s.UpgradeActionID, "target_version": s.UpgradeTo,
		"upgrade_status": s.UpgradeStatus, "upgrade_details": s.UpgradeDetails,
	}
	if component != "" {
		e.Type = EventAgentComponent
		values["component"], values["status"], values["upgrade_details"] = component, s.component.Status, s.component.LastDetails()
	}
	var err error
	if e.Data, err = json.Marshal(values); err != nil {
		panic(err) // our own types always encode
	}
	return e
}
