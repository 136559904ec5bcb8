package adminapi

import (
	"encoding/json"

	"github.com/muster-fleet/muster/server/fleet"
)

// Empty is the answer of POST /api/fleet/agents/{agentId}/unenroll.
type Empty = map[string]any

// Error is a refusal.
type Error struct {
	StatusCode int    `json:"statusCode"`
	Error      string `json:"error"`
	Message    string `json:"message"`
	// Name of the violated rule, if it has one
	Code *string `json:"code,omitempty" example:"rollout_checksum_missing"`
}

// ActionWord is the answer of DELETE /api/fleet/agents/{agentId}.
type ActionWord struct {
	// deleted, created, revoked
	Action string `json:"action"`
}

// Command is a command that exists for an object, and whether it is possible now.
type Command = fleet.Command

// AgentSelection is at most 10000 ids, or a query in KQL. A query selects exactly the agents that the
// list shows for it (includeInactive is showInactive of the list), at most 100000. "*" selects all. An
// empty query is refused.
type AgentSelection = json.RawMessage

// Duration is go duration.
type Duration = string

// Decision is who did something, when and why.
type Decision = fleet.Decision

// WhyRequest is the body of POST /api/v1/rollouts/{rolloutId}/resume.
type WhyRequest struct {
	// For the audit trail
	Why *string `json:"why,omitempty"`
}

// Window is a period of local time on some weekdays. If to is not after from, it ends on the next day.
type Window = fleet.Window

// ObjectFields are fields of the object. An absent one keeps its value, null removes it.
type ObjectFields map[string]any
