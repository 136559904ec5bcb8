package action

import (
	"cmp"
	"context"
	"fmt"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// maxRecorded bounds the agents that an audit entry names. The action names all.
const maxRecorded = 100

// recordedAs returns the verb of the audit entries about an action, and what it orders, which is
// followed by its agents.
func recordedAs(a fleet.Action) (verb, what string) {
	switch a.Type {
	case agentapi.ActionUnenroll:
		return "agent.unenroll", "the unenrolment of"
	case agentapi.ActionRequestDiagnostics:
		return "agent.request_diagnostics", "the diagnostics of"
	case agentapi.ActionForceUnenroll:
		return "agent.revoke", "the unenrolment, with revoked keys, of"
	case agentapi.ActionPolicyReassign:
		return "agent.reassign", "policy " + a.NewPolicy() + " for"
	case agentapi.ActionUpdateTags:
		return "agent.tag", "other tags for"
	case agentapi.ActionStage:
		return "agent.stage", "the staging of " + fleet.What(a.Component(), a.Upgrade().Version) + " on"
	case agentapi.ActionUpgrade:
		kind, order := "agent", "upgrade"
		if a.Upgrade().Rollback {
			order = "rollback"
		}
		of := ""
		if c := a.Component(); c != "" {
			kind, of = "component", " of component "+c
		}
		return kind + "." + order, "the " + order + of + " to " + a.Upgrade().Version + " of"
	}
	return "agent.action", string(a.Type) + " of"
}

// entryOf returns the audit entry about an order, which is written before the first agent is
// changed. It says what was asked for; ended records what was done, where that may differ.
func entryOf(ctx context.Context, a fleet.Action, agentIDs []string, do step) fleet.AuditEntry {
	verb, what := recordedAs(a)
	text := "ordered " + what
	if len(agentIDs) == 1 {
		text += " agent " + agentIDs[0]
	} else {
		text += fmt.Sprintf(" %d agents", len(agentIDs))
	}
	data := map[string]any{"agents": agentIDs[:min(len(agentIDs), maxRecorded)], "count": len(agentIDs)}
	if a.StartTime != nil {
		data["start_time"] = a.StartTime
	}
	for _, rail := range do.override {
		text += ", in spite of the " + map[string]string{"freeze": "freeze", "exposure": "exposure budget", ErrRemovalLimit: "removal limit"}[rail]
		data["override"] = do.override
	}
	return fleet.AuditEntry{
		ID: fleet.NewID(), At: a.CreatedAt, Actor: a.CreatedBy, Verb: verb, Subject: a.ID, Why: cmp.Or(do.why, audit.Why(ctx)), Text: a.CreatedBy + " " + text, Data: event.Data(data),
	}
}

// publishCreated publishes the events of a new action and of its marked agents.
func (s *Service) publishCreated(ctx context.Context, a fleet.Action, refused int) {
	data := map[string]any{"type": a.Type, "version": a.Upgrade().Version, "agents": len(a.Agents), "refused": refused}
	if a.Upgrade().Rollback {
		data["rollback"] = true
	}
	if a.Component() != "" {
		data["component"] = a.Component()
	}
	created := fleet.Event{Type: fleet.EventActionCreated, Subject: a.ID, Actor: a.CreatedBy, Data: event.Data(data)}
	s.Events.Publish(ctx, append([]fleet.Event{created}, agentEvents(a)...)...)
}

// upgradeText says what an UPGRADE or a STAGE does.
func upgradeText(a fleet.Action) string {
	name := a.Component()
	switch {
	case a.Type == agentapi.ActionStage:
		return "staging of " + fleet.What(name, a.Upgrade().Version)
	case name != "":
		return "upgrade of component " + name + " to " + a.Upgrade().Version
	}
	return "upgrade to " + a.Upgrade().Version
}

// agentEventsMax bounds the events of one action that name agents. For more agents there
// is one event, and readers fetch the list again.
const agentEventsMax = 100

// agentEvents returns the events of the agents of an action.
func agentEvents(a fleet.Action) []fleet.Event {
	e := fleet.Event{Type: fleet.EventAgentUpgrade, Data: event.Data(map[string]string{"action_id": a.ID})}
	switch a.Type {
	case agentapi.ActionUpgrade:
		if name := a.Component(); name != "" {
			e = fleet.Event{Type: fleet.EventAgentComponent, Data: event.Data(map[string]string{"action_id": a.ID, "component": name})}
		}
	case agentapi.ActionUnenroll, agentapi.ActionForceUnenroll:
		e = fleet.Event{
			Type: fleet.EventAgentUnenrolled, Actor: a.CreatedBy,
			Data: event.Data(map[string]any{"action_id": a.ID, "revoked": a.Type == agentapi.ActionForceUnenroll}),
		}
	default: // their documents do not change
		return nil
	}
	if len(a.Agents) > agentEventsMax {
		return []fleet.Event{e}
	}
	events := make([]fleet.Event, len(a.Agents))
	for i, id := range a.Agents {
		events[i] = e
		events[i].Subject = id
	}
	return events
}
