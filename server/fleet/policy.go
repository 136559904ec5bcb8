package fleet

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Policy groups agents. Its fields have the names of Kibana's agent policies. A field
// whose value Kibana allows to be null is nil or empty for null.
type Policy struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Namespace   string   `json:"namespace"`
	Description string   `json:"description,omitempty"`
	SpaceIDs    []string `json:"space_ids,omitempty"`
	// PolicyRev counts the changes that the policy's agents have to learn about.
	PolicyRev int64 `json:"revision"`
	// Revisions are the latest revisions, the newest last.
	Revisions         []PolicyRevision `json:"revisions,omitempty"`
	InactivityTimeout time.Duration    `json:"inactivity_timeout"` // stored in nanoseconds; 0: never inactive
	// UnenrollTimeout is in seconds; nil: none.
	UnenrollTimeout *int64 `json:"unenroll_timeout,omitempty"`

	MonitoringEnabled     []string        `json:"monitoring_enabled,omitempty"` // logs, metrics, traces
	KeepMonitoringAlive   *bool           `json:"keep_monitoring_alive,omitempty"`
	MonitoringPprof       *bool           `json:"monitoring_pprof_enabled,omitempty"`
	MonitoringHTTP        json.RawMessage `json:"monitoring_http,omitempty"`
	MonitoringDiagnostics json.RawMessage `json:"monitoring_diagnostics,omitempty"`

	// The stored objects that the policy uses; empty: the default one.
	DataOutputID       string `json:"data_output_id,omitempty"`
	MonitoringOutputID string `json:"monitoring_output_id,omitempty"`
	DownloadSourceID   string `json:"download_source_id,omitempty"`
	FleetServerHostID  string `json:"fleet_server_host_id,omitempty"`

	AgentFeatures    []AgentFeature    `json:"agent_features,omitempty"`
	GlobalDataTags   []GlobalDataTag   `json:"global_data_tags,omitempty"`
	RequiredVersions []RequiredVersion `json:"required_versions,omitempty"`
	// UpgradeWindows are when agents are upgraded to RequiredVersions; none: always.
	UpgradeWindows []Window `json:"upgrade_windows,omitempty"`
	// AdvancedSettings and Overrides are JSON objects, which agents get in their policy.
	AdvancedSettings json.RawMessage `json:"advanced_settings,omitempty"`
	Overrides        json.RawMessage `json:"overrides,omitempty"`

	// Components are the workloads that the policy's agents run. Elastic's agents ignore
	// them.
	Components []agentapi.PolicyComponent `json:"components,omitempty"`
	// ComponentVariables are the variables of components, by name, for the templates of their
	// configuration. Only the server reads them.
	ComponentVariables map[string]map[string]string `json:"component_variables,omitempty"`

	Protected bool `json:"is_protected,omitempty"`
	// Managed policies are changed only by a request with force. Their agents are not
	// upgraded, rolled back, reassigned or unenrolled by orders without it.
	Managed bool `json:"is_managed,omitempty"`
	// Default is set for one policy; package policy makes sure of it.
	Default            bool            `json:"is_default,omitempty"`
	DefaultFleetServer bool            `json:"is_default_fleet_server,omitempty"`
	HasFleetServer     *bool           `json:"has_fleet_server,omitempty"`
	SupportsAgentless  *bool           `json:"supports_agentless,omitempty"`
	Agentless          json.RawMessage `json:"agentless,omitempty"`

	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`
	// Revision is set by the store, for optimistic concurrency.
	Revision int64 `json:"-"`
}

// PolicyRevision is when a policy got a revision, and from whom.
type PolicyRevision struct {
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
}

// maxPolicyRevisions bounds the history of a policy: as many revisions as Kibana keeps. The
// policy's document, which is read often, has them all.
const maxPolicyRevisions = 10

// NextRevision gives the policy a new revision.
func (p *Policy) NextRevision(actor string, now time.Time) {
	p.PolicyRev++
	p.UpdatedAt, p.UpdatedBy = now, actor
	kept := p.Revisions[max(0, len(p.Revisions)-maxPolicyRevisions+1):]
	p.Revisions = slices.Concat(kept, []PolicyRevision{{p.PolicyRev, now, actor}}) // copies of the policy share the old list
}

// AgentFeature switches a feature of the policy's agents.
type AgentFeature struct {
	Name    string `json:"name"`
	Enabled bool   `json:"enabled"`
}

// GlobalDataTag is added to the data of all inputs of a policy.
type GlobalDataTag struct {
	Name string `json:"name"`
	// A string or a number
	Value json.RawMessage `json:"value"`
}

// RequiredVersion is the share of a policy's agents that the server upgrades to a version.
type RequiredVersion struct {
	Version    string  `json:"version"`
	Percentage float64 `json:"percentage" schema:"minimum=0,maximum=100"`
}

// DefaultInactivityTimeout is Fleet's two weeks, longer than any holiday shutdown.
const DefaultInactivityTimeout = 14 * 24 * time.Hour

// DefaultPolicyID is the policy that exists from the first start.
const DefaultPolicyID = "default"
