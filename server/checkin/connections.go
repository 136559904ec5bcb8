package checkin

import (
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/storehealth"
)

// Connections is what this server knows of the connections of agents. It is only for a server whose
// store belongs to it: otherwise an agent without a poll here may have one at another server. All
// fields but Now are required.
type Connections struct {
	Parker Parker
	Health *storehealth.Monitor
	// Since is when this server began to accept connections.
	Since time.Time
	Now   clock.Clock
}

// Of returns what is known of the connection of an agent. Agents that the server has just refused,
// since it was not running or its store was away, may still be on their way back: none of them is
// known to be away.
func (c *Connections) Of(agentID string) fleet.Connection {
	switch {
	case c.Parker.Connected(agentID):
		return fleet.ConnectionOpen
	case c.Now.UTC().Sub(c.Since) < fleet.ConnectedWithin, c.Health.Steady() != nil:
		return fleet.ConnectionUnknown
	}
	return fleet.ConnectionClosed
}

// ended has the agents whose polls have ended within fleet.ReconnectWithin, and some that have before.
// The lock of its owner guards it. It forgets by halves, so an end costs no search, and what it keeps
// is bounded by the polls that end within twice that time.
type ended struct {
	recent, older map[string]time.Time
	begun         time.Time // of recent
}

func (e *ended) add(agentID string, now time.Time) {
	if now.Sub(e.begun) > fleet.ReconnectWithin {
		e.recent, e.older, e.begun = map[string]time.Time{}, e.recent, now
	}
	e.recent[agentID] = now
}

func (e *ended) has(agentID string, now time.Time) bool {
	at, ok := e.recent[agentID]
	if !ok {
		at, ok = e.older[agentID]
	}
	return ok && now.Sub(at) <= fleet.ReconnectWithin
}
