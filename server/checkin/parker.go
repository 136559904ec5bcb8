// Package checkin is the long poll: it takes in what an agent says, delivers
// what it is to do, and parks the poll of an agent that has nothing to do until
// something turns up. The agents' handlers call it; it reads and writes the
// store, and is woken by the feed of new actions.
package checkin

import (
	"context"
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
)

// Answer is a complete HTTP answer with a JSON body.
type Answer struct {
	Status int
	Body   []byte
}

// Wait is whose a poll is, and what is needed to look for it: all that a parker
// keeps of the request. Only a Looker touches the rest, one at a time.
type Wait struct {
	AgentID string
	// After is the sequence number behind which the agent's next actions are.
	After int64
	// Clear is up to which number a look has found nothing; 0: there was none.
	Clear int64
	// Late takes the check-in in, where the store was away when it came. gone says
	// that there is nothing to look for. nil: it has been taken in.
	Late func(ctx context.Context) (after int64, gone bool, err error)
}

// Found is what a look found: an answer to give now, or an error, or neither.
type Found struct {
	Answer *Answer
	Err    error
}

// Looker finds what agents are to be given.
type Looker interface {
	// Look looks for all of the waits together, and returns what it found for each
	// at its index. It is cheaper for some hundred than for one after the other.
	Look(ctx context.Context, waits []*Wait) []Found
}

// Poll is a check-in that is to be parked.
type Poll struct {
	Wait
	// Deadline is when the poll is answered at the latest.
	Deadline time.Time
	Writer   http.ResponseWriter
	Request  *http.Request
	// Looker is asked once after the poll is known to the parker, so that what
	// was created in between is found, and again after each Wake; never twice
	// at the same time. An error keeps the poll parked: see RetryLook. Polls whose
	// Lookers are equal (==) may be looked for together.
	Looker Looker
}

// Empty is the answer without actions.
func Empty() Answer { return empty }

var empty = Answer{Status: http.StatusOK, Body: marshal(agentapi.CheckinResponse{Action: "checkin", Actions: []agentapi.Action{}})}

// RetryLook is how long a poll whose look failed waits before it looks again
// without being woken. The store was away then, and every parked agent asks at
// once when it is back, so not sooner.
const RetryLook = 5 * time.Second

// Parker holds polls. One agent has one poll: a newer one of the same agent ends
// the older, which is answered Empty even if its look has just found something;
// the newer looks for itself.
type Parker interface {
	// Park takes over the answering of p. It may return before p is answered
	// (a parker that keeps connections aside does) or only after; the caller
	// must not touch p.Writer afterwards. A poll whose client has hung up is
	// forgotten.
	Park(p Poll)
	// Wake makes the polls of these agents look again. It does not wait for
	// them. Agents that are not parked are passed over.
	Wake(agentIDs ...string)
	// Parked calls f for each agent with a poll here, in no order. f must not
	// call the parker.
	Parked(f func(agentID string))
	// Count is the number of polls here.
	Count() int
	// Close answers every poll Empty, and every later one at once. It returns
	// when all are answered or ctx ends.
	Close(ctx context.Context) error
}
