// Package checkin is the long poll: it handles what an agent reports, delivers
// its pending actions, and parks the poll of an agent that has none until an
// action is created. The agents' handlers call it; it reads and writes the
// store, and the feed of new actions wakes it.
package checkin

import (
	"context"
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Answer is a complete HTTP answer with a JSON body.
type Answer struct {
	Status int
	Body   []byte
}

// Wait has the agent of a poll and where its pending actions begin. A parker keeps
// nothing else of the request. Only a Checker uses After and EmptyUpTo, one call at a
// time.
type Wait struct {
	AgentID string
	// Policy is the revision of its policy that the agent has. It never changes.
	Policy fleet.PolicyAt
	// After is the sequence number after which the agent's next actions come.
	After int64
	// EmptyUpTo is the number up to which a check has found nothing; 0 before the first such
	// check.
	EmptyUpTo int64
}

// Pending is what a check found for one agent: an answer to send now, or an
// error, or neither.
type Pending struct {
	Answer *Answer
	Err    error
}

// Checker checks agents for pending actions.
type Checker interface {
	// PendingActions checks all waits together and returns the result of each at its
	// index. One call for hundreds of waits costs less than a call for each.
	PendingActions(ctx context.Context, waits []*Wait) []Pending
}

// Poll is a check-in to park.
type Poll struct {
	Wait
	// Deadline is when the poll is answered at the latest.
	Deadline time.Time
	Writer   http.ResponseWriter
	Request  *http.Request
	// Checker is called once after the parker has registered the poll, so that an action
	// created in between is found, and again after each Wake, never concurrently for one
	// poll. After an error the poll stays parked; see CheckRetry. Its type must be
	// comparable: polls with equal Checkers may be checked in one call.
	Checker Checker
}

// Empty is the answer without actions.
func Empty() Answer { return empty }

var empty = Answer{Status: http.StatusOK, Body: marshal(agentapi.CheckinResponse{Action: "checkin", Actions: []agentapi.Action{}})}

// CheckRetry is how long a poll waits after a failed check before it is checked
// again without a Wake. All parked agents are checked when the store is back, so the
// interval is no shorter.
const CheckRetry = 5 * time.Second

// Parker keeps polls until an answer is due. All of its methods may be called
// at any time from any goroutine.
//
// An agent has one poll. A newer one ends the older, which is answered Empty even if
// its check has just found something; the newer poll is checked for itself.
type Parker interface {
	// Park takes over the poll and answers it. It returns before the answer (a parker
	// that keeps only the connection) or after it, and the handler must not use
	// p.Writer afterwards. A poll whose client disconnects is removed.
	Park(p Poll)
	// Wake checks the polls of these agents again. It does not wait for the checks,
	// and ignores agents without a poll here.
	Wake(agentIDs ...string)
	// Release answers the agent's poll Empty, if it has one here.
	Release(agentID string)
	// Parked calls f for each agent with a poll here and the revision of its policy that it
	// has, in no order. f must not call the parker.
	Parked(f func(agentID string, has fleet.PolicyAt))
	// Connected reports whether the agent has a poll here, or had one that has ended within
	// fleet.ReconnectWithin, however it ended.
	Connected(agentID string) bool
	// HungUp calls f for agents without a poll here whose client has closed the connection of one
	// while it was parked, with the time of that, in no order. It covers fleet.ConnectedWithin, and at
	// least fleet.MaxClosedConnections of such agents. f must not call the parker.
	HungUp(f func(agentID string, at time.Time))
	// Count is the number of polls here.
	Count() int
	// Close answers every poll Empty, and every later one at once. It returns
	// when all are answered or ctx ends.
	Close(ctx context.Context) error
}
