package checkin

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// PendingSource returns the pending actions of agents; action.Feed implements it.
type PendingSource interface {
	// Pending returns the ids of the actions for an agent with a sequence number
	// above after that have not expired at now, lowest first. An action that is created
	// later wakes the agent. If there is none, there is none up to the number upTo.
	Pending(ctx context.Context, agentID string, after int64, now time.Time, limit int) (ids []string, upTo int64, err error)
}

// PolicySource returns policies that agents lack; policy.Changes implements it.
type PolicySource interface {
	// Behind reports whether there is a newer revision than the one that an agent has. It
	// does not call the store.
	Behind(has fleet.PolicyAt) bool
	// Change returns the POLICY_CHANGE with the newest revision of a policy.
	Change(ctx context.Context, policyID string) (agentapi.EncodedAction, error)
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
	unsure, err := s.unsure(ctx, &l)
	for i, ids := range l.todo {
		if len(ids) > 0 && out[i].Err == nil {
			if out[i].Err = err; err == nil {
				out[i] = l.answer(i, l.deliverable(i, ids, unsure[waits[i].AgentID]))
			}
		}
	}
	for i, w := range waits {
		if len(l.todo[i]) == 0 && out[i].Err == nil {
			out[i] = s.policyChange(ctx, w, now)
		}
	}
	return out
}

// unsure returns the agents to which not everything is delivered that is pending, since it is not clear
// which host has their identity; see fleet.Agent.Withholds. It reads the documents, because another server
// may have the poll of the other host. Those of agents that are known to be stable are not read.
func (s *Service) unsure(ctx context.Context, l *check) (map[string]*fleet.Agent, error) {
	var ids []string
	for i, w := range l.waits {
		if len(l.todo[i]) == 0 {
			continue
		}
		if _, ok := s.Cache.Stable(w.AgentID); !ok {
			ids = append(ids, w.AgentID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var agents []fleet.Agent
	err := s.Health.Call(ctx, func(ctx context.Context) (err error) {
		agents, err = s.Agents.GetMany(ctx, ids)
		return err
	})
	unsure := map[string]*fleet.Agent{}
	for i := range agents {
		if agents[i].SharedSince != nil || agents[i].NewHostSince != nil {
			unsure[agents[i].ID] = &agents[i]
		}
	}
	return unsure, err
}

// deliverable returns which of the actions are delivered now: none after the first one that the agent
// holds, since the ack token would say that it has that one.
func (l *check) deliverable(wait int, ids []string, unsure *fleet.Agent) []string {
	if unsure == nil {
		return ids
	}
	for n, id := range ids {
		a := l.actions[id]
		if a.err == nil && a.is[0].CancelledAt == nil && !a.answered[l.waits[wait].AgentID] && unsure.Withholds(a.is[0].Type) {
			return ids[:n]
		}
	}
	return ids
}

// policyChange returns the answer to an agent whose policy has a newer revision, or nothing.
// As in Fleet Server, actions go first and the policy with the next answer. The answer has
// no ack token, since a POLICY_CHANGE has no sequence number.
func (s *Service) policyChange(ctx context.Context, w *Wait, now time.Time) Pending {
	if s.Policies == nil || !s.Policies.Behind(w.Policy) {
		return Pending{}
	}
	var change agentapi.EncodedAction
	err := s.Health.Call(ctx, func(ctx context.Context) (err error) {
		change, err = s.Policies.Change(ctx, w.Policy.ID)
		return err
	})
	if err != nil {
		return Pending{Err: err}
	}
	if !s.resends.send(w.AgentID, change.ID, now) {
		return Pending{}
	}
	body := append(make([]byte, 0, change.Len()+128), `{"ack_token":"","action":"checkin","actions":[`...) // agentapi.CheckinResponse
	body = change.AppendTo(body, w.AgentID)
	body = append(body, `]}`...)
	return Pending{Answer: &Answer{Status: empty.Status, Body: body}}
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

	encoded agentapi.EncodedAction // of is[0]; empty until the first delivery
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
	if a.answered, err = l.s.Results.Answered(ctx, id, agents); err != nil || len(a.is[0].Sealed) == 0 {
		return err
	}
	data, ok := l.s.Sealer.Open(a.is[0].Owner(), a.is[0].Sealed)
	if !ok {
		return l.s.cannotOpen(ctx, a, agents)
	}
	for i := range a.is {
		a.is[i].Data = json.RawMessage(data)
	}
	return nil
}

// cannotOpen fails an action whose data this server cannot decrypt, for those of the agents
// that have not answered it. They would not get it later either: their next ack token is
// above its number. Otherwise it would stay open until it expires, and nobody would know why.
func (s *Service) cannotOpen(ctx context.Context, a *actionForWaits, agents []string) error {
	act, now := &a.is[0], s.Now.UTC()
	if last := s.unopened.Swap(&act.ID); last == nil || *last != act.ID {
		s.Log.Error("an action with secrets is not delivered, since this server lacks the key that encrypted them: it fails on the agents that poll here, order it again once all servers have the key",
			"action", act.ID, "type", act.Type)
	}
	left := slices.DeleteFunc(slices.Clone(agents), func(id string) bool { return a.answered[id] })
	known, err := s.Agents.GetMany(ctx, left)
	if err != nil {
		return err
	}
	results, events := make([]fleet.Result, len(known)), make([]fleet.Event, len(known))
	for i := range known {
		results[i] = fleet.Result{ActionID: act.ID, AgentID: known[i].ID, Hostname: known[i].Hostname(), Error: notOpened, Timestamp: now}
		events[i] = results[i].Event()
	}
	if _, err := s.Results.Put(ctx, results); err != nil {
		return err
	}
	s.Events.Publish(ctx, events...)
	a.answered = map[string]bool{} // so that no wait gets the action without its data
	for _, id := range agents {
		a.answered[id] = true
	}
	return nil
}

// notOpened is the error of an action whose secrets could not be decrypted.
const notOpened = "not delivered: the server lacks the key that encrypted the secrets of this action; copy the folder trust of a server that has it, and order the action again"

// answer returns the answer to the agent of a wait, with the actions of ids.
func (l *check) answer(wait int, ids []string) Pending {
	if len(ids) == 0 {
		return Pending{}
	}
	agentID := l.waits[wait].AgentID
	var deliver []*actionForWaits
	var last *fleet.Action
	for _, id := range ids {
		a := l.actions[id]
		if a.err != nil {
			return Pending{Err: a.err}
		}
		last = &a.is[0]
		if a.is[0].CancelledAt == nil && !a.answered[agentID] {
			deliver = append(deliver, a)
		}
	}
	body := append(make([]byte, 0, 512), `{"ack_token":"`...) // agentapi.CheckinResponse
	l.s.digests.note(last.Seq, digestOf(last.ID))             // agents show the token next
	body = appendToken(body, l.s.Generation, last.Seq, last.ID)
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
	if a.encoded.ID == "" {
		a.encoded = agentapi.EncodeAction(first.ForAgent(""))
	}
	return a.encoded.AppendTo(body, agentID)
}
