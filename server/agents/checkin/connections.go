package checkin

import (
	"maps"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// Connections is what this server knows of the connections of agents. All fields but Closed and Now
// are required.
type Connections struct {
	Parker Parker
	Health *storehealth.Monitor
	// Closed returns when the servers that share the store have last seen the connection of an agent
	// being closed; false if none has lately. Nil means that the store belongs to this server, which
	// all agents poll: otherwise one without a poll here may have one at another server.
	Closed func(agentID string) (at time.Time, ok bool)
	// Since is when this server began to accept connections.
	Since time.Time
	Now   clock.Clock
}

// Of returns what is known of the connection of an agent. Agents that the server has just refused,
// since it was not running or its store was away, may still be on their way back: none of them is
// known to be away.
func (c *Connections) Of(a *fleet.Agent) fleet.Connection {
	switch {
	case c.Parker.Connected(a.ID):
		return fleet.ConnectionOpen
	case c.Closed != nil:
		if at, ok := c.Closed(a.ID); ok && !a.LastActivity().After(at) { // otherwise it has come back, to another server
			return fleet.ConnectionClosed
		}
		return fleet.ConnectionUnknown
	case c.Now.UTC().Sub(c.Since) < fleet.ConnectedWithin, c.Health.Steady() != nil:
		return fleet.ConnectionUnknown
	}
	return fleet.ConnectionClosed
}

// ClosedHere returns the agents whose clients have closed the connection of a parked poll here and have
// not polled here since, for the other servers that share the store. An agent that has come back to
// another one was seen since, which is in the store by then.
func ClosedHere(p Parker, now time.Time) []fleet.ClosedConnection {
	var closed []fleet.ClosedConnection
	p.HungUp(func(agentID string, at time.Time) {
		if ago := now.Sub(at); ago >= fleet.ReconnectWithin+2*FlushInterval && ago <= fleet.ConnectedWithin {
			closed = append(closed, fleet.ClosedConnection{AgentID: agentID, At: at.UTC()})
		}
	})
	slices.SortFunc(closed, func(a, b fleet.ClosedConnection) int { return b.At.Compare(a.At) })
	return closed[:min(len(closed), fleet.MaxClosedConnections)]
}

// hungUp has the agents whose clients have closed the connection of a parked poll within
// fleet.ConnectedWithin. The lock of its owner guards it.
type hungUp map[string]time.Time

// add records a closed connection. Of a storm, as when a network fails, it leaves out what is too much:
// such agents count as away when they were not seen for long enough.
func (h *hungUp) add(agentID string, now time.Time) {
	if *h == nil {
		*h = hungUp{}
	}
	if len(*h) >= fleet.MaxClosedConnections {
		maps.DeleteFunc(*h, func(_ string, at time.Time) bool { return now.Sub(at) > fleet.ConnectedWithin })
	}
	if len(*h) < fleet.MaxClosedConnections {
		(*h)[agentID] = now
	}
}

// each calls f for the agents that have not come back, of which parked reports whether they have.
func (h hungUp) each(parked func(agentID string) bool, f func(agentID string, at time.Time)) {
	for id, at := range h {
		if !parked(id) {
			f(id, at)
		}
	}
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
