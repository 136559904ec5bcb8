package fleet

import (
	"fmt"
	"time"
)

const (
	// ServerBeat is how often a server writes that it runs.
	ServerBeat = 5 * time.Second
	// ServerAway is after how long without that a server counts as away: two of its writes
	// may be late.
	ServerAway = 3 * ServerBeat
)

// Server is one `muster server` of the installation, as it described itself last.
type Server struct {
	// ID is made at the first start, in the data folder.
	ID string `json:"id"`
	// Process is unique to the running process, so that two servers with the same id
	// notice each other.
	Process string `json:"process"`
	Host    string `json:"host"`
	Version string `json:"version"`
	// Schema is that of the store which this version writes.
	Schema    int       `json:"schema"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"seen_at"`
	AgentsURL string    `json:"agents_url"`
	AdminURL  string    `json:"admin_url"`
	Parked    int       `json:"parked"` // agents
	// SharedWith is the host of another running server with the same id; empty: there is
	// none.
	SharedWith string `json:"shared_with,omitempty"`
	// Closed are the connections that agents have closed here within ConnectedWithin, the latest
	// first, at most MaxClosedConnections.
	Closed   []ClosedConnection `json:"closed,omitempty"`
	Revision int64              `json:"-"`
}

// ClosedConnection is a connection whose agent has closed it, and has not come back to the same server.
type ClosedConnection struct {
	AgentID string    `json:"agent_id"`
	At      time.Time `json:"at"`
}

// MaxClosedConnections bounds what a server says of closed connections: 40 KB of its document, which
// it writes every ServerBeat. When more are closed at once, a network or a load balancer has failed.
const MaxClosedConnections = 500

// Away reports whether the server has stopped, or cannot reach the store. Clocks of servers
// must agree to some seconds, as elsewhere.
func (s *Server) Away(now time.Time) bool { return now.Sub(s.SeenAt) >= ServerAway }

// Problem says what is wrong with the server, and what to do; empty: nothing is.
func (s *Server) Problem() string {
	if s.SharedWith == "" {
		return ""
	}
	who := fmt.Sprintf("the servers on %s and %s have", s.Host, s.SharedWith)
	if s.Host == s.SharedWith {
		who = fmt.Sprintf("two servers on %s have", s.Host)
	}
	return who + " the same id, because the data folder of one was copied with its file server-id: stop one of them, remove that file from its data folder, and start it again"
}
