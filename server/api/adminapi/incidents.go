package adminapi

import (
	"net/http"

	"github.com/muster-fleet/muster/server/fleet"
)

// The operations of the area incidents.
var (
	ListIncidents = op[None, IncidentList](Call{
		ID: "listIncidents", Method: http.MethodGet, Path: "/api/v1/incidents",
		Area: AreaIncidents, Permission: "incidents.read",
		Summary: "List incidents, newest first",
		Answer:  "The page",
		Params: []Param{
			{Name: "state", Is: IncidentState(""), Doc: "Default: all"},
			page,
			perPage,
		},
	})

	ResolveIncidents = op[ResolveIncidentsRequest, ResolvedIncidents](Call{
		ID: "resolveIncidents", Method: http.MethodPost, Path: "/api/v1/incidents/resolve",
		Area: AreaIncidents, Permission: "incidents.write",
		Summary:     "Resolve several incidents",
		Description: "Those of the ids, or those that are not resolved and match all other fields. The result says for each what was done.",
		Answer:      "What was done",
	})

	AckIncident = op[WhyRequest, IncidentItem](Call{
		ID: "ackIncident", Method: http.MethodPost, Path: "/api/v1/incidents/{incidentId}/ack",
		Area: AreaIncidents, Permission: "incidents.write",
		Summary:      "Acknowledge an incident",
		OptionalBody: true,
		Answer:       "The incident",
	})

	ResolveIncident = op[WhyRequest, IncidentItem](Call{
		ID: "resolveIncident", Method: http.MethodPost, Path: "/api/v1/incidents/{incidentId}/resolve",
		Area: AreaIncidents, Permission: "incidents.write",
		Summary:      "Resolve an incident",
		OptionalBody: true,
		Answer:       "The incident",
	})
)

// IncidentState is the state of an incident.
type IncidentState = fleet.IncidentState

// Incident is a problem that needs an operator.
type Incident struct {
	fleet.Incident
	Next *IncidentNext `json:"next,omitempty"`
	// What can be ordered now, the primary one first
	Commands []Command `json:"commands"`
}

// IncidentCategory is a value of category of Incident.
type IncidentCategory = fleet.IncidentKind

// ResolveIncidentsRequest is the body of POST /api/v1/incidents/resolve.
type ResolveIncidentsRequest struct {
	Ids       *[]string `json:"ids,omitempty" schema:"maxItems=1000"`
	Category  *string   `json:"category,omitempty"`
	RolloutId *string   `json:"rollout_id,omitempty"`
	AgentId   *string   `json:"agent_id,omitempty"`
	// Without a filter; all that are not resolved
	All *bool   `json:"all,omitempty"`
	Why *string `json:"why,omitempty"`
}

// ResolvedIncidents is the answer of POST /api/v1/incidents/resolve.
type ResolvedIncidents struct {
	Item struct {
		// How many this call has resolved
		Resolved  int `json:"resolved"`
		Incidents []struct {
			Id     string                               `json:"id"`
			Title  *string                              `json:"title,omitempty"`
			Result ResolvedIncidentsItemIncidentsResult `json:"result"`
			// Why it was not resolved
			Text *string `json:"text,omitempty"`
		} `json:"incidents"`
	} `json:"item"`
}

// ResolvedIncidentsItemIncidentsResult is a value of result of ResolvedIncidents.
type ResolvedIncidentsItemIncidentsResult string

// Values of ResolvedIncidentsItemIncidentsResult.
const (
	ResolveDone     ResolvedIncidentsItemIncidentsResult = "resolved"
	ResolveWasDone  ResolvedIncidentsItemIncidentsResult = "was_resolved"
	ResolveNotFound ResolvedIncidentsItemIncidentsResult = "not_found"
	ResolveFailed   ResolvedIncidentsItemIncidentsResult = "failed"
)

// IncidentNext is where to look next. Besides it there are the pages of the incident's rollout and
// agent.
type IncidentNext = fleet.IncidentNext

// IncidentItem is the answer of POST /api/v1/incidents/{incidentId}/ack.
type IncidentItem struct {
	Item Incident `json:"item"`
}

// IncidentList is the answer of GET /api/v1/incidents.
type IncidentList struct {
	Items   []Incident `json:"items"`
	Total   int        `json:"total"`
	Page    int        `json:"page"`
	PerPage int        `json:"perPage"`
}
