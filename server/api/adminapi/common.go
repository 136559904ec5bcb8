package adminapi

import (
	"encoding/json"
	"time"
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
type Command struct {
	Name    string `json:"name" example:"pause"`
	Allowed bool   `json:"allowed"`
	// Why it is not possible now
	Reason *string `json:"reason,omitempty"`
	// The one that the state of the object asks for
	Primary *bool `json:"primary,omitempty"`
	// It stops or changes what runs on hosts beyond the plan
	Danger *bool `json:"danger,omitempty"`
	// The call is refused without why
	NeedsReason *bool `json:"needs_reason,omitempty"`
	// What to know before it is given, such as canaries that failed
	Warning *string `json:"warning,omitempty"`
}

// AgentSelection is at most 10000 ids, or a query in KQL. A query selects exactly the agents that the
// list shows for it (includeInactive is showInactive of the list), at most 100000. "*" selects all. An
// empty query is refused.
type AgentSelection = json.RawMessage

// Duration is go duration.
type Duration = string

// Decision is who did something, when and why.
type Decision struct {
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	Why *string   `json:"why,omitempty"`
}

// WhyRequest is the body of POST /api/v1/rollouts/{rolloutId}/resume.
type WhyRequest struct {
	// For the audit trail
	Why *string `json:"why,omitempty"`
}

// Window is a period of local time on some weekdays. If to is not after from, it ends on the next day.
type Window struct {
	// mon … sun; default: every day
	Days *[]string `json:"days,omitempty"`
	From string    `json:"from" example:"\"22:00\""`
	To   string    `json:"to" example:"04:00"`
	Zone *string   `json:"zone,omitempty" example:"Europe/Berlin"`
}

// ObjectFields are fields of the object. An absent one keeps its value, null removes it.
type ObjectFields map[string]any
