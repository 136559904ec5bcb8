package adminapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The operations of the area policies.
var (
	ListPolicies = op[None, PolicyList](Call{
		ID: "listPolicies", Method: http.MethodGet, Path: "/api/fleet/agent_policies",
		Area: AreaPolicies, Permission: "policies.read",
		Summary: "List policies",
		Answer:  "The policies",
		Params: []Param{
			page,
			perPage,
			kuery,
			{Name: "sortField", Schema: "default=updated_at", Doc: "A field of queries about policies"},
			{Name: "sortOrder", Schema: "enum=asc|desc,default=desc"},
			{Name: "noAgentCount", Is: false, Schema: "default=false", Doc: "Answer with agents: 0 instead of counting them"},
			{Name: "withAgentCount", Is: false, Doc: "Opposite of noAgentCount"},
			{Name: "showUpgradeable", Is: false, Doc: "Accepted and without effect as in Kibana"},
			{Name: "full", Is: false, Doc: "Include package policies; there are none, so it has no effect"},
			{Name: "format", Schema: "enum=simplified|legacy", Doc: "Form of package policies, of which there are none"},
		},
	})

	CreatePolicy = op[PolicyRequest, PolicyItem](Call{
		ID: "createPolicy", Method: http.MethodPost, Path: "/api/fleet/agent_policies",
		Area: AreaPolicies, Permission: "policies.write",
		Summary: "Create a policy",
		Answer:  "The policy",
		Params: []Param{
			{Name: "sys_monitoring", Is: false, Doc: "Must be false: there are no integrations"},
		},
	})

	BulkGetPolicies = op[BulkGetPoliciesRequest, PolicyItems](Call{
		ID: "bulkGetPolicies", Method: http.MethodPost, Path: "/api/fleet/agent_policies/_bulk_get",
		Area: AreaPolicies, Permission: "policies.read",
		Summary:   "Get policies by their ids",
		Answer:    "The policies",
		Unaudited: true,
		Params: []Param{
			{Name: "format", Schema: "enum=simplified|legacy", Doc: "Form of package policies, of which there are none"},
		},
	})

	DeletePolicy = op[DeletePolicyRequest, DeletedPolicy](Call{
		ID: "deletePolicy", Method: http.MethodPost, Path: "/api/fleet/agent_policies/delete",
		Area: AreaPolicies, Permission: "policies.write",
		Summary: "Delete a policy that has no agents, and revoke its enrollment keys",
		Answer:  "Deleted",
	})

	ListPolicyOutputs = op[PolicyOutputsRequest, PolicyOutputsList](Call{
		ID: "listPolicyOutputs", Method: http.MethodPost, Path: "/api/fleet/agent_policies/outputs",
		Area: AreaPolicies, Permission: "policies.read",
		Summary:   "List the outputs of policies",
		Answer:    "The outputs of each policy",
		Unaudited: true,
	})

	GetPolicy = op[None, PolicyItem](Call{
		ID: "getPolicy", Method: http.MethodGet, Path: "/api/fleet/agent_policies/{policyId}",
		Area: AreaPolicies, Permission: "policies.read",
		Summary: "Get a policy",
		Answer:  "The policy",
		Params: []Param{
			{Name: "format", Schema: "enum=simplified|legacy", Doc: "Form of package policies, of which there are none"},
		},
	})

	UpdatePolicy = op[UpdatePolicyRequest, PolicyItem](Call{
		ID: "updatePolicy", Method: http.MethodPut, Path: "/api/fleet/agent_policies/{policyId}",
		Area: AreaPolicies, Permission: "policies.write",
		Summary:     "Change a policy",
		Description: "Absent fields keep their values, except inactivity_timeout, which gets its default. null clears a field. A change that sends more agents to another server than the removal limit permits (admin.removals_per_hour) is refused with 409 and the rule removal_limit; override_limit and why make it nevertheless.",
		Answer:      "The policy",
		Params: []Param{
			{Name: "override_limit", Is: false, Schema: "default=false", Doc: "Also if more agents would be taken away within an hour than admin.removals_per_hour; needs why"},
			{Name: "why", Doc: "For the audit trail"},
			{Name: "format", Schema: "enum=simplified|legacy", Doc: "Form of package policies, of which there are none"},
		},
	})

	CopyPolicy = op[CopyPolicyRequest, PolicyItem](Call{
		ID: "copyPolicy", Method: http.MethodPost, Path: "/api/fleet/agent_policies/{policyId}/copy",
		Area: AreaPolicies, Permission: "policies.write",
		Summary: "Create a policy with the settings of another",
		Answer:  "The new policy",
		Params: []Param{
			{Name: "format", Schema: "enum=simplified|legacy", Doc: "Form of package policies, of which there are none"},
		},
	})

	GetFullPolicy = op[None, FullPolicyItem](Call{
		ID: "getFullPolicy", Method: http.MethodGet, Path: "/api/fleet/agent_policies/{policyId}/full",
		Area: AreaPolicies, Permission: "policies.read",
		Summary: "Get the policy as agents get it",
		Answer:  "The agent policy",
		Params: []Param{
			{Name: "download", Is: false},
			{Name: "standalone", Is: false, Doc: "Must be false: the server has no policies for standalone agents"},
			{Name: "kubernetes", Is: false, Doc: "Must be false"},
		},
	})

	DownloadPolicy = op[None, Text](Call{
		ID: "downloadPolicy", Method: http.MethodGet, Path: "/api/fleet/agent_policies/{policyId}/download",
		Area: AreaPolicies, Permission: "policies.read",
		Summary:    "Download the policy as agents get it",
		Answer:     "elastic-agent.yml",
		AnswerType: "text/x-yaml",
		Params: []Param{
			{Name: "download", Is: false},
			{Name: "standalone", Is: false, Doc: "Must be false: the server has no policies for standalone agents"},
			{Name: "kubernetes", Is: false, Doc: "Must be false"},
		},
	})

	GetPolicyOutputs = op[None, PolicyOutputsItem](Call{
		ID: "getPolicyOutputs", Method: http.MethodGet, Path: "/api/fleet/agent_policies/{policyId}/outputs",
		Area: AreaPolicies, Permission: "policies.read",
		Summary: "Get the outputs of a policy",
		Answer:  "The outputs",
	})

	GetAutoUpgradeStatus = op[None, AutoUpgradeStatus](Call{
		ID: "getAutoUpgradeStatus", Method: http.MethodGet, Path: "/api/fleet/agent_policies/{policyId}/auto_upgrade_agents_status",
		Area: AreaPolicies, Permission: "policies.read",
		Summary: "Count the agents of a policy by version, as automatic upgrades see them",
		Answer:  "The counts",
	})
)

// Policy is a policy of agents.
type Policy struct {
	Id          string `json:"id"`
	Name        string `json:"name"`
	Namespace   string `json:"namespace" example:"default"`
	IsProtected bool   `json:"is_protected"`
	// Changed only with force
	IsManaged bool `json:"is_managed"`
	PolicySettings
	Revision        int64            `json:"revision"`
	Status          string           `json:"status" example:"active"`
	UpdatedAt       time.Time        `json:"updated_at"`
	UpdatedBy       string           `json:"updated_by"`
	PackagePolicies []map[string]any `json:"package_policies"`
	Agents          int              `json:"agents"`
}

// PolicySettings are the settings of a policy that may be absent.
type PolicySettings struct {
	Description *string `json:"description,omitempty"`
	// Only "default" exists
	SpaceIds *[]string `json:"space_ids,omitempty"`
	// Seconds; 0: never inactive
	InactivityTimeout *int `json:"inactivity_timeout,omitempty" schema:"minimum=0,default=1209600"`
	// Seconds
	UnenrollTimeout *int64 `json:"unenroll_timeout,omitempty" schema:"minimum=0,nullable"`
	// logs, metrics, traces
	MonitoringEnabled      *[]string `json:"monitoring_enabled,omitempty"`
	KeepMonitoringAlive    *bool     `json:"keep_monitoring_alive,omitempty" schema:"nullable"`
	MonitoringPprofEnabled *bool     `json:"monitoring_pprof_enabled,omitempty"`
	// enabled, host, port, buffer.enabled
	MonitoringHttp *json.RawMessage `json:"monitoring_http,omitempty" schema:"object"`
	// limit, uploader
	MonitoringDiagnostics *json.RawMessage `json:"monitoring_diagnostics,omitempty" schema:"object"`
	DataOutputId          *string          `json:"data_output_id,omitempty" schema:"nullable"`
	MonitoringOutputId    *string          `json:"monitoring_output_id,omitempty" schema:"nullable"`
	DownloadSourceId      *string          `json:"download_source_id,omitempty" schema:"nullable"`
	FleetServerHostId     *string          `json:"fleet_server_host_id,omitempty" schema:"nullable"`
	AgentFeatures         *[]AgentFeature  `json:"agent_features,omitempty"`
	GlobalDataTags        *[]GlobalDataTag `json:"global_data_tags,omitempty"`
	// Versions that agents are upgraded to automatically
	RequiredVersions *[]RequiredVersion `json:"required_versions,omitempty" schema:"nullable"`
	// Muster only: when agents are upgraded to required_versions. Absent if always
	UpgradeWindows *[]Window `json:"upgrade_windows,omitempty" schema:"maxItems=100,nullable"`
	// Settings of agents such as agent_logging_level
	AdvancedSettings *json.RawMessage `json:"advanced_settings,omitempty" schema:"object"`
	// Replaces parts of the agent policy, except inputs and components
	Overrides *json.RawMessage `json:"overrides,omitempty" schema:"object"`
	// Muster only: workloads that agents of Muster run. Absent if there are none
	Components           *[]PolicyComponent `json:"components,omitempty" schema:"maxItems=50,nullable"`
	IsDefault            *bool              `json:"is_default,omitempty"`
	IsDefaultFleetServer *bool              `json:"is_default_fleet_server,omitempty"`
	HasFleetServer       *bool              `json:"has_fleet_server,omitempty"`
	// Must be false
	SupportsAgentless *bool `json:"supports_agentless,omitempty" schema:"nullable"`
	// resources.requests.memory, resources.requests.cpu
	Agentless *json.RawMessage `json:"agentless,omitempty" schema:"object"`
}

// PolicyItem is the answer of POST /api/fleet/agent_policies.
type PolicyItem struct {
	Item Policy `json:"item"`
}

// PolicyItems is the answer of POST /api/fleet/agent_policies/_bulk_get.
type PolicyItems struct {
	Items []Policy `json:"items"`
}

// PolicyList is the answer of GET /api/fleet/agent_policies.
type PolicyList struct {
	Items   []Policy `json:"items"`
	Total   int      `json:"total"`
	Page    int      `json:"page"`
	PerPage int      `json:"perPage"`
}

// PolicyRequest is the body of POST /api/fleet/agent_policies.
type PolicyRequest struct {
	Id          *string `json:"id,omitempty"`
	Name        string  `json:"name"`
	Namespace   string  `json:"namespace" example:"default"`
	IsProtected *bool   `json:"is_protected,omitempty"`
	// Changed only with force
	IsManaged *bool `json:"is_managed,omitempty"`
	PolicySettings
	// Change even a managed policy
	Force *bool `json:"force,omitempty"`
}

// UpdatePolicyRequest is the body of PUT /api/fleet/agent_policies/{policyId}.
type UpdatePolicyRequest struct {
	PolicyRequest
	// Whether the policy gets a new revision, which is sent to its agents
	BumpRevision *bool `json:"bumpRevision,omitempty" schema:"default=true"`
}

// AgentFeature is a feature of agents that a policy switches on or off.
type AgentFeature = fleet.AgentFeature

// GlobalDataTag is a tag that agents add to their data.
type GlobalDataTag = fleet.GlobalDataTag

// RequiredVersion is a version, and the share of a policy's agents that are to run it.
type RequiredVersion = fleet.RequiredVersion

// PolicyComponent is a workload that agents run. Its package, which the publishers sign, says how. An
// agent installs or upgrades it only by an upgrade of the component.
type PolicyComponent struct {
	agentapi.PolicyComponent
	// For the templates of configuration files, as .Vars; agents do not get them. They are no place
	// for secrets
	Variables map[string]string `json:"variables,omitempty" schema:"maxProperties=100" example:"{port: '8080'}"`
}

// ComponentInForce is the version that the hosts of the policy run, with lockstep. The server sets it:
// a request leaves it out, or repeats it. Absent: none is in force yet.
type ComponentInForce = agentapi.ComponentInForce

// PolicyArtifact is the artifact that a component runs.
type PolicyArtifact = agentapi.ComponentArtifact

// ComponentHealth is how an agent observes the component after an upgrade. Absent values are the
// agent's defaults.
type ComponentHealth = agentapi.ComponentHealth

// ComponentCheck is a check of a component: exactly one of http and tcp is given.
type ComponentCheck = agentapi.ComponentCheck

// BulkGetPoliciesRequest is the body of POST /api/fleet/agent_policies/_bulk_get.
type BulkGetPoliciesRequest struct {
	Ids           []string `json:"ids" schema:"minItems=1"`
	Full          *bool    `json:"full,omitempty"`
	IgnoreMissing *bool    `json:"ignoreMissing,omitempty"`
}

// DeletePolicyRequest is the body of POST /api/fleet/agent_policies/delete.
type DeletePolicyRequest struct {
	AgentPolicyId string `json:"agentPolicyId"`
	// Delete even a managed policy
	Force *bool `json:"force,omitempty"`
}

// DeletedPolicy is the answer of POST /api/fleet/agent_policies/delete.
type DeletedPolicy struct {
	Id   string `json:"id"`
	Name string `json:"name"`
}

// CopyPolicyRequest is the body of POST /api/fleet/agent_policies/{policyId}/copy.
type CopyPolicyRequest struct {
	Name        string  `json:"name"`
	Description *string `json:"description,omitempty"`
}

// FullPolicyItem is the answer of GET /api/fleet/agent_policies/{policyId}/full.
type FullPolicyItem struct {
	// The agent policy
	Item json.RawMessage `json:"item" schema:"object"`
}

// PolicyOutputsRequest is the body of POST /api/fleet/agent_policies/outputs.
type PolicyOutputsRequest struct {
	Ids []string `json:"ids"`
}

// PolicyOutputsItem is the answer of GET /api/fleet/agent_policies/{policyId}/outputs.
type PolicyOutputsItem struct {
	Item PolicyOutputs `json:"item"`
}

// PolicyOutputsList is the answer of POST /api/fleet/agent_policies/outputs.
type PolicyOutputsList struct {
	Items []PolicyOutputs `json:"items"`
}

// PolicyOutputs are the outputs of a policy.
type PolicyOutputs struct {
	AgentPolicyId *string `json:"agentPolicyId,omitempty"`
	Monitoring    struct {
		Output PolicyOutput `json:"output"`
	} `json:"monitoring"`
	Data struct {
		Output       PolicyOutput     `json:"output"`
		Integrations []map[string]any `json:"integrations"`
	} `json:"data"`
}

// PolicyOutput names an output.
type PolicyOutput struct {
	Id   string `json:"id"`
	Name string `json:"name"`
}

// AutoUpgradeStatus is the answer of GET
// /api/fleet/agent_policies/{policyId}/auto_upgrade_agents_status.
type AutoUpgradeStatus struct {
	CurrentVersions []AutoUpgradeVersion `json:"currentVersions"`
	TotalAgents     int                  `json:"totalAgents"`
}

// AutoUpgradeVersion is a required version, and how many agents have it.
type AutoUpgradeVersion struct {
	Version string `json:"version"`
	// Agents that run it
	Agents int `json:"agents"`
	// Agents whose upgrade to it failed
	FailedUpgradeAgents int `json:"failedUpgradeAgents"`
	// Agents that are being upgraded to it
	InProgressUpgradeAgents int `json:"inProgressUpgradeAgents"`
}
