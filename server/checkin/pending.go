package checkin

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// PendingSource returns the pending actions of agents; action.Feed implements it.
type PendingSource interface {
	// Pending returns the ids of the actions for an agent with a sequence number
	// above after that have not expired at now, lowest first. An action that is created
	// later wakes the agent. If there is none, there is none up to the number upTo.
	Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) (ids []string, upTo int64, err error)
}

// PendingActions returns the actions that have not been delivered to the agents. It reads
// the store by action and not by agent, since the agents of one action are woken
// together.
func (s *Service) PendingActions(ctx context.Context, waits []*Wait) []Pending {
	out := make([]Pending, len(waits))
	now := s.Now.UTC()
	l := check{s: s, waits: waits, todo: make([][]string, len(waits))}
	for i, w := range waits {
		l.todo[i], out[i].Err = s.pending(ctx, w, now)
	}
	for i, ids := range l.todo {
		for _, id := range ids {
			if l.actions == nil {
				l.actions = map[string]*actionForWaits{} // most checks find nothing, and need none
			}
			if l.actions[id] == nil {
				l.actions[id] = &actionForWaits{}
			}
			l.actions[id].waits = append(l.actions[id].waits, i)
		}
	}
	for id, a := range l.actions {
		a.err = s.Health.Call(ctx, func(ctx context.Context) error { return l.read(ctx, id, a) })
	}
	for i, ids := range l.todo {
		if len(ids) > 0 && out[i].Err == nil {
			out[i] = l.answer(i, ids)
		}
	}
	return out
}

// pending returns the ids of the pending actions of an agent. If there is none, it
// records in w up to which number.
func (s *Service) pending(ctx context.Context, w *Wait, now time.Time) (ids []string, err error) {
	if err := s.Health.Away(); err != nil {
		return nil, err
	}
	ids, upTo, err := s.Pending.Pending(ctx, w.AgentID, max(w.After, w.EmptyUpTo), now, MaxActions)
	if err == nil && len(ids) == 0 {
		w.EmptyUpTo = upTo
	}
	return ids, err
}

// check is the work of one PendingActions call.
type check struct {
	s       *Service
	waits   []*Wait
	todo    [][]string // ids of actions, by wait
	actions map[string]*actionForWaits
}

// actionForWaits is an action and the waits it is for.
type actionForWaits struct {
	waits    []int           // indices of the waits of its agents, ascending
	is       []fleet.Action  // the action for each of them
	answered map[string]bool // agents that have answered it
	err      error

	// before and behind are the encoding of is[0] before and after the agent's id; nil
	// until the first delivery.
	before, behind []byte
}

// read reads an action from the store, and which of the agents have answered it.
//
// A cancelled action is not delivered; its CANCEL is, since the action may have been
// delivered before. Nor is one that the agent has answered: an agent that was rolled back
// shows its earlier token, and must not get the actions that it has completed since.
func (l *check) read(ctx context.Context, id string, a *actionForWaits) (err error) {
	agents := make([]string, len(a.waits))
	for n, i := range a.waits {
		agents[n] = l.waits[i].AgentID
	}
	if a.is, err = l.s.Actions.For(ctx, id, agents...); err != nil || a.is[0].CancelledAt != nil {
		return err
	}
	a.answered, err = l.s.Results.Answered(ctx, id, agents)
	return err
}

// answer returns the answer to the agent of a wait, with the actions of ids.
func (l *check) answer(wait int, ids []string) Pending {
	agentID := l.waits[wait].AgentID
	var deliver []*actionForWaits
	var last int64
	for _, id := range ids {
		a := l.actions[id]
		if a.err != nil {
			return Pending{Err: a.err}
		}
		last = a.is[0].Seq
		if a.is[0].CancelledAt == nil && !a.answered[agentID] {
			deliver = append(deliver, a)
		}
	}
	body := append(make([]byte, 0, 512), `{"ack_token":"`...) // agentapi.CheckinResponse
	body = appendToken(body, l.s.Generation, last)
	body = append(body, `","action":"checkin","actions":[`...)
	for i, a := range deliver {
		if i > 0 {
			body = append(body, ',')
		}
		at, _ := slices.BinarySearch(a.waits, wait)
		body = a.append(body, &a.is[at], agentID)
	}
	body = append(body, `]}`...)
	return Pending{Answer: &Answer{Status: empty.Status, Body: body}}
}

// append appends the encoded action of an agent. Usually only the agent's id differs
// between agents, so the rest is encoded once.
func (a *actionForWaits) append(body []byte, is *fleet.Action, agentID string) []byte {
	first := &a.is[0]
	if is.StartTime != first.StartTime && !is.StartTime.Equal(*first.StartTime) { // all have a start time, or none has
		return append(body, marshal(is.ForAgent(agentID))...)
	}
	if a.before == nil {
		// Quotes within JSON strings are escaped, so this only matches the field.
		const field = `"agent_id":`
		before, behind, _ := bytes.Cut(marshal(first.ForAgent("")), []byte(field+`""`))
		a.before, a.behind = slices.Concat(before, []byte(field)), behind
	}
	body = append(body, a.before...)
	body = append(body, marshal(agentID)...)
	return append(body, a.behind...)
}
