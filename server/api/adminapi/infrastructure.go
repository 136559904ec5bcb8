package adminapi

import (
	"net/http"

	"github.com/muster-fleet/muster/server/fleet"
)

// The operations of the area infrastructure.
var (
	ListFleetServerHosts = op[None, FleetServerHostList](Call{
		ID: "listFleetServerHosts", Method: http.MethodGet, Path: "/api/fleet/fleet_server_hosts",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "List Fleet Server hosts",
		Answer:  "The answer",
	})

	CreateFleetServerHost = op[ObjectFields, FleetServerHostItem](Call{
		ID: "createFleetServerHost", Method: http.MethodPost, Path: "/api/fleet/fleet_server_hosts",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary:     "Create a Fleet Server host",
		Description: "A change that sends more agents to another server than the removal limit permits (admin.removals_per_hour) is refused with 409 and the rule removal_limit; override_limit and why make it nevertheless.",
		Answer:      "The answer",
		Params: []Param{
			{Name: "override_limit", Is: false, Schema: "default=false", Doc: "Also if more agents would be taken away within an hour than admin.removals_per_hour; needs why"},
			{Name: "why", Doc: "For the audit trail"},
		},
	})

	GetFleetServerHost = op[None, FleetServerHostItem](Call{
		ID: "getFleetServerHost", Method: http.MethodGet, Path: "/api/fleet/fleet_server_hosts/{itemId}",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "Get a Fleet Server host",
		Answer:  "The answer",
	})

	UpdateFleetServerHost = op[ObjectFields, FleetServerHostItem](Call{
		ID: "updateFleetServerHost", Method: http.MethodPut, Path: "/api/fleet/fleet_server_hosts/{itemId}",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary:     "Change a Fleet Server host",
		Description: "A change that sends more agents to another server than the removal limit permits (admin.removals_per_hour) is refused with 409 and the rule removal_limit; override_limit and why make it nevertheless.",
		Answer:      "The answer",
		Params: []Param{
			{Name: "override_limit", Is: false, Schema: "default=false", Doc: "Also if more agents would be taken away within an hour than admin.removals_per_hour; needs why"},
			{Name: "why", Doc: "For the audit trail"},
		},
	})

	DeleteFleetServerHost = op[None, DeletedObject](Call{
		ID: "deleteFleetServerHost", Method: http.MethodDelete, Path: "/api/fleet/fleet_server_hosts/{itemId}",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary:     "Delete a Fleet Server host, and remove its id from the objects that refer to it",
		Description: "A change that sends more agents to another server than the removal limit permits (admin.removals_per_hour) is refused with 409 and the rule removal_limit; override_limit and why make it nevertheless.",
		Answer:      "The answer",
		Params: []Param{
			{Name: "override_limit", Is: false, Schema: "default=false", Doc: "Also if more agents would be taken away within an hour than admin.removals_per_hour; needs why"},
			{Name: "why", Doc: "For the audit trail"},
		},
	})

	ListDownloadSources = op[None, DownloadSourceList](Call{
		ID: "listDownloadSources", Method: http.MethodGet, Path: "/api/fleet/agent_download_sources",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "List sources of packages",
		Answer:  "The answer",
	})

	CreateDownloadSource = op[ObjectFields, DownloadSourceItem](Call{
		ID: "createDownloadSource", Method: http.MethodPost, Path: "/api/fleet/agent_download_sources",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary: "Create a source of packages",
		Answer:  "The answer",
	})

	GetDownloadSource = op[None, DownloadSourceItem](Call{
		ID: "getDownloadSource", Method: http.MethodGet, Path: "/api/fleet/agent_download_sources/{sourceId}",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "Get a source of packages",
		Answer:  "The answer",
	})

	UpdateDownloadSource = op[ObjectFields, DownloadSourceItem](Call{
		ID: "updateDownloadSource", Method: http.MethodPut, Path: "/api/fleet/agent_download_sources/{sourceId}",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary: "Change a source of packages",
		Answer:  "The answer",
	})

	DeleteDownloadSource = op[None, DeletedObject](Call{
		ID: "deleteDownloadSource", Method: http.MethodDelete, Path: "/api/fleet/agent_download_sources/{sourceId}",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary: "Delete a source of packages, and remove its id from the objects that refer to it",
		Answer:  "The answer",
	})

	ListFleetProxies = op[None, FleetProxyList](Call{
		ID: "listFleetProxies", Method: http.MethodGet, Path: "/api/fleet/proxies",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "List proxies",
		Answer:  "The answer",
	})

	CreateFleetProxy = op[ObjectFields, FleetProxyItem](Call{
		ID: "createFleetProxy", Method: http.MethodPost, Path: "/api/fleet/proxies",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary: "Create a proxy",
		Answer:  "The answer",
	})

	GetFleetProxy = op[None, FleetProxyItem](Call{
		ID: "getFleetProxy", Method: http.MethodGet, Path: "/api/fleet/proxies/{itemId}",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "Get a proxy",
		Answer:  "The answer",
	})

	UpdateFleetProxy = op[ObjectFields, FleetProxyItem](Call{
		ID: "updateFleetProxy", Method: http.MethodPut, Path: "/api/fleet/proxies/{itemId}",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary: "Change a proxy",
		Answer:  "The answer",
	})

	DeleteFleetProxy = op[None, DeletedObject](Call{
		ID: "deleteFleetProxy", Method: http.MethodDelete, Path: "/api/fleet/proxies/{itemId}",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary: "Delete a proxy, and remove its id from the objects that refer to it",
		Answer:  "The answer",
	})

	ListOutputs = op[None, OutputList](Call{
		ID: "listOutputs", Method: http.MethodGet, Path: "/api/fleet/outputs",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "List outputs",
		Answer:  "The answer",
	})

	CreateOutput = op[ObjectFields, OutputItem](Call{
		ID: "createOutput", Method: http.MethodPost, Path: "/api/fleet/outputs",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary: "Create an output",
		Answer:  "The answer",
	})

	GetOutput = op[None, OutputItem](Call{
		ID: "getOutput", Method: http.MethodGet, Path: "/api/fleet/outputs/{outputId}",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "Get an output",
		Answer:  "The answer",
	})

	UpdateOutput = op[ObjectFields, OutputItem](Call{
		ID: "updateOutput", Method: http.MethodPut, Path: "/api/fleet/outputs/{outputId}",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary: "Change an output",
		Answer:  "The answer",
	})

	DeleteOutput = op[None, DeletedObject](Call{
		ID: "deleteOutput", Method: http.MethodDelete, Path: "/api/fleet/outputs/{outputId}",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary: "Delete an output, and remove its id from the objects that refer to it",
		Answer:  "The answer",
	})

	GetOutputHealth = op[None, OutputHealth](Call{
		ID: "getOutputHealth", Method: http.MethodGet, Path: "/api/fleet/outputs/{outputId}/health",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "Get the health that agents report of an output; they report none here",
		Answer:  "The answer",
	})

	GetSetup = op[None, FleetSetup](Call{
		ID: "getSetup", Method: http.MethodGet, Path: "/api/fleet/setup",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "Report whether the server is set up",
		Answer:  "The answer",
	})

	Setup = op[None, FleetSetup](Call{
		ID: "setup", Method: http.MethodPost, Path: "/api/fleet/setup",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary:   "Do nothing, since the server is always set up",
		Answer:    "The answer",
		Unaudited: true,
	})

	GetAgentsSetup = op[None, AgentsSetup](Call{
		ID: "getAgentsSetup", Method: http.MethodGet, Path: "/api/fleet/agents/setup",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "Report what agents need",
		Answer:  "The answer",
	})

	SetupAgents = op[None, FleetSetup](Call{
		ID: "setupAgents", Method: http.MethodPost, Path: "/api/fleet/agents/setup",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary:   "Do nothing, since what agents need is always set up",
		Answer:    "The answer",
		Unaudited: true,
	})

	GetSettings = op[None, FleetSettingsItem](Call{
		ID: "getSettings", Method: http.MethodGet, Path: "/api/fleet/settings",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "Get the settings",
		Answer:  "The answer",
	})

	UpdateSettings = op[ObjectFields, FleetSettingsItem](Call{
		ID: "updateSettings", Method: http.MethodPut, Path: "/api/fleet/settings",
		Area: AreaInfrastructure, Permission: "infrastructure.write",
		Summary: "Check changes of the settings; none can be changed, and a value that would change one is 400",
		Answer:  "The answer",
	})

	GetPermissions = op[None, CheckPermissions](Call{
		ID: "checkPermissions", Method: http.MethodGet, Path: "/api/fleet/check-permissions",
		Area: AreaInfrastructure, Permission: "server.read",
		Summary: "Report whether the caller may manage agents",
		Answer:  "The answer",
		Params: []Param{
			{Name: "fleetServerSetup", Is: false},
		},
	})

	ListIntegrations = op[None, IntegrationList](Call{
		ID: "listIntegrations", Method: http.MethodGet, Path: "/api/fleet/epm/packages",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "List integrations; there are none",
		Answer:  "The answer",
		Params: []Param{
			{Name: "category"},
			{Name: "prerelease", Is: false},
			{Name: "excludeInstallStatus", Is: false},
			{Name: "withPackagePoliciesCount", Is: false},
			{Name: "include_policy_templates", Is: false},
		},
	})

	ListInstalledIntegrations = op[None, InstalledIntegrationList](Call{
		ID: "listInstalledIntegrations", Method: http.MethodGet, Path: "/api/fleet/epm/packages/installed",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "List installed integrations; there are none",
		Answer:  "The answer",
		Params: []Param{
			{Name: "dataStreamType"},
			{Name: "showOnlyActiveDataStreams", Is: false},
			{Name: "nameQuery"},
			{Name: "searchAfter", Is: []string(nil)},
			{Name: "perPage", Is: 0},
			{Name: "sortOrder"},
		},
	})

	ListLimitedIntegrations = op[None, IntegrationList](Call{
		ID: "listLimitedIntegrations", Method: http.MethodGet, Path: "/api/fleet/epm/packages/limited",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "List the integrations that a policy may have once; there are none",
		Answer:  "The answer",
	})

	ListIntegrationCategories = op[None, IntegrationList](Call{
		ID: "listIntegrationCategories", Method: http.MethodGet, Path: "/api/fleet/epm/categories",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "List categories of integrations; there are none",
		Answer:  "The answer",
		Params: []Param{
			{Name: "category"},
			{Name: "prerelease", Is: false},
			{Name: "excludeInstallStatus", Is: false},
			{Name: "withPackagePoliciesCount", Is: false},
			{Name: "include_policy_templates", Is: false},
		},
	})

	ListPackagePolicies = op[None, PackagePolicyList](Call{
		ID: "listPackagePolicies", Method: http.MethodGet, Path: "/api/fleet/package_policies",
		Area: AreaInfrastructure, Permission: "infrastructure.read",
		Summary: "List package policies; there are none",
		Answer:  "The answer",
		Params: []Param{
			page,
			{Name: "perPage", Is: 0, Schema: "minimum=1,maximum=1000,default=20"},
			{Name: "sortField"},
			{Name: "sortOrder"},
			{Name: "showUpgradeable", Is: false},
			{Name: "kuery"},
			{Name: "format"},
			{Name: "withAgentCount", Is: false},
		},
	})

	ListUninstallTokens = op[None, UninstallTokenList](Call{
		ID: "listUninstallTokens", Method: http.MethodGet, Path: "/api/fleet/uninstall_tokens",
		Area: AreaInfrastructure, Permission: "uninstall_tokens.read",
		Summary: "List the uninstall tokens of policies, without the tokens themselves",
		Answer:  "The answer",
		Params: []Param{
			{Name: "policyId", Schema: "maxLength=50", Doc: "Part of the id of a policy"},
			{Name: "search", Schema: "maxLength=50", Doc: "Part of the id or the name of a policy"},
			page,
			{Name: "perPage", Is: 0, Schema: "minimum=5,default=20"},
		},
	})

	GetUninstallToken = op[None, UninstallTokenItem](Call{
		ID: "getUninstallToken", Method: http.MethodGet, Path: "/api/fleet/uninstall_tokens/{uninstallTokenId}",
		Area: AreaInfrastructure, Permission: "uninstall_tokens.read",
		Summary: "Get an uninstall token",
		Answer:  "The answer",
	})
)

// DeletedObject is the answer of DELETE /api/fleet/fleet_server_hosts/{itemId}.
type DeletedObject struct {
	Id string `json:"id"`
}

// HostSSL is TLS of a Fleet Server host.
type HostSSL = fleet.HostSSL

// ClientSSL is TLS of a client.
type ClientSSL = fleet.ClientSSL

// FleetServerHost is the address of servers that agents check in with.
type FleetServerHost = fleet.FleetServerHost

// DownloadSource is an address that agents download packages from.
type DownloadSource = fleet.DownloadSource

// FleetProxy is a proxy of agents.
type FleetProxy = fleet.FleetProxy

// OutputShipper is the queue of an output.
type OutputShipper = fleet.OutputShipper

// OutputSASL is the authentication of an output.
type OutputSASL = fleet.OutputSASL

// OutputEvents is how many events a partition gets at a time.
type OutputEvents = fleet.OutputEvents

// OutputHash is what selects the partition of an event.
type OutputHash = fleet.OutputHash

// OutputHeader is a header of the messages of an output.
type OutputHeader = fleet.OutputHeader

// Output is where agents send their data.
type Output = fleet.Output

// OutputType is a value of type of Output.
type OutputType = fleet.OutputType

// FleetServerHostItem is the answer of POST /api/fleet/fleet_server_hosts.
type FleetServerHostItem struct {
	Item FleetServerHost `json:"item"`
}

// FleetServerHostList is the answer of GET /api/fleet/fleet_server_hosts.
type FleetServerHostList struct {
	Items   []FleetServerHost `json:"items"`
	Total   int               `json:"total"`
	Page    int               `json:"page"`
	PerPage int               `json:"perPage"`
}

// DownloadSourceItem is the answer of POST /api/fleet/agent_download_sources.
type DownloadSourceItem struct {
	Item DownloadSource `json:"item"`
}

// DownloadSourceList is the answer of GET /api/fleet/agent_download_sources.
type DownloadSourceList struct {
	Items   []DownloadSource `json:"items"`
	Total   int              `json:"total"`
	Page    int              `json:"page"`
	PerPage int              `json:"perPage"`
}

// FleetProxyItem is the answer of POST /api/fleet/proxies.
type FleetProxyItem struct {
	Item FleetProxy `json:"item"`
}

// FleetProxyList is the answer of GET /api/fleet/proxies.
type FleetProxyList struct {
	Items   []FleetProxy `json:"items"`
	Total   int          `json:"total"`
	Page    int          `json:"page"`
	PerPage int          `json:"perPage"`
}

// OutputItem is the answer of POST /api/fleet/outputs.
type OutputItem struct {
	Item Output `json:"item"`
}

// OutputList is the answer of GET /api/fleet/outputs.
type OutputList struct {
	Items   []Output `json:"items"`
	Total   int      `json:"total"`
	Page    int      `json:"page"`
	PerPage int      `json:"perPage"`
}

// FleetSetup is the answer of GET /api/fleet/setup.
type FleetSetup struct {
	IsInitialized  bool             `json:"isInitialized"`
	NonFatalErrors []map[string]any `json:"nonFatalErrors"`
}

// AgentsSetup is the answer of GET /api/fleet/agents/setup.
type AgentsSetup struct {
	IsReady                 bool     `json:"isReady"`
	MissingRequirements     []string `json:"missing_requirements"`
	MissingOptionalFeatures []string `json:"missing_optional_features"`
	// Whether secrets have ids; Muster keeps them with their objects
	IsSecretsStorageEnabled bool `json:"is_secrets_storage_enabled"`
}

// FleetSettings are Kibana's settings of Fleet.
type FleetSettings struct {
	Id                                 string   `json:"id"`
	HasSeenAddDataNotice               bool     `json:"has_seen_add_data_notice"`
	PrereleaseIntegrationsEnabled      bool     `json:"prerelease_integrations_enabled"`
	PreconfiguredFields                []string `json:"preconfigured_fields"`
	SecretStorageRequirementsMet       bool     `json:"secret_storage_requirements_met"`
	OutputSecretStorageRequirementsMet bool     `json:"output_secret_storage_requirements_met"`
	DeleteUnenrolledAgents             struct {
		Enabled         bool `json:"enabled"`
		IsPreconfigured bool `json:"is_preconfigured"`
	} `json:"delete_unenrolled_agents"`
}

// FleetSettingsItem is the answer of GET /api/fleet/settings.
type FleetSettingsItem struct {
	Item FleetSettings `json:"item"`
}

// CheckPermissions is the answer of GET /api/fleet/check-permissions.
type CheckPermissions struct {
	Success bool `json:"success"`
}

// IntegrationList is the answer of GET /api/fleet/epm/packages.
type IntegrationList struct {
	Items []map[string]any `json:"items"`
}

// InstalledIntegrationList is the answer of GET /api/fleet/epm/packages/installed.
type InstalledIntegrationList struct {
	Items []map[string]any `json:"items"`
	Total int              `json:"total"`
}

// OutputHealth is the answer of GET /api/fleet/outputs/{outputId}/health.
type OutputHealth struct {
	State   string `json:"state" example:"UNKNOWN"`
	Message string `json:"message"`
	// Empty without a report
	Timestamp string `json:"timestamp"`
}

// PackagePolicyList is the answer of GET /api/fleet/package_policies.
type PackagePolicyList struct {
	Items   []map[string]any `json:"items"`
	Total   int              `json:"total"`
	Page    int              `json:"page"`
	PerPage int              `json:"perPage"`
}

// UninstallToken is a token with which an agent is uninstalled.
type UninstallToken struct {
	Id         string    `json:"id"`
	PolicyId   string    `json:"policy_id"`
	PolicyName string    `json:"policy_name"`
	Namespaces *[]string `json:"namespaces,omitempty"`
	Token      *string   `json:"token,omitempty"`
}

// UninstallTokenItem is the answer of GET /api/fleet/uninstall_tokens/{uninstallTokenId}.
type UninstallTokenItem struct {
	Item UninstallToken `json:"item"`
}

// UninstallTokenList is the answer of GET /api/fleet/uninstall_tokens.
type UninstallTokenList struct {
	Items   []UninstallToken `json:"items"`
	Total   int              `json:"total"`
	Page    int              `json:"page"`
	PerPage int              `json:"perPage"`
}
