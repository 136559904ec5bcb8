package action

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// policyPrefix begins the ids of POLICY_CHANGE actions, which the server makes
// and keeps no document of.
const policyPrefix = "policy:"

// Ack takes in the acknowledgements of one agent and answers each: 200 when its
// result is durable, 400 or 404 when it never will be, 503 when the agent should
// send it again.
func (s *Service) Ack(ctx context.Context, agent fleet.Agent, events []agentapi.AckEvent) []agentapi.AckItem {
	items := make([]agentapi.AckItem, len(events))
	for i, e := range events {
		items[i] = agentapi.AckItem{Status: http.StatusOK, Message: "OK"}
		if err := s.ack(ctx, agent, e); err != nil {
			status := map[fleet.Kind]int{fleet.Invalid: http.StatusBadRequest, fleet.NotFound: http.StatusNotFound}[fleet.KindOf(err)]
			if status == 0 {
				s.Log.Warn("acknowledgement not stored", "agent", agent.ID, "action", e.ActionID, "error", err)
				status = http.StatusServiceUnavailable
			}
			items[i] = agentapi.AckItem{Status: status, Message: err.Error()}
		}
	}
	return items
}

func (s *Service) ack(ctx context.Context, agent fleet.Agent, e agentapi.AckEvent) error {
	switch {
	case e.AgentID != "" && e.AgentID != agent.ID:
		return fleet.FieldError("body.events.agent_id", "is %q, this key belongs to agent %s", e.AgentID, agent.ID)
	case e.ActionID == "":
		return fleet.FieldError("body.events.action_id", "is missing")
	case strings.HasPrefix(e.ActionID, policyPrefix):
		return nil // the check-in carries the revision
	}
	a, err := s.Store.Actions().Get(ctx, e.ActionID)
	if err != nil {
		return err
	}
	if !slices.Contains(a.Agents, agent.ID) {
		// It would be counted in the place of one it was meant for.
		return fleet.Errorf(fleet.NotFound, "action %s is not for agent %s", a.ID, agent.ID)
	}
	retry := e.Payload != nil && e.Payload.Retry
	// One that was called off in flight has no result, as one that had not begun.
	calledOff := a.CancelledAt != nil && strings.HasPrefix(e.Error, agentapi.Cancelled)
	if !retry && !calledOff {
		// The result first: it is durable before anybody acts on it.
		r := fleet.Result{ActionID: a.ID, AgentID: agent.ID, Hostname: agent.Hostname(), Message: e.Message, Error: e.Error, Timestamp: s.Now.UTC()}
		changed, err := s.Store.Results().Put(ctx, []fleet.Result{r})
		if err != nil {
			return err
		}
		if changed[0] {
			defer s.Events.Publish(ctx, r.Event())
		}
	}
	// Also for a repeated acknowledgement: the first may have died here.
	return s.apply(ctx, agent, a, e.Error, retry)
}

// apply changes the agent as its acknowledgement of a demands.
func (s *Service) apply(ctx context.Context, agent fleet.Agent, a fleet.Action, errText string, retry bool) error {
	now := s.Now.UTC()
	var changed bool
	tell := (*fleet.Agent).UpgradeEvent
	change := func(*fleet.Agent) bool { return false }
	switch a.Type {
	case agentapi.ActionUpgrade:
		change = func(agent *fleet.Agent) bool {
			changed = agent.ObserveAck(a.ID, errText, retry, now)
			return changed
		}
	case agentapi.ActionCancel:
		change = func(agent *fleet.Agent) bool {
			changed = errText == "" && agent.CancelUpgrade(a.Cancels())
			return changed
		}
	case agentapi.ActionUnenroll:
		tell = func(agent *fleet.Agent) fleet.Event {
			return fleet.Event{Type: fleet.EventAgentUnenrolled, Subject: agent.ID, Data: event.Data(map[string]string{"action_id": a.ID})}
		}
		change = func(agent *fleet.Agent) bool {
			if changed = errText == "" && agent.Active; changed {
				putOut(agent, now, "unenrolled")
			}
			return changed
		}
	}
	if !change(&agent) {
		return nil
	}
	agent, err := store.UpdateChanged(ctx, s.Store.Agents(), agent, change)
	if err != nil {
		return err
	}
	if changed {
		s.Events.Publish(ctx, tell(&agent))
	}
	return nil
}
