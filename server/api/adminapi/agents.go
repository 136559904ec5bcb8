package adminapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The operations of the area agents.
var (
	ListAgents = op[None, AgentList](Call{
		ID: "listAgents", Method: http.MethodGet, Path: "/api/fleet/agents",
		Area: AreaAgents, Permission: "agents.read",
		Summary:     "List agents",
		Description: "A list has at most 4 MiB of long documents of agents, which have more than 16 KiB each. Further ones are shortened, without the units of their components and with the beginnings of their texts: ask for such an agent by its id",
		Answer:      "The page",
		Params: []Param{
			page,
			{Name: "perPage", Is: 0, Schema: "minimum=0,maximum=10000,default=20", Doc: "page × perPage must not exceed 10000"},
			kuery,
			showInactive,
			{Name: "showUpgradeable", Is: false, Schema: "default=false", Doc: "Only agents that run a version below the newest package"},
			{Name: "getStatusSummary", Is: false, Schema: "default=false"},
			{Name: "withMetrics", Is: false, Schema: "default=false", Doc: "Accepted; agents have no metrics here"},
			{Name: "showAgentless", Is: false, Schema: "default=true", Doc: "Accepted; every agent here has a host"},
			{Name: "sortField", Schema: "default=enrolled_at", Doc: "A field of agents with one value, a text or a time, such as enrolled_at, last_checkin, agent.version, policy_id or local_metadata.host.hostname, with or without .keyword"},
			{Name: "sortOrder", Schema: "enum=asc|desc,default=desc"},
			{Name: "searchAfter", Doc: "Only the agents after this one: its sort, or nextSearchAfter of the last page, for the same sortField and sortOrder; without page"},
			{Name: "openPit", Is: false, Schema: "default=false", Doc: "Answer with the id of a point in time: lists that name it have the statuses of that time, no agents that enrolled later, and the order of their first page. It can be used for a day; a list by another field than enrolled_at for pitKeepAlive after each page, 15 minutes at most, and 8 of them at a time"},
			{Name: "pitId", Doc: "The id of the point in time whose agents are listed"},
			{Name: "pitKeepAlive", Doc: "Required with openPit and pitId, such as 1m"},
		},
	})

	ListAgentTags = op[None, TagList](Call{
		ID: "listAgentTags", Method: http.MethodGet, Path: "/api/fleet/agents/tags",
		Area: AreaAgents, Permission: "agents.read",
		Summary: "List the tags of agents, sorted, at most 10000",
		Answer:  "The tags",
		Params: []Param{
			kuery,
			showInactive,
		},
	})

	GetAgent = op[None, AgentItem](Call{
		ID: "getAgent", Method: http.MethodGet, Path: "/api/fleet/agents/{agentId}",
		Area: AreaAgents, Permission: "agents.read",
		Summary: "Get an agent",
		Answer:  "The agent",
		Params: []Param{
			{Name: "withMetrics", Is: false, Schema: "default=false", Doc: "Accepted; agents have no metrics here"},
		},
	})

	UpdateAgent = op[UpdateAgentRequest, UpdatedAgent](Call{
		ID: "updateAgent", Method: http.MethodPut, Path: "/api/fleet/agents/{agentId}",
		Area: AreaAgents, Permission: "agents.tag",
		Summary: "Set an agent's tags, and add to its user metadata",
	})

	DeleteAgent = op[None, ActionWord](Call{
		ID: "deleteAgent", Method: http.MethodDelete, Path: "/api/fleet/agents/{agentId}",
		Area: AreaAgents, Permission: "agents.remove",
		Summary:     "Unenrol an agent at once",
		Description: "Its keys no longer work. The agent stays in the list as unenrolled.",
	})

	ReassignAgent = op[ReassignRequest, Reassigned](Call{
		ID: "reassignAgent", Method: http.MethodPost, Path: "/api/fleet/agents/{agentId}/reassign",
		Area: AreaAgents, Permission: "agents.reassign",
		Summary: "Give an agent another policy",
	})

	BulkReassignAgents = op[BulkReassignRequest, BulkActionResponse](Call{
		ID: "bulkReassignAgents", Method: http.MethodPost, Path: "/api/fleet/agents/bulk_reassign",
		Area: AreaAgents, Permission: "agents.reassign",
		Summary:     "Give many agents another policy",
		Description: "An order that exceeds the removal limit (admin.removals_per_hour) is refused with 409 and the rule removal_limit; override_limit and why give it nevertheless. With dryRun the refusal is among the warnings.",
	})

	BulkTagAgents = op[BulkTagRequest, BulkActionResponse](Call{
		ID: "bulkTagAgents", Method: http.MethodPost, Path: "/api/fleet/agents/bulk_update_agent_tags",
		Area: AreaAgents, Permission: "agents.tag",
		Summary:     "Add and remove tags of many agents",
		Description: "The action is complete at once.",
	})

	ChangeAgentPrivilege = op[PrivilegeRequest, ActionOrMessage](Call{
		ID: "changeAgentPrivilege", Method: http.MethodPost, Path: "/api/fleet/agents/{agentId}/privilege_level_change",
		Area: AreaAgents, Permission: "agents.privilege",
		Summary:      "Remove the root privilege of an agent",
		Description:  "From version 9.3.0 of the Elastic Agent on.",
		OptionalBody: true,
	})

	BulkChangeAgentPrivilege = op[BulkPrivilegeRequest, BulkActionResponse](Call{
		ID: "bulkChangeAgentPrivilege", Method: http.MethodPost, Path: "/api/fleet/agents/bulk_privilege_level_change",
		Area: AreaAgents, Permission: "agents.privilege",
		Summary: "Remove the root privilege of many agents",
	})

	MigrateAgent = op[MigrateRequest, BulkActionResponse](Call{
		ID: "migrateAgent", Method: http.MethodPost, Path: "/api/fleet/agents/{agentId}/migrate",
		Area: AreaAgents, Permission: "agents.remove",
		Summary:     "Move an agent to another server",
		Description: "From version 9.2.0 of the Elastic Agent on.",
	})

	BulkMigrateAgents = op[BulkMigrateRequest, BulkActionResponse](Call{
		ID: "bulkMigrateAgents", Method: http.MethodPost, Path: "/api/fleet/agents/bulk_migrate",
		Area: AreaAgents, Permission: "agents.remove",
		Summary:     "Move many agents to another server",
		Description: "An order that exceeds the removal limit (admin.removals_per_hour) is refused with 409 and the rule removal_limit; override_limit and why give it nevertheless.",
	})

	UnenrollAgent = op[UnenrollRequest, Empty](Call{
		ID: "unenrollAgent", Method: http.MethodPost, Path: "/api/fleet/agents/{agentId}/unenroll",
		Area: AreaAgents, Permission: "agents.remove",
		Summary:      "Unenrol an agent",
		Description:  "The agent acknowledges and stops; until then its status is unenrolling. With revoke it is unenrolled at once, and its key no longer works. The body is optional. Unenrolling an unenrolled agent is no error.",
		OptionalBody: true,
		Answer:       "Accepted",
	})

	BulkUnenrollAgents = op[BulkUnenrollRequest, BulkActionResponse](Call{
		ID: "bulkUnenrollAgents", Method: http.MethodPost, Path: "/api/fleet/agents/bulk_unenroll",
		Area: AreaAgents, Permission: "agents.remove",
		Summary:     "Unenrol many agents with one action",
		Description: "Agents that cannot be unenrolled do not fail the call: each becomes an error result of the action, with its reason. With revoke the action is complete at once. An order that exceeds the removal limit (admin.removals_per_hour) is refused with 409 and the rule removal_limit; override_limit and why give it nevertheless.",
		Answer:      "The action; with dryRun a count",
	})

	RequestDiagnostics = op[DiagnosticsRequest, ActionCreated](Call{
		ID: "requestDiagnostics", Method: http.MethodPost, Path: "/api/fleet/agents/{agentId}/request_diagnostics",
		Area: AreaAgents, Permission: "diagnostics.request",
		Summary:      "Request the diagnostics of an agent",
		Description:  "The agent collects them and sends them to this server, where they are kept for 90 days. The request expires after three hours. The body is optional.",
		OptionalBody: true,
		Answer:       "The action that was created",
	})

	BulkRequestDiagnostics = op[BulkDiagnosticsRequest, BulkActionResponse](Call{
		ID: "bulkRequestDiagnostics", Method: http.MethodPost, Path: "/api/fleet/agents/bulk_request_diagnostics",
		Area: AreaAgents, Permission: "diagnostics.request",
		Summary: "Request the diagnostics of many agents with one action",
		Answer:  "The action; with dryRun a count",
	})

	ListUploads = op[None, UploadList](Call{
		ID: "listUploads", Method: http.MethodGet, Path: "/api/fleet/agents/{agentId}/uploads",
		Area: AreaAgents, Permission: "diagnostics.read",
		Summary:     "List the diagnostics that were requested of an agent, newest first",
		Description: "The latest five requests are listed, and their files kept.",
		Answer:      "The requests with their files",
	})

	GetUpload = op[None, Binary](Call{
		ID: "getUpload", Method: http.MethodGet, Path: "/api/fleet/agents/files/{fileId}/{fileName}",
		Area: AreaAgents, Permission: "diagnostics.read",
		Summary:    "Download a file that an agent has sent",
		Answer:     "The file",
		AnswerType: "application/octet-stream",
		Admission:  Transfer,
		Params: []Param{
			{Name: "fileName", In: "path", Doc: "The name that the download gets"},
		},
	})

	DeleteUpload = op[None, UploadDeleted](Call{
		ID: "deleteUpload", Method: http.MethodDelete, Path: "/api/fleet/agents/files/{fileId}",
		Area: AreaAgents, Permission: "diagnostics.delete",
		Summary: "Delete a file that an agent has sent",
		Answer:  "Deleted",
	})

	UpgradeAgent = op[UpgradeRequest, UpgradeResponse](Call{
		ID: "upgradeAgent", Method: http.MethodPost, Path: "/api/fleet/agents/{agentId}/upgrade",
		Area: AreaAgents, Permission: "agents.upgrade",
		Summary: "Upgrade one agent",
		Answer:  "The action that was created",
	})

	BulkUpgradeAgents = op[BulkUpgradeRequest, BulkActionResponse](Call{
		ID: "bulkUpgradeAgents", Method: http.MethodPost, Path: "/api/fleet/agents/bulk_upgrade",
		Area: AreaAgents, Permission: "agents.upgrade",
		Summary:     "Upgrade many agents with one action",
		Description: "Agents that cannot be upgraded do not fail the call: each becomes an error result of the action, with its reason. During a freeze, or if more agents would have the version than the exposure budget allows, the order is refused with 409 and the rule freeze or exposure; override_freeze and override_exposure order it nevertheless. A freeze that is added later cancels an upgrade that was scheduled for its time.",
		Answer:      "The action; with dryRun a count",
	})

	RollbackAgent = op[RollbackRequest, ActionCreated](Call{
		ID: "rollbackAgent", Method: http.MethodPost, Path: "/api/fleet/agents/{agentId}/rollback",
		Area: AreaAgents, Permission: "agents.upgrade",
		Summary:      "Roll an agent back to its previous version",
		Description:  "The agent goes back to the newest previous version that is still on the host or, while an upgrade is being watched, to the version before that upgrade. The field rollback of the agent names it, or the reason why there is none.",
		OptionalBody: true,
		Answer:       "The action that was created",
	})

	BulkRollbackAgents = op[BulkRollbackRequest, ActionsCreated](Call{
		ID: "bulkRollbackAgents", Method: http.MethodPost, Path: "/api/fleet/agents/bulk_rollback",
		Area: AreaAgents, Permission: "agents.upgrade",
		Summary:     "Roll many agents back, with one action for each version",
		Description: "Agents that cannot be rolled back do not fail the call, unless none can: each becomes an error result of the first action, with its reason.",
		Answer:      "The actions",
	})

	GetAgentStatus = op[None, AgentStatusResponse](Call{
		ID: "getAgentStatus", Method: http.MethodGet, Path: "/api/fleet/agent_status",
		Area: AreaAgents, Permission: "agents.read",
		Summary: "Count the agents in each status",
		Answer:  "The counts",
		Params: []Param{
			{Name: "policyId", Doc: "Only the agents of this policy"},
			{Name: "policyIds", Is: []string(nil), Schema: "maxItems=1000", Doc: "Only the agents of these policies"},
			kuery,
		},
	})

	GetAgentData = op[None, AgentData](Call{
		ID: "getAgentData", Method: http.MethodGet, Path: "/api/fleet/agent_status/data",
		Area: AreaAgents, Permission: "agents.read",
		Summary: "Report whether data of agents has arrived; none comes here",
		Answer:  "The agents",
		Params: []Param{
			{Name: "agentsIds", Required: true, Is: []string(nil), Schema: "maxItems=1000"},
			{Name: "pkgName"},
			{Name: "pkgVersion"},
			{Name: "previewData", Is: false, Schema: "default=false"},
		},
	})

	PreviewUpgrade = op[UpgradePreviewRequest, UpgradePreview](Call{
		ID: "previewUpgrade", Method: http.MethodPost, Path: "/api/v1/upgrade_preview",
		Area: AreaAgents, Permission: "agents.read",
		Summary:   "Preview an upgrade of agents; changes nothing",
		Answer:    "The preview",
		Unaudited: true,
	})

	StageVersion = op[StageRequest, BulkActionResponse](Call{
		ID: "stageVersion", Method: http.MethodPost, Path: "/api/v1/stage",
		Area: AreaAgents, Permission: "agents.upgrade",
		Summary:     "Install a version of agents or of a component beside the one that runs, without switching to it",
		Description: "A later upgrade to the version downloads nothing. Nothing is stopped, so freezes, the exposure budget and running rollouts do not hold it. Agents list what they have staged in staged_versions.",
		Answer:      "The action was created; agents that cannot follow it are among its results",
	})

	PreviewStage = op[StageRequest, UpgradePreview](Call{
		ID: "previewStage", Method: http.MethodPost, Path: "/api/v1/stage_preview",
		Area: AreaAgents, Permission: "agents.read",
		Summary:   "Preview the staging of a version; changes nothing",
		Answer:    "The preview; versions are those that run",
		Unaudited: true,
	})

	PreviewRollback = op[RollbackPreviewRequest, RollbackPreview](Call{
		ID: "previewRollback", Method: http.MethodPost, Path: "/api/v1/rollback_preview",
		Area: AreaAgents, Permission: "agents.read",
		Summary:   "Preview a rollback of agents; changes nothing",
		Answer:    "The preview",
		Unaudited: true,
	})

	PreviewUnenroll = op[UnenrollPreviewRequest, UnenrollPreview](Call{
		ID: "previewUnenroll", Method: http.MethodPost, Path: "/api/v1/unenroll_preview",
		Area: AreaAgents, Permission: "agents.read",
		Summary:   "Preview unenrolling agents; changes nothing",
		Answer:    "The preview",
		Unaudited: true,
	})

	SuggestQuery = op[None, QuerySuggestions](Call{
		ID: "suggestQuery", Method: http.MethodGet, Path: "/api/v1/kql/suggest",
		Area: AreaAgents, Permission: "agents.read",
		Summary: "Suggest completions for a query of agents",
		Answer:  "The suggestions",
		Params: []Param{
			{Name: "q", Schema: "maxLength=10000", Doc: "The query so far"},
			{Name: "cursor", Is: 0, Schema: "minimum=0", Doc: "Position of the cursor in bytes; default: the end"},
		},
	})

	GetFacets = op[None, Facets](Call{
		ID: "getFacets", Method: http.MethodGet, Path: "/api/v1/agents/facets",
		Area: AreaAgents, Permission: "agents.read",
		Summary:     "Count the agents that match a query by the values of some of their fields",
		Description: "Counts are at most a few seconds old. Every count is exact, and values beyond limit are counted together as other.",
		Answer:      "The counts",
		Params: []Param{
			kuery,
			showInactive,
			{Name: "fields", Doc: "Separated by commas: health, progress, version, policy, tag, os, site. Default: all"},
			{Name: "limit", Is: 0, Schema: "minimum=1,maximum=200,default=20", Doc: "Values of each field, those with most agents first"},
		},
	})

	ExportAgents = op[None, Text](Call{
		ID: "exportAgents", Method: http.MethodGet, Path: "/api/v1/agents/export",
		Area: AreaAgents, Permission: "agents.read",
		Summary:    "Download the agents that match a query as CSV, by hostname",
		Answer:     "The table, with a header line",
		AnswerType: "text/csv",
		Params: []Param{
			kuery,
			showInactive,
			{Name: "columns", Doc: "Separated by commas: id, hostname, health, progress, progress_since, version, desired_version, last_healthy_version, policy, tags, os, site, last_checkin, message, reason. Default: all"},
		},
	})

	GetTimeline = op[None, Timeline](Call{
		ID: "getTimeline", Method: http.MethodGet, Path: "/api/v1/agents/{agentId}/timeline",
		Area: AreaAgents, Permission: "agents.read",
		Summary: "Get what happened to an agent and its components, newest first",
		Answer:  "The page",
		Params: []Param{
			{Name: "component", Doc: "Only that component; agent: only the agent itself"},
			{Name: "before", Doc: "next of the page before"},
			{Name: "limit", Is: 0, Schema: "minimum=1,maximum=200,default=30"},
		},
	})

	GetFailures = op[None, Failures](Call{
		ID: "getFailures", Method: http.MethodGet, Path: "/api/v1/failures",
		Area: AreaAgents, Permission: "agents.read",
		Summary: "Group the agents whose last upgrade failed or was rolled back by the cause",
		Answer:  "The causes",
		Params: []Param{
			kuery,
		},
	})

	SeeFailures = op[SeenRequest, Empty](Call{
		ID: "seeFailures", Method: http.MethodPost, Path: "/api/v1/failures/seen",
		Area: AreaAgents, Permission: "agents.read",
		Summary:   "Record that the caller has seen the failures until now, which clears the badge",
		Answer:    "Recorded",
		Unaudited: true,
	})
)

// AgentStatus is a status that Kibana shows of an agent.
type AgentStatus = fleet.Status

// Agent is an agent, as Kibana's clients know it.
type Agent struct {
	Id string `json:"id"`
	// In lists: its position, for searchAfter
	Sort                  *json.RawMessage `json:"sort,omitempty" schema:"array"`
	Type                  string           `json:"type" example:"PERMANENT"`
	Active                bool             `json:"active"`
	Status                AgentStatus      `json:"status"`
	EnrolledAt            time.Time        `json:"enrolled_at"`
	UnenrolledAt          *time.Time       `json:"unenrolled_at,omitempty"`
	UnenrolledReason      *string          `json:"unenrolled_reason,omitempty"`
	UnenrollmentStartedAt *time.Time       `json:"unenrollment_started_at,omitempty"`
	PolicyId              string           `json:"policy_id"`
	PolicyRevision        *int64           `json:"policy_revision,omitempty"`
	LastCheckin           *time.Time       `json:"last_checkin,omitempty"`
	LastCheckinStatus     *string          `json:"last_checkin_status,omitempty"`
	LastCheckinMessage    *string          `json:"last_checkin_message,omitempty"`
	Agent                 AgentRef         `json:"agent"`
	Maker                 *Maker           `json:"maker,omitempty"`
	// host.hostname, os.*, elastic.agent.* as the agent sent them
	LocalMetadata        map[string]any  `json:"local_metadata"`
	UserProvidedMetadata *map[string]any `json:"user_provided_metadata,omitempty"`
	Tags                 []string        `json:"tags"`
	Packages             []string        `json:"packages"`
	// The spaces that the agent is in: default
	Namespaces *[]string `json:"namespaces,omitempty"`
	// What is unhealthy: input, output, other; absent if the agent is healthy
	UnhealthyReason *[]string   `json:"unhealthy_reason,omitempty"`
	Components      []Component `json:"components"`
	AccessApiKeyId  *string     `json:"access_api_key_id,omitempty"`
	// Set during an upgrade
	UpgradeStartedAt *time.Time `json:"upgrade_started_at"`
	// When the agent first checked in with the version of its last upgrade
	UpgradedAt *time.Time `json:"upgraded_at"`
	// State of the last upgrade; null if it succeeded or there was none
	UpgradeStatus  *AgentUpgradeStatus `json:"upgrade_status"`
	UpgradeDetails *UpgradeDetails     `json:"upgrade_details"`
	// The upgrade in these fields is a rollback ordered by an operator
	UpgradeRollback *bool         `json:"upgrade_rollback,omitempty"`
	Upgrade         *AgentUpgrade `json:"upgrade,omitempty"`
	// What the host has staged: 1.2.0 of the agent, web 2.4.0 of a component; absent: the agent cannot
	// stage versions
	StagedVersions *[]string        `json:"staged_versions,omitempty"`
	Shared         *SharedIdentity  `json:"shared,omitempty"`
	Rollback       *RollbackVerdict `json:"rollback,omitempty"`
	Watch          *Watch           `json:"watch,omitempty"`
	// The version of its active rollout, else of its upgrade under way, else the version it runs
	DesiredVersion *string `json:"desired_version,omitempty"`
	// The last version that was healthy; absent if there is none
	LastHealthyVersion *string     `json:"last_healthy_version,omitempty"`
	Rollout            *RolloutRef `json:"rollout,omitempty"`
	Health             *Health     `json:"health,omitempty"`
	Progress           *Progress   `json:"progress,omitempty"`
	// Its label site
	Site *string `json:"site,omitempty"`
	// Versions that failed on the host, the latest first
	FailedVersions *[]FailedVersion `json:"failed_versions,omitempty"`
	// Only of one agent: what can be ordered now
	Commands *[]Command `json:"commands,omitempty"`
}

// AgentUpgradeStatus is a value of upgrade_status of Agent.
type AgentUpgradeStatus = fleet.UpgradeStatus

// FailedVersion is a version that failed on the agent's host.
type FailedVersion struct {
	Version string    `json:"version"`
	Reason  *string   `json:"reason,omitempty"`
	At      time.Time `json:"at"`
}

// RolloutRef is the active rollout that the agent is in.
type RolloutRef = fleet.RolloutRef

// AgentUpgrade has the versions that the agent can be rolled back to.
type AgentUpgrade struct {
	// Previous versions on the host, as the agent reports them
	Rollbacks *[]KeptVersion `json:"rollbacks,omitempty"`
}

// KeptVersion is a previous version that is still on the host.
type KeptVersion struct {
	Version    string    `json:"version"`
	ValidUntil time.Time `json:"valid_until"`
}

// RollbackVerdict is whether a rollback is possible now.
type RollbackVerdict struct {
	Available bool `json:"available"`
	// Version it would go back to
	Version *string `json:"version,omitempty"`
	// Absent while an upgrade is being watched: then it is possible until the watch ends
	ValidUntil *time.Time `json:"valid_until,omitempty"`
	// Why it is not available
	Reason *string `json:"reason,omitempty"`
}

// Watch is last report of the host's watcher on an upgrade.
type Watch struct {
	// Empty for an upgrade that was ordered on the host
	ActionId *string      `json:"action_id,omitempty"`
	From     string       `json:"from"`
	To       string       `json:"to"`
	Stage    WatchStage   `json:"stage"`
	Agent    WatchedAgent `json:"agent"`
	Reason   *WatchReason `json:"reason,omitempty"`
	// What the watcher waits for
	Waiting *string `json:"waiting,omitempty"`
	// By the host's clock
	At time.Time `json:"at"`
	// By the server's clock; updated every 30 s while nothing else changes
	ReceivedAt time.Time  `json:"received_at"`
	Diagnosis  *Diagnosis `json:"diagnosis,omitempty"`
}

// WatchStage is a value of stage of Watch.
type WatchStage = agentapi.BeaconPhase

// WatchedAgent is the agent as the watcher sees it.
type WatchedAgent struct {
	// Its process runs
	Alive bool `json:"alive"`
	// Its health as it reports it; absent if it does not answer
	State   *string `json:"state,omitempty" example:"healthy"`
	Version *string `json:"version,omitempty"`
	// Exits of its process during this watch
	Crashes int `json:"crashes"`
	// When it last got an answer from this server
	LastCheckin *time.Time `json:"last_checkin,omitempty"`
}

// WatchReason is why an upgrade is rolled back.
type WatchReason struct {
	Code string `json:"code" example:"crash_loop"`
	Text string `json:"text"`
}

// Diagnosis is why the agent is silent; absent while it checks in.
type Diagnosis struct {
	Code DiagnosisCode `json:"code"`
	Text string        `json:"text"`
}

// DiagnosisCode is a value of code of Diagnosis.
type DiagnosisCode = fleet.Diagnosis

// AgentRef names an agent as Kibana does.
type AgentRef struct {
	Id      string `json:"id"`
	Version string `json:"version"`
}

// Component is a component of an agent.
type Component struct {
	Id      string `json:"id"`
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message"`
	// Its inputs and outputs; absent if the agent reports none
	Units *[]ComponentUnit `json:"units,omitempty"`
	// Muster only, as the rest: the name in the policy of a component that the agent runs, and that
	// can be upgraded
	Name *string `json:"name,omitempty" example:"web-server"`
	// How it is run
	Runtime *string `json:"runtime,omitempty" example:"systemd"`
	// The full version that is installed; absent if none is
	Version *string `json:"version,omitempty" example:"2.4.0"`
	// That of its build
	Hash *string `json:"hash,omitempty"`
	// Of a container
	Image *string `json:"image,omitempty"`
	// Identifies its configuration files, the package's own and those of the server
	ConfigSha256 *string `json:"config_sha256,omitempty"`
	// Identifies those that the server has rendered; absent if none
	RenderedSha256 *string `json:"rendered_sha256,omitempty"`
	// The last version that stayed healthy after its upgrade
	LastHealthyVersion *string `json:"last_healthy_version,omitempty"`
	// Versions that the host has kept
	Rollbacks *[]string `json:"rollbacks,omitempty"`
	// What some of them lack on the host, such as an image that somebody has removed; absent if none
	// lacks anything
	RollbackProblems *[]RollbackProblem `json:"rollback_problems,omitempty"`
	// How often it has restarted since it was started, without an order
	Restarts *int `json:"restarts,omitempty"`
	// When its version was started
	Since *time.Time `json:"since,omitempty"`
	// Its agent can upgrade it in lockstep with other hosts
	Lockstep *bool `json:"lockstep,omitempty"`
	// It is not started, since another version is in force for its policy, or its host does not know
	// yet which one is; its message says why
	StartWithheld  *bool           `json:"held,omitempty"`
	UpgradeDetails *UpgradeDetails `json:"upgrade_details,omitempty"`
	// The version of its active rollout, else of its upgrade under way, else the one that is installed
	DesiredVersion *string     `json:"desired_version,omitempty"`
	Rollout        *RolloutRef `json:"rollout,omitempty"`
	Progress       *Progress   `json:"progress,omitempty"`
	// Set during an upgrade that was ordered here
	UpgradeStartedAt *time.Time `json:"upgrade_started_at,omitempty"`
	// When its last upgrade was done
	UpgradedAt *time.Time `json:"upgraded_at,omitempty"`
	// State of its last upgrade; absent if it succeeded or there was none
	UpgradeStatus *AgentUpgradeStatus `json:"upgrade_status,omitempty"`
	// The action of its last upgrade
	UpgradeActionId *string `json:"upgrade_action_id,omitempty"`
	// Only of one agent: what can be ordered for it now, upgrade and rollback
	Commands *[]Command `json:"commands,omitempty"`
}

// RollbackProblem is why a component cannot be rolled back to a version.
type RollbackProblem = agentapi.RollbackProblem

// ComponentUnit is a unit of a component, as the agent reports it.
type ComponentUnit struct {
	Id string `json:"id"`
	// input or output
	Type    string          `json:"type"`
	Status  string          `json:"status"`
	Message string          `json:"message"`
	Payload *map[string]any `json:"payload,omitempty"`
}

// UpgradeState is where an upgrade is on its host.
type UpgradeState = agentapi.UpgradeState

// UpgradeDetails are what an agent reports of its upgrade.
type UpgradeDetails struct {
	TargetVersion string           `json:"target_version"`
	ActionId      string           `json:"action_id"`
	State         UpgradeState     `json:"state"`
	Metadata      *UpgradeMetadata `json:"metadata,omitempty"`
}

// UpgradeMetadata are numbers and reasons of an upgrade under way.
type UpgradeMetadata struct {
	ScheduledAt *time.Time `json:"scheduled_at,omitempty"`
	// 0 to 100
	DownloadPercent *float64 `json:"download_percent,omitempty"`
	// bytes per second
	DownloadRate  *float64 `json:"download_rate,omitempty"`
	RetryErrorMsg *string  `json:"retry_error_msg,omitempty"`
	// No attempt starts after this time
	RetryUntil *time.Time `json:"retry_until,omitempty"`
	// Attempts after the first
	RetryAttempt *int `json:"retry_attempt,omitempty"`
	// Maximum of retry_attempt
	RetryLimit  *int          `json:"retry_limit,omitempty"`
	FailedState *UpgradeState `json:"failed_state,omitempty"`
	ErrorMsg    *string       `json:"error_msg,omitempty"`
	// Why a version was rolled back, as a sentence
	Reason *string `json:"reason,omitempty"`
	// Code of reason
	ReasonCode *string `json:"reason_code,omitempty" example:"crash_loop"`
	// What is done to a component
	Phase *UpgradeMetadataPhase `json:"phase,omitempty"`
}

// UpgradeMetadataPhase is a value of phase of UpgradeMetadata.
type UpgradeMetadataPhase string

// Values of UpgradeMetadataPhase.
const (
	PhasePreparing UpgradeMetadataPhase = "PREPARING"
	PhaseStopped   UpgradeMetadataPhase = "STOPPED"
	PhaseMutating  UpgradeMetadataPhase = "MUTATING"
	PhaseStarting  UpgradeMetadataPhase = "STARTING"
	PhaseVerifying UpgradeMetadataPhase = "VERIFYING"
)

// AgentItem is the answer of GET /api/fleet/agents/{agentId}.
type AgentItem struct {
	Item Agent `json:"item"`
}

// UpdatedAgent is the answer of PUT /api/fleet/agents/{agentId}.
type UpdatedAgent struct {
	Item Agent `json:"item"`
	// Muster only: the active rollouts that the agent is a target of, which go on with it; only if
	// tags were set
	Warnings *[]string `json:"warnings,omitempty"`
}

// Health is whether an agent is well, whatever its upgrade does. failed: it reports an error.
// enrolling: it has not checked in, or has no policy yet. uninstalled: it is gone from its host, and
// was not unenrolled.
type Health = fleet.Health

// Progress is how the last upgrade stands, or the one under way.
type Progress struct {
	State ProgressState `json:"state"`
	// The version that was ordered
	Version string  `json:"version"`
	From    *string `json:"from,omitempty"`
	// Start of this state; absent if it is not known
	Since *time.Time `json:"since,omitempty"`
	// Of the download
	Percent *int `json:"percent,omitempty"`
	// Of scheduled: when it begins; of failed attempts: until when it is tried again
	Until *time.Time `json:"until,omitempty"`
	// Error of the last attempt, while the agent will try again
	Retrying *string      `json:"retrying,omitempty"`
	Reason   *WatchReason `json:"reason,omitempty"`
	// An operator ordered to go back
	Rollback *bool `json:"rollback,omitempty"`
	// Who ordered it
	By      *string     `json:"by,omitempty"`
	Rollout *RolloutRef `json:"rollout,omitempty"`
	// What is done on the host: preparing, stopped, mutating, starting or verifying; absent if nothing
	// is
	Phase *string `json:"phase,omitempty" example:"mutating"`
}

// Facets is the answer of GET /api/v1/agents/facets.
type Facets struct {
	// Agents that match the query
	Total  int     `json:"total"`
	Facets []Facet `json:"facets"`
}

// Facet is a field of agents, with its most frequent values.
type Facet struct {
	Field  string       `json:"field" example:"version"`
	Values []FacetValue `json:"values"`
	// Agents that have none of values; an agent with several tags counts for each
	Other int `json:"other"`
}

// FacetValue is a value of a field, and how many agents have it.
type FacetValue struct {
	// Empty: agents without a value
	Value string `json:"value"`
	// For people, if it differs: the name of a policy
	Label *string `json:"label,omitempty"`
	Count int     `json:"count"`
	// Query of these agents, to be joined with and
	Kuery string `json:"kuery" example:"\"version: \\\"1.1.0\\\"\""`
	// Of sites: their agents by health
	Health *map[string]int `json:"health,omitempty"`
}

// Timeline is the answer of GET /api/v1/agents/{agentId}/timeline.
type Timeline struct {
	Items []TimelineEntry `json:"items"`
	// For before; absent: there is nothing older
	Next *string `json:"next,omitempty"`
}

// TimelineEntry is something that happened to an agent.
type TimelineEntry struct {
	Id string `json:"id"`
	// When it began
	At      time.Time         `json:"at"`
	EndedAt *time.Time        `json:"ended_at,omitempty"`
	Kind    TimelineEntryKind `json:"kind"`
	// Name; absent: the agent itself
	Component *string `json:"component,omitempty"`
	ActionId  *string `json:"action_id,omitempty"`
	// Who ordered it; absent: the agent, or its host
	By      *string        `json:"by,omitempty"`
	Rollout *RolloutRef    `json:"rollout,omitempty"`
	From    *string        `json:"from,omitempty"`
	To      *string        `json:"to,omitempty"`
	State   *ProgressState `json:"state,omitempty"`
	// Oldest first
	Phases *[]TimelinePhase `json:"phases,omitempty"`
	Reason *WatchReason     `json:"reason,omitempty"`
	// Of kinds other than upgrades: what happened, as a sentence
	Text *string `json:"text,omitempty"`
	// The reason that the operator gave
	Why *string `json:"why,omitempty"`
}

// TimelineEntryKind is a value of kind of TimelineEntry.
type TimelineEntryKind string

// Values of TimelineEntryKind.
const (
	TimelineEnrolled    TimelineEntryKind = "enrolled"
	TimelineUpgrade     TimelineEntryKind = "upgrade"
	TimelineRollback    TimelineEntryKind = "rollback"
	TimelineStaged      TimelineEntryKind = "staged"
	TimelineSource      TimelineEntryKind = "source"
	TimelinePolicy      TimelineEntryKind = "policy"
	TimelineUnenrolled  TimelineEntryKind = "unenrolled"
	TimelineDiagnostics TimelineEntryKind = "diagnostics"
	TimelineChange      TimelineEntryKind = "change"
)

// TimelinePhase is a state that an upgrade reached.
type TimelinePhase struct {
	State ProgressState `json:"state"`
	At    time.Time     `json:"at"`
	// The error of an attempt, for example
	Text *string `json:"text,omitempty"`
}

// Failures is the answer of GET /api/v1/failures.
type Failures struct {
	// Agents whose last upgrade failed or was rolled back
	Total int `json:"total"`
	// Those of them that the caller has not seen
	Unseen int        `json:"unseen"`
	SeenAt *time.Time `json:"seen_at,omitempty"`
	// The most frequent first, at most 50
	Causes []FailureCause `json:"causes"`
	// Agents with other causes
	Other *int `json:"other,omitempty"`
}

// FailureCause are failures of upgrades that have a reason in common.
type FailureCause struct {
	Code string `json:"code" example:"crash_loop"`
	// As a sentence
	Text    string        `json:"text"`
	State   ProgressState `json:"state"`
	Version string        `json:"version"`
	Count   int           `json:"count"`
	Latest  time.Time     `json:"latest"`
	// Query of these agents
	Kuery string `json:"kuery"`
	// The error of one of them
	Sample *string `json:"sample,omitempty"`
}

// SeenRequest is the body of POST /api/v1/failures/seen.
type SeenRequest struct {
	// Default: now
	Until *time.Time `json:"until,omitempty"`
}

// AgentList is the answer of GET /api/fleet/agents.
type AgentList struct {
	Items   []Agent `json:"items"`
	Total   int     `json:"total"`
	Page    int     `json:"page"`
	PerPage int     `json:"perPage"`
	// The sort of the last agent, as text
	NextSearchAfter *string `json:"nextSearchAfter,omitempty"`
	// The id of the point in time
	Pit           *string        `json:"pit,omitempty"`
	StatusSummary *StatusSummary `json:"statusSummary,omitempty"`
}

// StatusSummary is the number of agents in each status.
type StatusSummary map[string]int

// AgentStatusResponse is the answer of GET /api/fleet/agent_status.
type AgentStatusResponse struct {
	Results AgentStatusCounts `json:"results"`
}

// AgentStatusCounts are the numbers of agents in each status.
type AgentStatusCounts struct {
	All int `json:"all"`
	// all except unenrolled and inactive
	Active int `json:"active"`
	Online int `json:"online"`
	// error and degraded
	Error   int `json:"error"`
	Offline int `json:"offline"`
	// updating, enrolling and unenrolling
	Updating    int `json:"updating"`
	Inactive    int `json:"inactive"`
	Unenrolled  int `json:"unenrolled"`
	Orphaned    int `json:"orphaned"`
	Uninstalled int `json:"uninstalled"`
	// always 0
	Other int `json:"other"`
	// always 0
	Events int `json:"events"`
}

// UnenrollRequest is the body of POST /api/fleet/agents/{agentId}/unenroll.
type UnenrollRequest struct {
	// Also if the agent is in an active rollout or has a managed policy
	Force *bool `json:"force,omitempty"`
	// Unenrol at once, without acknowledgement: the key of the agent no longer works
	Revoke *bool `json:"revoke,omitempty"`
}

// BulkUnenrollRequest is the body of POST /api/fleet/agents/bulk_unenroll.
type BulkUnenrollRequest struct {
	Agents AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	// Also agents in an active rollout, and those of managed policies
	Force *bool `json:"force,omitempty"`
	// Unenrol at once, without acknowledgement: the keys of the agents no longer work
	Revoke          *bool `json:"revoke,omitempty"`
	BatchSize       *int  `json:"batchSize,omitempty"`
	IncludeInactive *bool `json:"includeInactive,omitempty"`
	// Only count the agents that are named or selected and exist
	DryRun *bool `json:"dryRun,omitempty"`
	// Also if more agents would be taken away within an hour than admin.removals_per_hour; needs why
	OverrideLimit *bool `json:"override_limit,omitempty"`
	// For the audit trail
	Why *string `json:"why,omitempty"`
}

// UnenrollPreviewRequest is the body of POST /api/v1/unenroll_preview.
type UnenrollPreviewRequest struct {
	Agents          AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	IncludeInactive *bool          `json:"includeInactive,omitempty"`
	Revoke          *bool          `json:"revoke,omitempty"`
	Force           *bool          `json:"force,omitempty"`
	OverrideLimit   *bool          `json:"override_limit,omitempty"`
	// The most elements of items; counts and causes are of all agents. Default: all
	MaxItems *int `json:"max_items,omitempty" schema:"minimum=0"`
}

// UnenrollPreview is the answer of POST /api/v1/unenroll_preview.
type UnenrollPreview struct {
	// How many agents would be unenrolled
	Will int `json:"will"`
	Wont int `json:"wont"`
	// Why the order would be refused as a whole: it exceeds the removal limit,
	// admin.removals_per_hour, which override_limit and why override
	Refused *string               `json:"refused,omitempty"`
	Items   []UnenrollPreviewItem `json:"items"`
	// Why agents would not be unenrolled, and remarks, with counts; of all agents, also if items has
	// fewer
	Causes *[]PreviewCause `json:"causes,omitempty"`
}

// UnenrollPreviewItem is what unenrolling would do to one agent.
type UnenrollPreviewItem struct {
	AgentId  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	// As in Agent; empty for an unknown agent
	Status string `json:"status"`
	Will   bool   `json:"will"`
	// Why not, or a remark: offline agents unenrol when they return
	Reason *string `json:"reason,omitempty"`
}

// UpgradeRequest is the body of POST /api/fleet/agents/{agentId}/upgrade.
type UpgradeRequest struct {
	Version string `json:"version" example:"1.1.0"`
	// URL to download the package from; default: this server
	SourceUri *string `json:"source_uri,omitempty"`
	// Also if the agent is upgrading already, runs this version, runs a later one, reports too little
	// free space, or the version failed on its host before
	Force *bool `json:"force,omitempty"`
	// Name of the Fleet object that the agents belong to: the order suspends the object, and is
	// carried out. Without it such an order is refused with 409 and the code fleet_owned
	TakeOver *string `json:"take_over,omitempty"`
	// Also during a freeze; needs why
	OverrideFreeze *bool `json:"override_freeze,omitempty"`
	// Also if more agents would have the version than the exposure budget allows; needs why
	OverrideExposure *bool `json:"override_exposure,omitempty"`
	// For the audit trail
	Why                *string `json:"why,omitempty"`
	SkipRateLimitCheck *bool   `json:"skipRateLimitCheck,omitempty"`
}

// UpgradeResponse is the answer of POST /api/fleet/agents/{agentId}/upgrade.
type UpgradeResponse struct {
	ActionId *string `json:"actionId,omitempty"`
}

// BulkUpgradeRequest is the body of POST /api/fleet/agents/bulk_upgrade.
type BulkUpgradeRequest struct {
	Agents    AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	Version   string         `json:"version"`
	SourceUri *string        `json:"source_uri,omitempty"`
	Force     *bool          `json:"force,omitempty"`
	// Name of the Fleet object that the agents belong to: the order suspends the object, and is
	// carried out. Without it such an order is refused with 409 and the code fleet_owned
	TakeOver           *string `json:"take_over,omitempty"`
	SkipRateLimitCheck *bool   `json:"skipRateLimitCheck,omitempty"`
	// Spread the starts over this time
	RolloutDurationSeconds *int `json:"rollout_duration_seconds,omitempty" schema:"minimum=600"`
	// Not before
	StartTime       *time.Time `json:"start_time,omitempty"`
	BatchSize       *int       `json:"batchSize,omitempty"`
	IncludeInactive *bool      `json:"includeInactive,omitempty"`
	// Only count the agents that are named or selected and exist
	DryRun *bool `json:"dryRun,omitempty"`
	// Also during a freeze; needs why
	OverrideFreeze *bool `json:"override_freeze,omitempty"`
	// Also if more agents would have the version than the exposure budget allows; needs why
	OverrideExposure *bool `json:"override_exposure,omitempty"`
	// For the audit trail
	Why *string `json:"why,omitempty"`
}

// TagList is the answer of GET /api/fleet/agents/tags.
type TagList struct {
	Items []string `json:"items"`
}

// QuerySuggestions is the answer of GET /api/v1/kql/suggest.
type QuerySuggestions struct {
	Items []QuerySuggestion `json:"items"`
}

// QuerySuggestion is a text that can continue a query.
type QuerySuggestion struct {
	Kind QuerySuggestionKind `json:"kind"`
	// Text that replaces the bytes of the query between from and to
	Text        string  `json:"text"`
	From        int     `json:"from"`
	To          int     `json:"to"`
	Description *string `json:"description,omitempty"`
}

// QuerySuggestionKind is a value of kind of QuerySuggestion.
type QuerySuggestionKind string

// Values of QuerySuggestionKind.
const (
	Field       QuerySuggestionKind = "field"
	Operator    QuerySuggestionKind = "operator"
	Value       QuerySuggestionKind = "value"
	Conjunction QuerySuggestionKind = "conjunction"
)

// ActionCreated is the answer of POST /api/fleet/agents/{agentId}/request_diagnostics.
type ActionCreated struct {
	ActionId string `json:"actionId"`
}

// Reassigned is the answer of POST /api/fleet/agents/{agentId}/reassign.
type Reassigned struct {
	// Muster only: the active rollouts that the agent is a target of, which go on with it
	Warnings *[]string `json:"warnings,omitempty"`
}

// BulkActionResponse is the action that was created, or with dryRun a count.
type BulkActionResponse struct {
	ActionId *string `json:"actionId,omitempty"`
	// Number of agents that would get the action
	Count *int `json:"count,omitempty"`
	// Muster only: which of the agents are targets of active rollouts, which go on with them; with
	// dryRun also that the order would be refused
	Warnings *[]string `json:"warnings,omitempty"`
}

// ActionsCreated is the answer of POST /api/fleet/agents/bulk_rollback.
type ActionsCreated struct {
	ActionIds []string `json:"actionIds"`
}

// RollbackRequest is the body of POST /api/fleet/agents/{agentId}/rollback.
type RollbackRequest struct {
	// Also go to a version that is later than the one that runs: the one that a rollback has left.
	// Without it that is refused
	Forward *bool `json:"forward,omitempty"`
	// Name of the Fleet object that the agents belong to: the order suspends the object, and is
	// carried out. Without it such an order is refused with 409 and the code fleet_owned
	TakeOver *string `json:"take_over,omitempty"`
	// For the audit trail
	Why *string `json:"why,omitempty"`
}

// BulkRollbackRequest is the body of POST /api/fleet/agents/bulk_rollback.
type BulkRollbackRequest struct {
	Agents AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	// Also go to a version that is later than the one that runs: the one that a rollback has left.
	// Without it that is refused
	Forward   *bool `json:"forward,omitempty"`
	BatchSize *int  `json:"batchSize,omitempty"`
	// Name of the Fleet object that the agents belong to: the order suspends the object, and is
	// carried out. Without it such an order is refused with 409 and the code fleet_owned
	TakeOver        *string `json:"take_over,omitempty"`
	IncludeInactive *bool   `json:"includeInactive,omitempty"`
}

// RollbackPreviewRequest is the body of POST /api/v1/rollback_preview.
type RollbackPreviewRequest struct {
	Agents AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	// As in the order
	Forward         *bool `json:"forward,omitempty"`
	IncludeInactive *bool `json:"includeInactive,omitempty"`
	// As in the order: the fleet whose agents are taken over is no cause
	TakeOver *string `json:"take_over,omitempty"`
	// The most elements of items; counts and causes are of all agents. Default: all
	MaxItems *int `json:"max_items,omitempty" schema:"minimum=0"`
}

// RollbackPreview is the answer of POST /api/v1/rollback_preview.
type RollbackPreview struct {
	// How many agents would be rolled back
	Will  int                   `json:"will"`
	Wont  int                   `json:"wont"`
	Items []RollbackPreviewItem `json:"items"`
	// Why agents would not be rolled back, and remarks, with counts; of all agents, also if items has
	// fewer
	Causes *[]PreviewCause `json:"causes,omitempty"`
}

// RollbackPreviewItem is what a rollback would do to one agent.
type RollbackPreviewItem struct {
	AgentId  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	// Version it runs now
	Version string `json:"version"`
	Will    bool   `json:"will"`
	// Version it would go back to
	To *string `json:"to,omitempty"`
	// Absent while an upgrade is being watched
	ValidUntil *time.Time `json:"valid_until,omitempty"`
	// Why not, or a remark
	Reason *string `json:"reason,omitempty"`
}

// UpgradePreviewRequest is the body of POST /api/v1/upgrade_preview.
type UpgradePreviewRequest struct {
	Agents                 AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	IncludeInactive        *bool          `json:"includeInactive,omitempty"`
	Version                string         `json:"version"`
	SourceUri              *string        `json:"source_uri,omitempty"`
	Force                  *bool          `json:"force,omitempty"`
	RolloutDurationSeconds *int           `json:"rollout_duration_seconds,omitempty"`
	StartTime              *time.Time     `json:"start_time,omitempty"`
	OverrideFreeze         *bool          `json:"override_freeze,omitempty"`
	OverrideExposure       *bool          `json:"override_exposure,omitempty"`
	// As in the order: the fleet whose agents are taken over is no cause
	TakeOver *string `json:"take_over,omitempty"`
	// The most elements of items; counts and causes are of all agents. Default: all
	MaxItems *int `json:"max_items,omitempty" schema:"minimum=0"`
}

// StageRequest is the body of POST /api/v1/stage.
type StageRequest struct {
	Agents          AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	IncludeInactive *bool          `json:"includeInactive,omitempty"`
	// Name of the component; absent: the agents themselves
	Component *string `json:"component,omitempty"`
	Version   string  `json:"version"`
	SourceUri *string `json:"source_uri,omitempty"`
	// Also on hosts where the version has failed
	Force *bool `json:"force,omitempty"`
	// Of a preview: the most elements of items; counts and causes are of all agents. Default: all
	MaxItems *int `json:"max_items,omitempty" schema:"minimum=0"`
}

// UpgradePreview is the answer of POST /api/v1/upgrade_preview.
type UpgradePreview struct {
	Version string `json:"version"`
	// How many agents would be upgraded
	Will int `json:"will"`
	Wont int `json:"wont"`
	// Why the order would be refused as a whole: it names the freeze or the exposure budget
	Refused *string `json:"refused,omitempty"`
	// What refuses it, and can be overridden
	Guard *UpgradePreviewGuard `json:"guard,omitempty"`
	Items []UpgradePreviewItem `json:"items"`
	// Why agents would not be upgraded, and remarks, with counts; of all agents, also if items has
	// fewer
	Causes *[]PreviewCause `json:"causes,omitempty"`
}

// UpgradePreviewGuard is a value of guard of UpgradePreview.
type UpgradePreviewGuard string

// Values of UpgradePreviewGuard.
const (
	UpgradePreviewGuardFreeze   UpgradePreviewGuard = "freeze"
	UpgradePreviewGuardExposure UpgradePreviewGuard = "exposure"
)

// UpgradePreviewItem is what an upgrade would do to one agent.
type UpgradePreviewItem struct {
	AgentId  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	// Version it runs now
	Version string `json:"version"`
	Will    bool   `json:"will"`
	// Why not, or a remark: offline agents upgrade when they return
	Reason *string `json:"reason,omitempty"`
}

// Maker is whose agent it is, or whose agents it is for; absent for Muster's.
type Maker string

// Values of Maker.
const (
	MakerElastic Maker = "elastic"
)

// SharedIdentity is set if several hosts check in with the identity of the agent, such as a host and
// its clone. The agent gets no orders meanwhile; absent if there is one host.
type SharedIdentity struct {
	// When this was noticed
	Since time.Time `json:"since"`
	// Who they are, as a sentence
	Text string `json:"text"`
	// What to do, as a sentence
	Next string `json:"next"`
	// The one that the other fields follow first
	Hosts []Bearer `json:"hosts"`
}

// Bearer is a program that checks in with the agent's key.
type Bearer = fleet.Bearer

// DiagnosticsMetric is a metric that diagnostics have in addition.
type DiagnosticsMetric string

// Values of DiagnosticsMetric.
const (
	CPU DiagnosticsMetric = "CPU"
)

// DiagnosticsRequest is the body of POST /api/fleet/agents/{agentId}/request_diagnostics.
type DiagnosticsRequest struct {
	AdditionalMetrics *[]DiagnosticsMetric `json:"additional_metrics,omitempty" schema:"maxItems=1"`
	// Without the log of events; Kibana's API does not have it
	ExcludeEventsLog *bool `json:"exclude_events_log,omitempty"`
}

// BulkDiagnosticsRequest is the body of POST /api/fleet/agents/bulk_request_diagnostics.
type BulkDiagnosticsRequest struct {
	Agents            AgentSelection       `json:"agents" schema:"ref=AgentSelection"`
	BatchSize         *int                 `json:"batchSize,omitempty"`
	AdditionalMetrics *[]DiagnosticsMetric `json:"additional_metrics,omitempty" schema:"maxItems=1"`
	ExcludeEventsLog  *bool                `json:"exclude_events_log,omitempty"`
	// Only count the agents that would get the action
	DryRun *bool `json:"dryRun,omitempty"`
}

// UploadStatus is the state of requested diagnostics.
type UploadStatus string

// Values of UploadStatus.
const (
	UploadInProgress UploadStatus = "IN_PROGRESS"
	UploadAwaiting   UploadStatus = "AWAITING_UPLOAD"
	UploadReady      UploadStatus = "READY"
	UploadError      UploadStatus = "UPLOAD_ERROR"
	UploadExpired    UploadStatus = "EXPIRED"
	UploadFailed     UploadStatus = "FAILED"
)

// Upload is the diagnostics of an agent that were requested.
type Upload struct {
	// Of the file; of the action while there is none
	Id   string `json:"id"`
	Name string `json:"name"`
	// Where it is downloaded; empty while there is no file
	FilePath string `json:"filePath"`
	// When it was requested
	CreateTime time.Time    `json:"createTime"`
	Status     UploadStatus `json:"status"`
	ActionId   string       `json:"actionId"`
	// Why the agent could not send it
	Error *string `json:"error,omitempty"`
}

// UploadList is the answer of GET /api/fleet/agents/{agentId}/uploads.
type UploadList struct {
	Items []Upload `json:"items"`
}

// UploadDeleted is the answer of DELETE /api/fleet/agents/files/{fileId}.
type UploadDeleted struct {
	Id      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

// UpdateAgentRequest is the body of PUT /api/fleet/agents/{agentId}.
type UpdateAgentRequest struct {
	Tags *[]string `json:"tags,omitempty" schema:"maxItems=10"`
	// Merged into what there is
	UserProvidedMetadata *map[string]any `json:"user_provided_metadata,omitempty"`
}

// ReassignRequest is the body of POST /api/fleet/agents/{agentId}/reassign.
type ReassignRequest struct {
	PolicyId string `json:"policy_id"`
}

// BulkReassignRequest is the body of POST /api/fleet/agents/bulk_reassign.
type BulkReassignRequest struct {
	Agents          AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	PolicyId        string         `json:"policy_id"`
	BatchSize       *int           `json:"batchSize,omitempty"`
	IncludeInactive *bool          `json:"includeInactive,omitempty"`
	// Only count the agents that are named or selected and exist
	DryRun *bool `json:"dryRun,omitempty"`
	// Also if more agents would be taken away within an hour than admin.removals_per_hour; needs why
	OverrideLimit *bool `json:"override_limit,omitempty"`
	// For the audit trail
	Why *string `json:"why,omitempty"`
}

// BulkTagRequest is the body of POST /api/fleet/agents/bulk_update_agent_tags.
type BulkTagRequest struct {
	Agents          AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	TagsToAdd       *[]string      `json:"tagsToAdd,omitempty" schema:"maxItems=10"`
	TagsToRemove    *[]string      `json:"tagsToRemove,omitempty" schema:"maxItems=10"`
	BatchSize       *int           `json:"batchSize,omitempty"`
	IncludeInactive *bool          `json:"includeInactive,omitempty"`
	// Only count the agents that are named or selected and exist
	DryRun *bool `json:"dryRun,omitempty"`
}

// PrivilegeUser is the user that an agent runs as without root.
type PrivilegeUser struct {
	Username  *string `json:"username,omitempty"`
	Groupname *string `json:"groupname,omitempty"`
	Password  *string `json:"password,omitempty"`
}

// PrivilegeRequest is the body of POST /api/fleet/agents/{agentId}/privilege_level_change.
type PrivilegeRequest struct {
	UserInfo *PrivilegeUser `json:"user_info,omitempty"`
}

// BulkPrivilegeRequest is the body of POST /api/fleet/agents/bulk_privilege_level_change.
type BulkPrivilegeRequest struct {
	Agents    AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	UserInfo  *PrivilegeUser `json:"user_info,omitempty"`
	BatchSize *int           `json:"batchSize,omitempty"`
	// Only count the agents that are named or selected and exist
	DryRun *bool `json:"dryRun,omitempty"`
}

// ActionOrMessage is the answer of POST /api/fleet/agents/{agentId}/privilege_level_change.
type ActionOrMessage struct {
	ActionId *string `json:"actionId,omitempty"`
	// Why there is nothing to do
	Message *string `json:"message,omitempty"`
}

// MigrateSettings are the settings with which an agent enrols with another server.
type MigrateSettings struct {
	CaSha256                      *string            `json:"ca_sha256,omitempty"`
	CertificateAuthorities        *string            `json:"certificate_authorities,omitempty"`
	ElasticAgentCert              *string            `json:"elastic_agent_cert,omitempty"`
	ElasticAgentCertKey           *string            `json:"elastic_agent_cert_key,omitempty"`
	ElasticAgentCertKeyPassphrase *string            `json:"elastic_agent_cert_key_passphrase,omitempty"`
	Headers                       *map[string]string `json:"headers,omitempty"`
	Insecure                      *bool              `json:"insecure,omitempty"`
	ProxyDisabled                 *bool              `json:"proxy_disabled,omitempty"`
	ProxyHeaders                  *map[string]string `json:"proxy_headers,omitempty"`
	ProxyUrl                      *string            `json:"proxy_url,omitempty"`
	Staging                       *string            `json:"staging,omitempty"`
	Tags                          *[]string          `json:"tags,omitempty" schema:"maxItems=10"`
	// Only for one agent; bulk_migrate refuses it
	ReplaceToken *string `json:"replace_token,omitempty"`
}

// MigrateRequest is the body of POST /api/fleet/agents/{agentId}/migrate.
type MigrateRequest struct {
	Uri             string           `json:"uri"`
	EnrollmentToken string           `json:"enrollment_token"`
	Settings        *MigrateSettings `json:"settings,omitempty"`
}

// BulkMigrateRequest is the body of POST /api/fleet/agents/bulk_migrate.
type BulkMigrateRequest struct {
	Agents          AgentSelection   `json:"agents" schema:"ref=AgentSelection"`
	Uri             string           `json:"uri"`
	EnrollmentToken string           `json:"enrollment_token"`
	Settings        *MigrateSettings `json:"settings,omitempty"`
	BatchSize       *int             `json:"batchSize,omitempty"`
	// Also if more agents would be taken away within an hour than admin.removals_per_hour; needs why
	OverrideLimit *bool `json:"override_limit,omitempty"`
	// For the audit trail
	Why *string `json:"why,omitempty"`
}

// AgentData is the answer of GET /api/fleet/agent_status/data.
type AgentData struct {
	// One object for each agent: its id with {data: false}
	Items       []map[string]any `json:"items"`
	DataPreview []map[string]any `json:"dataPreview"`
}
