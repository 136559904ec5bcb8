package adminapi

import (
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// The operations of the area server.
var (
	GetStatus = op[None, KibanaStatus](Call{
		ID: "getStatus", Method: http.MethodGet, Path: "/api/status",
		Area: AreaServer, Permission: "server.read",
		Summary: "Get the version and state of the server, as Kibana's clients expect it",
		Answer:  "The server",
	})

	StreamEvents = op[None, Event](Call{
		ID: "streamEvents", Method: http.MethodGet, Path: "/api/v1/events",
		Area: AreaServer, Permission: "events.read",
		Summary:     "Follow events, in order, as server-sent events",
		Description: `Each message has an id (the event's sequence number), an event name (its type) and an Event as data. With Last-Event-ID, or after, the stream resumes after that event; without either it starts with the next event. If the server no longer has all events after that id, the first message has the type "reset": read the lists again. A comment line every 15 s keeps the connection open.`,
		Answer:      "The stream",
		AnswerType:  "text/event-stream",
		Admission:   Transfer,
		Params: []Param{
			{Name: "after", Is: int64(0), Schema: "minimum=0"},
			{Name: "Last-Event-ID", In: "header", Is: int64(0)},
		},
	})

	ListTrail = op[None, AuditList](Call{
		ID: "listTrail", Method: http.MethodGet, Path: "/api/v1/audit",
		Area: AreaServer, Permission: "audit.read",
		Summary:     "List who changed what, how and why, newest first",
		Description: "Every call that changes something is recorded. Each takes its reason from the query parameter why or, where it has one, from the field why of its body.",
		Answer:      "The page",
		Params: []Param{
			{Name: "subject", Doc: "Only entries about this: the id of an action, rollout, group, key, policy or webhook, or a package's file"},
			{Name: "actor", Doc: "Only what this admin key did, by its name; muster: the server's own steps"},
			{Name: "people", Is: false, Schema: "default=false", Doc: "Only what people and pipelines did, without the server's own steps"},
			{Name: "verb", Doc: "Only this verb, such as rollout.pause, or all verbs of a noun, such as rollout"},
			{Name: "since", Is: time.Time{}, Doc: "Only entries from this time on"},
			{Name: "until", Is: time.Time{}, Doc: "Only entries until this time"},
			{Name: "q", Schema: "maxLength=200", Doc: "Only entries that contain each of these words in the actor, verb, subject, reason or text, whatever their case; at most 10 words"},
			page,
			perPage,
		},
	})

	ListServers = op[None, KnownServerList](Call{
		ID: "listServers", Method: http.MethodGet, Path: "/api/v1/servers",
		Area: AreaServer, Permission: "servers.read",
		Summary:     "List the servers of the installation",
		Description: "Every server writes every few seconds that it runs. One that has not for 15 s is away, and after 7 days it is removed from the list.",
		Answer:      "The servers",
	})

	ForgetServer = op[None, ActionWord](Call{
		ID: "forgetServer", Method: http.MethodDelete, Path: "/api/v1/servers/{serverId}",
		Area: AreaServer, Permission: "servers.forget",
		Summary: "Remove a server that is away from the list",
		Answer:  "Removed",
		Params: []Param{
			{Name: "why", Doc: "For the audit trail"},
		},
	})

	GetMetrics = op[None, Text](Call{
		ID: "getMetrics", Method: http.MethodGet, Path: "/metrics",
		Area: AreaServer, Permission: "metrics.read",
		Summary:    "Get metrics for Prometheus",
		Answer:     "The metrics",
		AnswerType: "text/plain",
	})

	GetReadiness = op[None, Text](Call{
		ID: "getReadiness", Method: http.MethodGet, Path: "/readyz",
		Area:        AreaServer,
		Summary:     "Find out whether the server is ready",
		Description: "For probes and load balancers, without credentials. Status 200 means that requests can be sent to this server; 503 that its store does not answer, or that it is shutting down. The message has the reason.",
		Answer:      "Ready",
		AnswerType:  "text/plain",
		Admission:   Stranger,
	})

	GetServer = op[None, Server](Call{
		ID: "getServer", Method: http.MethodGet, Path: "/api/v1/server",
		Area: AreaServer, Permission: "server.read",
		Summary: "Get the server's version and what hosts need to enrol",
		Answer:  "The server",
	})

	GetEnrollmentCommands = op[None, EnrollmentCommands](Call{
		ID: "getEnrollmentCommands", Method: http.MethodGet, Path: "/api/v1/enrollment_commands",
		Area: AreaServer, Permission: "enrollment_keys.read",
		Summary:     "Get the commands that install and enrol a host, one for each platform",
		Description: "Each is one line that downloads the newest agent from this server and installs it. The word token_word in it stands for an enrollment token.",
		Answer:      "The commands",
	})

	GetAttention = op[None, Attention](Call{
		ID: "getAttention", Method: http.MethodGet, Path: "/api/v1/attention",
		Area: AreaServer, Permission: "agents.read",
		Summary: "List what waits for a person, the most urgent first, and the numbers of the badges",
		Answer:  "The list",
	})

	GetSeries = op[None, Series](Call{
		ID: "getSeries", Method: http.MethodGet, Path: "/api/v1/series",
		Area: AreaServer, Permission: "agents.read",
		Summary: "Get the numbers of agents by version and by health over time",
		Answer:  "The series",
		Params: []Param{
			{Name: "window", Schema: "enum=24h|7d|30d,default=24h"},
		},
	})

	ListViews = op[None, ViewList](Call{
		ID: "listViews", Method: http.MethodGet, Path: "/api/v1/views",
		Area: AreaServer, Permission: "views.read",
		Summary: "List the saved views of lists, by name",
		Answer:  "The views",
	})

	SaveView = op[SaveViewRequest, ViewItem](Call{
		ID: "saveView", Method: http.MethodPost, Path: "/api/v1/views",
		Area: AreaServer, Permission: "views.write",
		Summary: "Save a view, which replaces the one of the same page and name",
		Answer:  "The view",
	})

	DeleteView = op[None, ActionWord](Call{
		ID: "deleteView", Method: http.MethodDelete, Path: "/api/v1/views/{viewId}",
		Area: AreaServer, Permission: "views.write",
		Summary: "Delete a saved view",
		Answer:  "Deleted",
	})

	GetServerSettings = op[None, Settings](Call{
		ID: "getServerSettings", Method: http.MethodGet, Path: "/api/v1/settings",
		Area: AreaServer, Permission: "server.read",
		Summary: "Get the settings in force on this server, without secrets, and where each comes from",
		Answer:  "The settings",
	})

	LogIn = op[LogInRequest, Session](Call{
		ID: "logIn", Method: http.MethodPost, Path: "/api/v1/session",
		Area:      AreaServer,
		Summary:   "Exchange an admin API key for a session cookie",
		Answer:    "Logged in; Set-Cookie has the session",
		Admission: Stranger,
	})

	GetSession = op[None, Session](Call{
		ID: "getSession", Method: http.MethodGet, Path: "/api/v1/session",
		Area:    AreaServer,
		Summary: "Get the current session",
		Answer:  "The session",
	})

	LogOut = op[None, Empty](Call{
		ID: "logOut", Method: http.MethodDelete, Path: "/api/v1/session",
		Area:           AreaServer,
		Summary:        "Log out, which ends all sessions of the caller's admin key",
		Answer:         "Logged out; Set-Cookie removes the session",
		DuringUpgrades: true,
	})

	ListAdminKeys = op[None, AdminKeyList](Call{
		ID: "listAdminKeys", Method: http.MethodGet, Path: "/api/v1/admin_keys",
		Area: AreaServer, Permission: "admin_keys.read",
		Summary: "List the admin keys, newest first",
		Answer:  "The keys",
		Params: []Param{
			page,
			perPage,
		},
	})

	CreateAdminKey = op[CreateAdminKeyRequest, AdminKeyItem](Call{
		ID: "createAdminKey", Method: http.MethodPost, Path: "/api/v1/admin_keys",
		Area: AreaServer, Permission: "admin_keys.write",
		Summary: "Create an admin key. Its secret is only in this response",
		Answer:  "The key",
	})

	RevokeAdminKey = op[None, ActionWord](Call{
		ID: "revokeAdminKey", Method: http.MethodDelete, Path: "/api/v1/admin_keys/{keyId}",
		Area: AreaServer, Permission: "admin_keys.write",
		Summary:     "Revoke an admin key, which also ends its sessions",
		Description: "A key is not revoked (409) if no other one is usable for a day; rotate it instead.",
		Answer:      "Revoked",
	})

	RotateAdminKey = op[RotateAdminKeyRequest, AdminKeyItem](Call{
		ID: "rotateAdminKey", Method: http.MethodPost, Path: "/api/v1/admin_keys/{keyId}/rotate",
		Area: AreaServer, Permission: "admin_keys.write",
		Summary:     "Create a key with the same name, and revoke this one",
		Description: "Only the key itself may do so (403).",
		Answer:      "The new key",
	})
)

// Attention is the answer of GET /api/v1/attention.
type Attention struct {
	Items          []AttentionItem `json:"items"`
	FailuresUnseen int             `json:"failures_unseen"`
	IncidentsOpen  int             `json:"incidents_open"`
}

// AttentionItem is something that needs an operator.
type AttentionItem struct {
	Kind     AttentionItemKind     `json:"kind"`
	Severity AttentionItemSeverity `json:"severity"`
	// What is the matter, as a sentence
	Text string `json:"text"`
	// What to do
	Next *string `json:"next,omitempty"`
	// Id of the rollout, incident, webhook, server or key; name of the fleet
	Subject *string `json:"subject,omitempty"`
	// Hosts or letters concerned
	Count *int       `json:"count,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	// When it expires
	Until *time.Time `json:"until,omitempty"`
}

// AttentionItemKind is a value of kind of AttentionItem.
type AttentionItemKind string

// Values of AttentionItemKind.
const (
	AttentionApproval    AttentionItemKind = "approval"
	AttentionIncident    AttentionItemKind = "incident"
	AttentionFailures    AttentionItemKind = "failures"
	AttentionPaused      AttentionItemKind = "paused"
	AttentionStalled     AttentionItemKind = "stalled"
	AttentionDegraded    AttentionItemKind = "degraded"
	AttentionSuspended   AttentionItemKind = "suspended"
	AttentionTrust       AttentionItemKind = "trust"
	AttentionKey         AttentionItemKind = "key"
	AttentionDeadLetters AttentionItemKind = "dead_letters"
	AttentionServer      AttentionItemKind = "server"
	AttentionUpgrade     AttentionItemKind = "upgrade"
)

// AttentionItemSeverity is a value of severity of AttentionItem.
type AttentionItemSeverity string

// Values of AttentionItemSeverity.
const (
	AttentionItemSeveritySeverityCritical AttentionItemSeverity = "critical"
	AttentionItemSeveritySeverityWarning  AttentionItemSeverity = "warning"
	AttentionItemSeveritySeverityInfo     AttentionItemSeverity = "info"
)

// Series are numbers of agents that are not unenrolled, sampled by the server.
type Series struct {
	StepSeconds int         `json:"step_seconds"`
	Times       []time.Time `json:"times"`
	// The ten that most agents ran, and the others together
	Versions []SeriesLine `json:"versions"`
	Health   []SeriesLine `json:"health"`
}

// SeriesLine is one line of a series: a number for each of its times.
type SeriesLine struct {
	// A version, or a health; empty: all other versions
	Name string `json:"name"`
	// One for each time; null: there is no sample
	Values []*int `json:"values"`
	// Of a version: how many of them were healthy
	Healthy *[]*int `json:"healthy,omitempty"`
}

// View is a search that somebody saved.
type View = fleet.View

// ViewPage is a page that has saved views.
type ViewPage = fleet.ViewPage

// ViewItem is the answer of POST /api/v1/views.
type ViewItem struct {
	Item View `json:"item"`
}

// ViewList is the answer of GET /api/v1/views.
type ViewList struct {
	Items []View `json:"items"`
}

// SaveViewRequest is the body of POST /api/v1/views.
type SaveViewRequest struct {
	Page   ViewPage `json:"page"`
	Name   string   `json:"name" schema:"maxLength=80"`
	Search string   `json:"search" schema:"maxLength=4000"`
}

// Settings is the answer of GET /api/v1/settings.
type Settings struct {
	Items []Setting `json:"items"`
}

// Setting is a setting of the server that is in force.
type Setting struct {
	Key string `json:"key" example:"agents.url"`
	// As it is written in the configuration; hidden if it is a secret
	Value       string        `json:"value"`
	Origin      SettingOrigin `json:"origin"`
	Description string        `json:"description"`
}

// SettingOrigin is a value of origin of Setting.
type SettingOrigin string

// Values of SettingOrigin.
const (
	OriginDefault     SettingOrigin = "default"
	OriginFile        SettingOrigin = "file"
	OriginEnvironment SettingOrigin = "environment"
	OriginFlag        SettingOrigin = "flag"
)

// Event is the answer of GET /api/v1/events.
type Event struct {
	// Increases by one or more with each event
	Seq int64     `json:"seq"`
	At  time.Time `json:"at"`
	// More types may be added
	Type string `json:"type" schema:"events"`
	// Id of the agent, action, package, key, policy, rollout, group or incident
	Subject string `json:"subject"`
	// Who caused the event; empty for an agent or the server itself
	Actor *string         `json:"actor,omitempty"`
	Data  *map[string]any `json:"data,omitempty"`
}

// KibanaStatus is the answer of GET /api/status.
type KibanaStatus struct {
	Name    string `json:"name"`
	Version struct {
		// The version of Kibana whose API this is, admin.kibana_version of the configuration
		Number        string `json:"number"`
		BuildSnapshot bool   `json:"build_snapshot"`
		BuildFlavor   string `json:"build_flavor"`
	} `json:"version"`
	Muster struct {
		// Muster's own version
		Version string `json:"version"`
	} `json:"muster"`
	Status struct {
		Overall struct {
			Level   string `json:"level" example:"available"`
			Summary string `json:"summary"`
		} `json:"overall"`
	} `json:"status"`
	Limits *ServerLimits `json:"limits,omitempty"`
}

// ServerLimits are limits of this server and their use. Requests beyond a limit wait, or are answered
// with 429.
type ServerLimits struct {
	// Connections of agents
	Agents LimitUse `json:"agents"`
	// Agents whose check-in is parked
	AgentsParked int `json:"agents_parked"`
	// TLS handshakes of agents
	Handshakes LimitUse `json:"handshakes"`
	// Maximum number of handshakes started per second
	HandshakesPerSecond int `json:"handshakes_per_second"`
	// Check-ins in progress, without parked ones
	Checkins LimitUse `json:"checkins"`
	// Acknowledgements, beacons and reports of uninstalled agents
	Reports     LimitUse `json:"reports"`
	Enrollments LimitUse `json:"enrollments"`
	// Packages and trust files
	Downloads LimitUse `json:"downloads"`
	// Memory for the bodies of agents' requests
	BodyBytes LimitUse `json:"body_bytes"`
	// Memory that the limits are derived from
	MemoryBytes int64 `json:"memory_bytes"`
}

// LimitUse is a limit, and how much of it is in use.
type LimitUse struct {
	Max  int64 `json:"max"`
	Used int64 `json:"used"`
	// Number of requests that wait
	Waiting int `json:"waiting"`
	// Number of requests that were refused since the server started
	Limited int64 `json:"limited"`
}

// Server is the answer of GET /api/v1/server.
type Server struct {
	Version string `json:"version"`
	// URL that agents connect to
	AgentUrl string `json:"agent_url" example:"https://localhost:8220"`
	// sha256:<hex> of the CA certificate in DER
	CaPin string `json:"ca_pin"`
	// sha256:<hex> of the newest root, for --trust-root; absent if none is published
	TrustRoot *string `json:"trust_root,omitempty"`
	// Time by the server's clock
	Now time.Time `json:"now"`
}

// EnrollmentCommands is the answer of GET /api/v1/enrollment_commands.
type EnrollmentCommands struct {
	// Replace it with an enrollment token in every command of items, or with $(…) that prints one. No
	// program gets it as an argument, which the host's process list would show
	TokenWord string `json:"token_word" example:"YOUR_ENROLLMENT_TOKEN"`
	// The command for a host that has an unpacked package. It needs the token in
	// MUSTER_ENROLLMENT_TOKEN, or the flag --token-file
	Install string              `json:"install" example:"muster-agent install --url https://fleet.example.com:8220"`
	Items   []EnrollmentCommand `json:"items"`
}

// EnrollmentCommand is a command that enrols a host.
type EnrollmentCommand struct {
	Platform string `json:"platform" example:"linux-amd64"`
	// The newest package for the platform; absent if there is none
	File *string `json:"file,omitempty"`
	// For the shell of root, or for PowerShell as administrator; absent if problem says why
	Command *string `json:"command,omitempty"`
	// Why there is no command, and what to do
	Problem *string `json:"problem,omitempty"`
}

// KnownServer is a server of this installation.
type KnownServer struct {
	// Made at its first start, in its data folder
	Id      string `json:"id"`
	Host    string `json:"host"`
	Version string `json:"version"`
	// Schema of the store that this version writes
	Schema    int       `json:"schema"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"seen_at"`
	// Whether it has stopped, or cannot reach the store
	Away      bool   `json:"away"`
	AgentsUrl string `json:"agents_url"`
	AdminUrl  string `json:"admin_url"`
	// Agents whose polls are parked there
	Parked int `json:"parked"`
	// What is wrong with it, and what to do
	Problem *string `json:"problem,omitempty"`
}

// KnownServerList is the answer of GET /api/v1/servers.
type KnownServerList struct {
	Items []KnownServer `json:"items"`
	// What an operator should know about the servers, such as that two minor versions run
	Remarks []string `json:"remarks"`
}

// LogInRequest is the body of POST /api/v1/session.
type LogInRequest struct {
	// base64(id:secret)
	ApiKey string `json:"api_key"`
}

// AdminKey is a key of the admin API.
type AdminKey struct {
	Id string `json:"id"`
	// Whether it has not been revoked; it may have expired
	Active bool `json:"active"`
	// base64(id:secret), only in the response that created it
	ApiKey    *string    `json:"api_key,omitempty"`
	Name      string     `json:"name"`
	CreatedAt time.Time  `json:"created_at"`
	CreatedBy *string    `json:"created_by,omitempty"`
	ExpireAt  *time.Time `json:"expire_at,omitempty"`
	// Accurate to a minute; of a key that was never used it is missing
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
}

// AdminKeyItem is the answer of POST /api/v1/admin_keys.
type AdminKeyItem struct {
	Item AdminKey `json:"item"`
}

// AdminKeyList is the answer of GET /api/v1/admin_keys.
type AdminKeyList struct {
	Items   []AdminKey `json:"items"`
	Total   int        `json:"total"`
	Page    int        `json:"page"`
	PerPage int        `json:"perPage"`
}

// CreateAdminKeyRequest is the body of POST /api/v1/admin_keys.
type CreateAdminKeyRequest struct {
	// Of the person or program that uses the key; no other usable key may have it
	Name string `json:"name"`
	// Go duration such as 2160h after which the key gives no access; default: never
	Expiration *string `json:"expiration,omitempty"`
}

// RotateAdminKeyRequest is the body of POST /api/v1/admin_keys/{keyId}/rotate.
type RotateAdminKeyRequest struct {
	// Go duration; default: as long as the old key was to last
	Expiration *string `json:"expiration,omitempty"`
	// Go duration for which the old key stays usable, at most 168h; default: it is revoked at once
	Grace *string `json:"grace,omitempty"`
}

// Session is the answer of POST /api/v1/session.
type Session struct {
	// Id of the admin key
	KeyId string `json:"key_id"`
	// Name of the admin key
	Name      string    `json:"name"`
	ExpiresAt time.Time `json:"expires_at"`
}
