package checkin

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Inbox knows which actions agents have before them; action.Feed is one.
type Inbox interface {
	// Pending returns the ids of the actions for an agent with a sequence number
	// above after that have not expired at now, lowest first. What is created later
	// than it knows comes with a Wake. Where there are none, there are none up to the
	// number upTo.
	Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) (ids []string, upTo int64, err error)
}

// PendingActions finds what the agents have not been given yet. What it asks the
// store for goes by action and not by agent: the agents of one action are woken
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
		a.err = s.Health.Ask(ctx, func(ctx context.Context) error { return l.read(ctx, id, a) })
	}
	for i, ids := range l.todo {
		if len(ids) > 0 && out[i].Err == nil {
			out[i] = l.answer(i, ids)
		}
	}
	return out
}

// pending returns the ids of the actions before an agent, and notes where there are
// none.
func (s *Service) pending(ctx context.Context, w *Wait, now time.Time) (ids []string, err error) {
	if err := s.Health.Away(); err != nil {
		return nil, err
	}
	ids, upTo, err := s.Inbox.Pending(ctx, w.AgentID, max(w.After, w.Clear), now, MaxActions)
	if err == nil && len(ids) == 0 {
		w.Clear = upTo
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
	waits    []int           // whom it is for, ascending
	is       []fleet.Action  // as it is for each of them
	answered map[string]bool // agents that have answered it
	err      error

	// before and behind are the first of them as agents are given it, without the
	// agent's id; nil until one is.
	before, behind []byte
}

// read asks the store for an action, and who has answered it.
//
// One cancelled before it was handed over is passed over (its CANCEL still goes
// out, for it may have been), and so is one the agent has answered: an agent that
// was rolled back shows the token of before, and must not be given again what it
// has done since.
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

// answer puts together what the agent of a wait is given.
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
	body = strconv.AppendInt(body, last, 10)
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

// append writes the action as an agent is given it. Most often the agent's id is
// all that differs between agents, so the rest is encoded once.
func (a *actionForWaits) append(body []byte, is *fleet.Action, agentID string) []byte {
	first := &a.is[0]
	if is.StartTime != first.StartTime && !is.StartTime.Equal(*first.StartTime) { // all have one, or none
		return append(body, marshal(is.ForAgent(agentID))...)
	}
	if a.before == nil {
		// Within a JSON text quotes are escaped: this is the field.
		const field = `"agent_id":`
		before, behind, _ := bytes.Cut(marshal(first.ForAgent("")), []byte(field+`""`))
		a.before, a.behind = slices.Concat(before, []byte(field)), behind
	}
	body = append(body, a.before...)
	body = append(body, marshal(agentID)...)
	return append(body, a.behind...)
}
