package fleet

import "encoding/json"

// AcceptedOrder is an order for many agents that the server has accepted and not yet carried
// out. It has all that a server needs to continue the order after another one has died.
type AcceptedOrder struct {
	// ID is a digest of the order, so that the same order is not accepted a second time while it
	// is being carried out.
	ID string `json:"id"`
	// Kind says what Terms are; see package action.
	Kind  string          `json:"kind"`
	Terms json.RawMessage `json:"terms,omitempty"`
	// Action is the action that is created in the end, without its Agents.
	Action   Action   `json:"action"`
	AgentIDs []string `json:"agent_ids"`
	// Handled is how many of the agents were handled at least. An order is continued from its
	// first agent, so nothing depends on it.
	Handled int `json:"handled,omitempty"`
	// Entry is the audit entry about the order. It is written after the order is stored.
	Entry AuditEntry `json:"entry"`

	Revision int64 `json:"-"`
}

// MaxAcceptedOrders bounds the orders that are being carried out at one time. Each holds two
// pages of agents in memory, some 10 MB.
const MaxAcceptedOrders = 32
