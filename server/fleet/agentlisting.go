package fleet

import "time"

// AgentListing is a list of agents as it was at one time: those that it selected, in its order.
// Readers of its pages have each agent once, although the field that it is sorted by changes.
type AgentListing struct {
	// ID identifies the point in time and the list.
	ID       string    `json:"id"`
	AgentIDs []string  `json:"agent_ids"`
	Until    time.Time `json:"until"`
	Revision int64     `json:"-"`
}
