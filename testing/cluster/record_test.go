package cluster

import (
	"sync"
	"time"

	"github.com/muster-fleet/muster/testing/simagent"
)

// Outcome is what an operator knows of what became of a call.
type Outcome int

// The outcomes. Unknown is the zero value: the connection died, or the server
// said that it could not do it now. Such a call may have done all or nothing.
const (
	Unknown Outcome = iota
	Done
	Refused // with a reason: nothing was done
)

func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Refused:
		return "refused"
	}
	return "unknown"
}

// Kind is what a call is to do.
type Kind string

// The kinds of calls.
const (
	Upgrade Kind = "upgrade" // of agents that are named
	Cancel  Kind = "cancel"  // of what an upgrade made
)

// Op is one call of an operator.
type Op struct {
	// Name is the operator's own. The action of an upgrade carries it to the
	// agents, so that one whose answer was lost is known again.
	Name string
	Kind Kind
	// Agents are whom an upgrade is for.
	Agents []string
	// Cancels is the action that a cancel is for.
	Cancels string
	Server  string

	Invoked  time.Time
	Returned time.Time // zero while the outcome is unknown
	Outcome  Outcome
	ActionID string // as answered; empty unless it is done
}

// Action is one as it stands in the store at the end.
type Action struct {
	ID string
	// Op is the name of the upgrade that made it, Cancels the action that a CANCEL
	// is for. One of them is empty.
	Op, Cancels string
	Seq         int64
	Agents      []string
	// Refused are the agents that were asked for and could not follow.
	Refused []string
	// Cancelled says that it is no longer given to those who have not had it.
	Cancelled bool
	// Acked and Failed are how many results it has, without and with an error.
	Acked, Failed int
}

// Answer is a complete answer to a check-in.
type Answer struct {
	Agent  string
	Server string
	At     time.Time
	// Shown is the ack token that the agent showed, Token the one it was given; 0
	// is none.
	Shown, Token int64
	Actions      []string // ids, in order
}

// Ack is an acknowledgement that was answered with 200.
type Ack struct {
	Agent, Action string
	Failed        bool
}

// History is everything that operators and agents saw, and what is left in the
// store.
type History struct {
	Ops     []Op
	Answers []Answer // of each agent in order; agents among each other in any
	Acks    []Ack
	// Refusals are answers to agents other than 200.
	Refusals []simagent.Refusal
	Actions  []Action
}

// Recorder writes down what happens. It is safe for concurrent use.
type Recorder struct {
	mu sync.Mutex
	h  History
}

// Op notes a call that has come to an end, whatever its outcome.
func (r *Recorder) Op(o Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Ops = append(r.h.Ops, o)
}

// Answer notes a complete answer to an agent.
func (r *Recorder) Answer(a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Answers = append(r.h.Answers, a)
}

// Ack notes an acknowledgement that was answered with 200.
func (r *Recorder) Ack(a Ack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Acks = append(r.h.Acks, a)
}

// Refusal notes another answer than 200 to an agent.
func (r *Recorder) Refusal(f simagent.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Refusals = append(r.h.Refusals, f)
}

// History is what has been noted so far. The caller must not change it.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.h
	// What is noted from now on goes behind these lengths.
	h.Ops, h.Answers = h.Ops[:len(h.Ops):len(h.Ops)], h.Answers[:len(h.Answers):len(h.Answers)]
	h.Acks, h.Refusals = h.Acks[:len(h.Acks):len(h.Acks)], h.Refusals[:len(h.Refusals):len(h.Refusals)]
	return h
}

// Count is how many calls so far satisfy ok.
func (r *Recorder) Count(ok func(Op) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, o := range r.h.Ops {
		if ok(o) {
			n++
		}
	}
	return n
}
