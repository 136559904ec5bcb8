// Package checkin is the long poll: it takes in what an agent says, delivers
// what it is to do, and parks the poll of an agent that has nothing to do until
// something turns up. The agents' handlers call it; it reads and writes the
// store, and is woken by the feed of new actions.
package checkin

import (
	"context"
	"net/http"
	"time"
)

// Answer is a complete HTTP answer with a JSON body.
type Answer struct {
	Status int
	Body   []byte
}

// Poll is a check-in that found nothing to deliver.
type Poll struct {
	AgentID string
	// Deadline is when the poll is answered at the latest.
	Deadline time.Time
	Writer   http.ResponseWriter
	Request  *http.Request
	// Look returns an answer when there is something to deliver now, else nil.
	// It is called once after the poll is known to the parker, so that what
	// was created in between is found, and again after each Wake; never twice
	// at the same time. An error keeps the poll parked: see RetryLook.
	Look func(ctx context.Context) (*Answer, error)
	// Empty is the answer without actions.
	Empty Answer
}

// RetryLook is how long a poll whose Look failed waits before it looks again
// without being woken. The store was away then, and every parked agent asks at
// once when it is back, so not sooner.
const RetryLook = 5 * time.Second

// Parker holds polls. One agent has one poll: a newer one of the same agent ends
// the older, which is answered Empty even if its Look has just found something;
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
