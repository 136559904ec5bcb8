package adminapi

import (
	"encoding/json"
	"net/http"
	"time"
)

// The operations of the area actions.
var (
	GetAgentsByActions = op[AgentsOfActionsRequest, AgentsOfActions](Call{
		ID: "getAgentsByActions", Method: http.MethodPost, Path: "/api/fleet/agents",
		Area: AreaActions, Permission: "agents.read",
		Summary:   "List the agents of actions, as /api/fleet/agents/actions does",
		Unaudited: true,
	})

	CreateAction = op[CreateActionRequest, CreatedActionItem](Call{
		ID: "createAction", Method: http.MethodPost, Path: "/api/fleet/agents/{agentId}/actions",
		Area: AreaActions, Permission: "agents.act",
		Summary: "Create an action for an agent",
	})

	ListAgentsOfActions = op[AgentsOfActionsRequest, AgentsOfActions](Call{
		ID: "listAgentsOfActions", Method: http.MethodPost, Path: "/api/fleet/agents/actions",
		Area: AreaActions, Permission: "agents.read",
		Summary:     "List the agents of actions",
		Description: "Unknown actions have none.",
		Unaudited:   true,
	})

	ListActionStatus = op[None, ActionStatusList](Call{
		ID: "listActionStatus", Method: http.MethodGet, Path: "/api/fleet/agents/action_status",
		Area: AreaActions, Permission: "agents.read",
		Summary: "List actions with their results, and new revisions of policies (POLICY_CHANGE), newest first",
		Answer:  "The actions",
		Params: []Param{
			{Name: "page", Is: 0, Schema: "minimum=0,default=0", Doc: "Zero-based, as in Kibana"},
			perPage,
			{Name: "date", Doc: "Only actions created in the day that begins at this time; takes precedence over latest"},
			{Name: "latest", Is: int64(0), Schema: "minimum=0", Doc: "Only actions created in the last so many milliseconds, without revisions of policies"},
			{Name: "errorSize", Is: 0, Schema: "minimum=0,maximum=100,default=5", Doc: "Number of latest errors to show of each action"},
			{Name: "type", Is: []string(nil), Doc: "Only actions of one of these types; ROLLBACK selects upgrades to a previous version"},
			{Name: "createdBy", Doc: "Only actions that this admin key created"},
			{Name: "outcome", Is: []ActionState(nil), Doc: "Only actions with one of these outcomes"},
		},
	})

	CancelAction = op[None, CancelResponse](Call{
		ID: "cancelAction", Method: http.MethodPost, Path: "/api/fleet/agents/actions/{actionId}/cancel",
		Area: AreaActions, Permission: "actions.cancel",
		Summary:     "Cancel an upgrade",
		Description: "Agents that have not started end at once. An agent that has started stops if it has not installed the new version yet, and reports that.",
		Answer:      "The CANCEL action",
	})

	GetAction = op[None, ActionStatusItem](Call{
		ID: "getAction", Method: http.MethodGet, Path: "/api/v1/actions/{actionId}",
		Area: AreaActions, Permission: "actions.read",
		Summary: "Get an action with its results",
		Answer:  "The action",
		Params: []Param{
			{Name: "errorSize", Is: 0, Schema: "minimum=0,maximum=100,default=5", Doc: "Number of latest errors to show"},
		},
	})

	ListActionAgents = op[None, ActionHostList](Call{
		ID: "listActionAgents", Method: http.MethodGet, Path: "/api/v1/actions/{actionId}/agents",
		Area: AreaActions, Permission: "actions.read",
		Summary:     "List the agents that an action was ordered for and how it stands on each",
		Description: "The agents stay in the list when they get a newer order, are unenrolled or are removed, as long as the server keeps the action. A new revision of a policy (POLICY_CHANGE) has no such list.",
		Answer:      "The page",
		Params: []Param{
			{Name: "state", Is: []ActionHostState(nil), Doc: "One or more states; default: all"},
			page,
			perPage,
		},
	})
)

// ProgressCounts are agents by the state of their upgrade; a state without agents is absent.
type ProgressCounts map[string]int

// ActionStatusList is the answer of GET /api/fleet/agents/action_status.
type ActionStatusList struct {
	Items []ActionStatus `json:"items"`
}

// ActionState is the outcome of an action.
type ActionState string

// Values of ActionState.
const (
	COMPLETE      ActionState = "COMPLETE"
	EXPIRED       ActionState = "EXPIRED"
	CANCELLED     ActionState = "CANCELLED"
	FAILED        ActionState = "FAILED"
	INPROGRESS    ActionState = "IN_PROGRESS"
	ROLLOUTPASSED ActionState = "ROLLOUT_PASSED"
)

// ActionStatus is how an action stands.
type ActionStatus struct {
	ActionId string      `json:"actionId"`
	Type     string      `json:"type" example:"UPGRADE"`
	Status   ActionState `json:"status"`
	Version  *string     `json:"version,omitempty"`
	// The action is a rollback to a previous version
	Rollback *bool `json:"rollback,omitempty"`
	// Of an upgrade of a component: its name
	Component        *string    `json:"component,omitempty"`
	StartTime        *time.Time `json:"startTime,omitempty"`
	Expiration       *time.Time `json:"expiration,omitempty"`
	CreationTime     time.Time  `json:"creationTime"`
	CompletionTime   *time.Time `json:"completionTime,omitempty"`
	CancellationTime *time.Time `json:"cancellationTime,omitempty"`
	// Agents the operator selected
	NbAgentsActioned int `json:"nbAgentsActioned"`
	// Agents that the action was created for
	NbAgentsActionCreated int `json:"nbAgentsActionCreated"`
	// Agents that acknowledged without an error
	NbAgentsAck    int `json:"nbAgentsAck"`
	NbAgentsFailed int `json:"nbAgentsFailed"`
	// Agents that are done; of an upgrade those whose watchers have committed
	NbAgentsDone     int         `json:"nbAgentsDone"`
	Outcome          ActionState `json:"outcome"`
	HasRolloutPeriod bool        `json:"hasRolloutPeriod"`
	IsAutomatic      *bool       `json:"is_automatic,omitempty"`
	// The policy of a POLICY_REASSIGN
	NewPolicyId *string `json:"newPolicyId,omitempty"`
	// The policy of a POLICY_CHANGE
	PolicyId *string `json:"policyId,omitempty"`
	// The revision of a POLICY_CHANGE
	Revision *int64 `json:"revision,omitempty"`
	// The admin key that created it
	CreatedBy    *string         `json:"created_by,omitempty"`
	LatestErrors []ActionError   `json:"latestErrors"`
	Progress     *ProgressCounts `json:"progress,omitempty"`
	Rollout      *RolloutRef     `json:"rollout,omitempty"`
	// Its failures by cause, the most frequent first
	Causes    *[]RolloutCause  `json:"causes,omitempty"`
	Commands  *[]Command       `json:"commands,omitempty"`
	Preparing *ActionPreparing `json:"preparing,omitempty"`
}

// ActionPreparing is present while the server carries the order out, also after the caller has gone
// away or the server was restarted. The agents get the action afterwards.
type ActionPreparing struct {
	// Agents that the server has handled so far
	Handled int `json:"handled"`
	// Agents that the operator selected
	Agents int `json:"agents"`
}

// ActionStatusItem is the answer of GET /api/v1/actions/{actionId}.
type ActionStatusItem struct {
	Item ActionStatus `json:"item"`
}

// ActionHost is how an action stands on one agent.
type ActionHost struct {
	AgentId  string          `json:"agentId"`
	Hostname *string         `json:"hostname,omitempty"`
	State    ActionHostState `json:"state"`
	// When the state began
	Since  *time.Time   `json:"since,omitempty"`
	Reason *WatchReason `json:"reason,omitempty"`
	// Why it stopped
	Text *string `json:"text,omitempty"`
}

// ActionHostState is how an action stands on an agent: of an upgrade its ProgressState. done: the
// agent followed an order that is no upgrade. stopped: the action has no outcome on the agent, since
// it was cancelled or expired, another order replaced it, or the agent was unenrolled.
type ActionHostState string

// Values of ActionHostState.
const (
	HostScheduled      ActionHostState = "scheduled"
	HostSent           ActionHostState = "sent"
	HostAccepted       ActionHostState = "accepted"
	HostDownloading    ActionHostState = "downloading"
	HostInstalling     ActionHostState = "installing"
	HostRestarting     ActionHostState = "restarting"
	HostWatching       ActionHostState = "watching"
	HostCommitted      ActionHostState = "committed"
	HostRolledBack     ActionHostState = "rolled_back"
	HostFailed         ActionHostState = "failed"
	HostWaitingForHost ActionHostState = "waiting_for_host"
	HostDone           ActionHostState = "done"
	HostStopped        ActionHostState = "stopped"
)

// ActionHostList is the answer of GET /api/v1/actions/{actionId}/agents.
type ActionHostList struct {
	Items   []ActionHost `json:"items"`
	Total   int          `json:"total"`
	Page    int          `json:"page"`
	PerPage int          `json:"perPage"`
}

// ActionError is why an action failed on one agent.
type ActionError struct {
	AgentId   string    `json:"agentId"`
	Hostname  *string   `json:"hostname,omitempty"`
	Error     string    `json:"error"`
	Timestamp time.Time `json:"timestamp"`
}

// CancelResponse is the answer of POST /api/fleet/agents/actions/{actionId}/cancel.
type CancelResponse struct {
	Item struct {
		Id        string    `json:"id"`
		Type      string    `json:"type"`
		CreatedAt time.Time `json:"created_at"`
	} `json:"item"`
}

// CreateActionRequest is the body of POST /api/fleet/agents/{agentId}/actions.
type CreateActionRequest struct {
	Action struct {
		// UNENROLL, UPGRADE, POLICY_REASSIGN or SETTINGS
		Type    string           `json:"type"`
		Data    *json.RawMessage `json:"data,omitempty" schema:"object"`
		AckData *json.RawMessage `json:"ack_data,omitempty" schema:"object"`
	} `json:"action"`
}

// CreatedActionItem is the answer of POST /api/fleet/agents/{agentId}/actions.
type CreatedActionItem struct {
	Item CreatedAction `json:"item"`
}

// CreatedAction is the action that was created.
type CreatedAction struct {
	Id         string           `json:"id"`
	Type       string           `json:"type"`
	Data       *json.RawMessage `json:"data,omitempty" schema:"object"`
	AckData    *json.RawMessage `json:"ack_data,omitempty" schema:"object"`
	CreatedAt  time.Time        `json:"created_at"`
	Expiration *time.Time       `json:"expiration,omitempty"`
	Agents     []string         `json:"agents"`
}

// AgentsOfActionsRequest is the body of POST /api/fleet/agents.
type AgentsOfActionsRequest struct {
	ActionIds []string `json:"actionIds" schema:"maxItems=1000"`
}

// AgentsOfActions is the answer of POST /api/fleet/agents.
type AgentsOfActions struct {
	Items []string `json:"items"`
}
