package cluster

import (
	"sync"
	"time"

	"github.com/muster-fleet/muster/testing/kit/simagent"
)

// Outcome is what an operator knows about the result of a call.
type Outcome int

// The outcomes. Unknown is the zero value: the connection broke, or the server answered
// 5xx or 429. Such a call took effect completely or not at all.
const (
	Unknown Outcome = iota
	Done
	Refused // with a reason: it had no effect
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

// Kind is the kind of a call.
type Kind string

// The kinds of calls.
const (
	Upgrade Kind = "upgrade" // of named agents
	Cancel  Kind = "cancel"  // of the action of an upgrade
)

// Op is one call of an operator.
type Op struct {
	// Name is unique. The action of an upgrade contains it, so that the action is found
	// even if the answer was lost.
	Name string
	Kind Kind
	// Agents are the agents of an upgrade.
	Agents []string
	// Cancels is the action that a cancel cancels.
	Cancels string
	Server  string

	Invoked  time.Time
	Returned time.Time // zero if the outcome is unknown
	Outcome  Outcome
	ActionID string // as answered; empty unless Outcome is Done
}

// Action is an action in the store at the end.
type Action struct {
	ID string
	// Op is the name of the upgrade that created it, Cancels the action that a CANCEL
	// cancels. One of them is empty.
	Op, Cancels string
	Seq         int64
	Agents      []string
	// Refused are the named agents that could not follow.
	Refused []string
	// Cancelled means that it is no longer delivered.
	Cancelled bool
	// Acked and Failed count its results without and with an error.
	Acked, Failed int
}

// Answer is a complete answer to a check-in.
type Answer struct {
	Agent  string
	Server string
	At     time.Time
	// Shown is the ack token in the check-in, Token the one in the answer; 0 is none.
	Shown, Token int64
	Actions      []string // ids, in order
}

// Ack is an acknowledgement that was answered with 200.
type Ack struct {
	Agent, Action string
	Failed        bool
}

// History is everything that operators and agents observed, and the actions in the store.
type History struct {
	Ops     []Op
	Answers []Answer // in order for each agent
	Acks    []Ack
	// Refusals are answers to agents other than 200.
	Refusals []simagent.Refusal
	Actions  []Action
}

// Recorder records a history. It is safe for concurrent use.
type Recorder struct {
	mu sync.Mutex
	h  History
}

// Op records a call that has ended.
func (r *Recorder) Op(o Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Ops = append(r.h.Ops, o)
}

// Answer records a complete answer to an agent.
func (r *Recorder) Answer(a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Answers = append(r.h.Answers, a)
}

// Ack records an acknowledgement that was answered with 200.
func (r *Recorder) Ack(a Ack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Acks = append(r.h.Acks, a)
}

// Refusal records an answer other than 200 to an agent.
func (r *Recorder) Refusal(f simagent.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Refusals = append(r.h.Refusals, f)
}

// History returns what has been recorded so far. The caller must not change it.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.h
	// Later records are appended after these lengths.
	h.Ops, h.Answers = h.Ops[:len(h.Ops):len(h.Ops)], h.Answers[:len(h.Answers):len(h.Answers)]
	h.Acks, h.Refusals = h.Acks[:len(h.Acks):len(h.Acks)], h.Refusals[:len(h.Refusals):len(h.Refusals)]
	return h
}

// Count returns how many calls so far satisfy ok.
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
