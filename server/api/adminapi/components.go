package adminapi

import (
	"net/http"
	"time"
)

// The operations of the area components.
var (
	ListComponents = op[None, ComponentList](Call{
		ID: "listComponents", Method: http.MethodGet, Path: "/api/v1/components",
		Area: AreaComponents, Permission: "components.read",
		Summary: "List the components that agents run, with counts by version",
		Answer:  "The components",
		Params: []Param{
			kuery,
		},
	})

	UpgradeComponent = op[ComponentUpgradeRequest, BulkActionResponse](Call{
		ID: "upgradeComponent", Method: http.MethodPost, Path: "/api/v1/components/{name}/upgrade",
		Area: AreaComponents, Permission: "components.upgrade",
		Summary:     "Upgrade a component, or install it for the first time, on one or more agents",
		Description: "Only agents of Muster that report the component get the action. Two components of an agent may be upgraded at the same time, one component only once. Freezes and the exposure budget hold as for bulkUpgradeAgents; the budget counts the agents that report the component.",
		Answer:      "The action was created; agents that cannot follow it are among its results",
		Params: []Param{
			{Name: "name", In: "path", Doc: "The name of the component"},
		},
	})

	PreviewComponentUpgrade = op[ComponentUpgradeRequest, UpgradePreview](Call{
		ID: "previewComponentUpgrade", Method: http.MethodPost, Path: "/api/v1/components/{name}/upgrade_preview",
		Area: AreaComponents, Permission: "components.read",
		Summary:   "Preview an upgrade of a component; changes nothing",
		Answer:    "The preview; versions are those of the component",
		Unaudited: true,
		Params: []Param{
			{Name: "name", In: "path", Doc: "The name of the component"},
		},
	})
)

// ComponentList is the answer of GET /api/v1/components.
type ComponentList struct {
	Items []ComponentSummary `json:"items"`
}

// ComponentSummary is a component, on all agents that report it.
type ComponentSummary struct {
	Name string `json:"name" example:"web-server"`
	// How it is run
	Runtimes []string `json:"runtimes"`
	// How many agents have reported it last
	Agents int `json:"agents"`
	// On how many of them it is HEALTHY; agents that are offline or uninstalled do not count
	Healthy   int `json:"healthy"`
	Upgrading int `json:"upgrading"`
	// On how many of them its last upgrade failed or was rolled back
	Failed int `json:"failed"`
	// The newest first
	Versions []ComponentVersion `json:"versions"`
}

// ComponentVersion is a version of a component, and how many agents run it.
type ComponentVersion struct {
	// Empty: it is not installed yet
	Version string `json:"version"`
	Agents  int    `json:"agents"`
}

// ComponentUpgradeRequest is the body of POST /api/v1/components/{name}/upgrade.
type ComponentUpgradeRequest struct {
	Agents          AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	IncludeInactive *bool          `json:"includeInactive,omitempty"`
	Version         string         `json:"version" example:"2.5.0"`
	// Where hosts get the package instead of from the server
	SourceUri *string `json:"source_uri,omitempty"`
	// Also a version that is installed, older, or failed on the host before
	Force *bool `json:"force,omitempty"`
	// Go back to this version with its configuration, which the hosts have kept (rollbacks of the
	// component), without a package; neither freezes nor the exposure budget hold
	Rollback *bool `json:"rollback,omitempty"`
	// Name of the Fleet object that the agents belong to: the order suspends the object, and is
	// carried out. Without it such an order is refused with 409 and the code fleet_owned
	TakeOver *string `json:"take_over,omitempty"`
	// Spread the starts over this time
	RolloutDurationSeconds *int `json:"rollout_duration_seconds,omitempty" schema:"minimum=600"`
	// Not before
	StartTime *time.Time `json:"start_time,omitempty"`
	// Also during a freeze; needs why
	OverrideFreeze *bool `json:"override_freeze,omitempty"`
	// Also if more agents would have the version than the exposure budget allows; needs why
	OverrideExposure *bool `json:"override_exposure,omitempty"`
	// For the audit trail
	Why *string `json:"why,omitempty"`
	// Of a preview: the most elements of items; counts and causes are of all agents. Default: all
	MaxItems *int `json:"max_items,omitempty" schema:"minimum=0"`
}
