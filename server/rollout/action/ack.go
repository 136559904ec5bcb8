package action

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Ack handles the acknowledgements of one agent and answers each: 200 when its result
// is in the store, 400 or 404 when it never will be, 503 when the agent has to send it
// again.
func (s *Service) Ack(ctx context.Context, agent fleet.Agent, events []agentapi.AckEvent) []agentapi.AckItem {
	now := s.Now.UTC()
	items := make([]agentapi.AckItem, len(events))
	for i, e := range events {
		items[i] = agentapi.AckItem{Status: http.StatusOK, Message: "OK"}
		e.Message, e.Error = terminal.Escape(e.Message), terminal.Escape(e.Error)
		if err := s.Health.Call(ctx, func(ctx context.Context) error { return s.ack(ctx, agent, e, now) }); err != nil {
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

// AckUpgrades is Ack for a stable agent (fleet.Agent.Stable) that only accepts upgrades,
// as nearly all acknowledgements do. These do not change the agent, so only results are
// written. It returns nil if the events have to be handled by Ack.
func (s *Service) AckUpgrades(ctx context.Context, agentID, hostname string, events []agentapi.AckEvent) []agentapi.AckItem {
	now := s.Now.UTC()
	results := make([]fleet.Result, len(events))
	items := make([]agentapi.AckItem, len(events))
	for i, e := range events {
		accepted := e.Error == "" && e.Payload == nil && (e.AgentID == "" || e.AgentID == agentID)
		if !accepted || s.Feed.Recent(e.ActionID, agentID) != agentapi.ActionUpgrade {
			return nil
		}
		results[i] = fleet.Result{ActionID: e.ActionID, AgentID: agentID, Hostname: hostname, Message: terminal.Escape(e.Message), Timestamp: now}
		items[i] = agentapi.AckItem{Status: http.StatusOK, Message: "OK"}
	}
	err := s.Health.Call(ctx, func(ctx context.Context) error {
		_, err := s.Store.Agents().Report(ctx, store.Report{Results: results})
		return err
	})
	if err != nil {
		return nil
	}
	s.Events.Wake()
	return items
}

func (s *Service) ack(ctx context.Context, agent fleet.Agent, e agentapi.AckEvent, now time.Time) error {
	switch {
	case e.AgentID != "" && e.AgentID != agent.ID:
		return fleet.FieldError("body.events.agent_id", "is %q, this key belongs to agent %s", e.AgentID, agent.ID)
	case e.ActionID == "":
		return fleet.FieldError("body.events.action_id", "is missing")
	case fleet.IsChange(e.ActionID):
		return s.ackPolicy(ctx, agent, e, now)
	}
	is, err := s.Store.Actions().For(ctx, e.ActionID, agent.ID)
	if err != nil {
		return err
	}
	a := is[0]
	if !slices.Contains(a.Agents, agent.ID) {
		// Its result would be counted as that of an agent of the action.
		return fleet.Errorf(fleet.NotFound, "action %s is not for agent %s", a.ID, agent.ID)
	}
	retry := e.Payload != nil && e.Payload.Retry
	// An upgrade that was cancelled has no result, whether it had begun or not.
	cancelled := a.CancelledAt != nil && strings.HasPrefix(e.Error, agentapi.Cancelled)
	late, err := s.isLate(ctx, agent, a, e)
	if err != nil {
		return err
	}
	host := agent.Host()
	var acked []fleet.Result
	if !retry && !cancelled && !late {
		acked = []fleet.Result{{ActionID: a.ID, AgentID: agent.ID, Hostname: agent.HostnameOn(host), Message: e.Message, Error: e.Error, Timestamp: now}}
	}
	err = s.apply(ctx, agent, now, func(agent *fleet.Agent) store.Report {
		r := store.Report{Results: acked}
		if e, changed := acknowledged(agent, a, e.Error, retry, now); changed {
			r.Agent, r.Events = agent, []fleet.Event{e}
		}
		if is, ended := agent.OutcomeOf(a.ID, now); ended && a.Type == agentapi.ActionUpgrade && !retry {
			// The document has what the host said last, and an acknowledgement may be older.
			if is.Error == "" {
				is.Message = cmp.Or(e.Message, is.Message)
			}
			r.Results = []fleet.Result{is}
		}
		return r
	})
	if err == nil && a.Type == agentapi.ActionUpgrade && s.Release != nil && host.Maker == fleet.MakerElastic {
		// It acknowledges an upgrade that failed as one that succeeded, and reports which of
		// them it was in its next poll.
		s.Release(agent.ID)
	}
	return err
}

// isLate reports whether an acknowledged error is of an upgrade that ended before another order
// replaced it in the document. The history has its end.
func (s *Service) isLate(ctx context.Context, agent fleet.Agent, a fleet.Action, e agentapi.AckEvent) (late bool, err error) {
	if a.Type != agentapi.ActionUpgrade || e.Error == "" || agent.UpgradeActionID == a.ID || agent.ComponentOf(a.ID) != "" {
		return false, nil
	}
	err = s.Store.History().OfAction(ctx, store.ActionHistory{ActionID: a.ID, AgentIDs: []string{agent.ID}}, func(r fleet.HistoryRecord) {
		late = late || r.State.Ended()
	})
	return late, err
}

// ackPolicy handles the acknowledgement of a POLICY_CHANGE, which has no document. Older
// agents report their revision only by it; without it they would get the policy again with
// every check-in.
func (s *Service) ackPolicy(ctx context.Context, agent fleet.Agent, e agentapi.AckEvent, now time.Time) error {
	if e.Error != "" {
		s.Log.Warn("an agent cannot apply its policy", "agent", agent.ID, "action", e.ActionID, "error", e.Error)
		s.Events.Publish(ctx, fleet.Event{
			Type: fleet.EventAgentPolicy, Subject: agent.ID, Data: event.Data(map[string]string{"action_id": e.ActionID, "error": e.Error}),
		})
		return nil
	}
	has, coordinator, ok := fleet.ParseChange(e.ActionID)
	if !ok {
		return fleet.FieldError("body.events.action_id", "is %q, want policy:<id>:<revision>", e.ActionID)
	}
	return s.apply(ctx, agent, now, func(a *fleet.Agent) store.Report {
		first := a.PolicyRev == 0
		if !a.AcknowledgePolicy(has, coordinator) {
			return store.Report{}
		}
		r := store.Report{Agent: a, History: []fleet.HistoryRecord{a.PolicyRecord(now)}}
		if first { // its status changes, and a change for the whole fleet writes no event for each agent
			r.Events = []fleet.Event{{Type: fleet.EventAgentPolicy, Subject: a.ID, Data: event.Data(map[string]string{"action_id": e.ActionID})}}
		}
		return r
	})
}

// acknowledged applies the acknowledgement of a to the agent.
func acknowledged(agent *fleet.Agent, a fleet.Action, errText string, retry bool, now time.Time) (fleet.Event, bool) {
	switch a.Type {
	case agentapi.ActionUpgrade:
		changed := agent.ObserveAck(a.ID, errText, retry, now)
		return agent.UpgradeEvent(a.Component()), changed
	case agentapi.ActionCancel:
		name := agent.ComponentOf(a.Cancels())
		changed := errText == "" && agent.ConfirmCancel(a.Cancels(), now)
		return agent.UpgradeEvent(name), changed
	case agentapi.ActionUnenroll, agentapi.ActionMigrate:
		if errText != "" || !agent.Active {
			break
		}
		reason := "unenrolled"
		if a.Type == agentapi.ActionMigrate {
			reason = "migrated"
		}
		agent.Unenroll(reason, now)
		return fleet.Event{Type: fleet.EventAgentUnenrolled, Subject: agent.ID, Data: event.Data(map[string]string{"action_id": a.ID})}, true
	}
	return fleet.Event{}, false
}
