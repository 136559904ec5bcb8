package simfleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// seedTrail writes the audit trail, incidents and webhooks of the past.
func seedTrail(ctx context.Context, s store.Store, p *past) error {
	var list []fleet.AuditEntry
	add := func(at time.Time, actor, verb, subject, why, text string) {
		list = append(list, fleet.AuditEntry{
			ID: fmt.Sprintf("past:%s:%s:%d", verb, subject, len(list)), At: at, Actor: actor, Verb: verb, Subject: subject, Why: why, Text: actor + " " + text,
		})
	}
	for _, w := range p.waves {
		title := fmt.Sprintf("rollout “%s” (%s)", w.name, w.id)
		add(w.began.Add(-11*time.Minute), w.by, "rollout.create", w.id, w.why, "created the draft of "+title)
		add(w.began, w.by, "rollout.start", w.id, w.why, "started "+title)
		if w.state == fleet.RolloutCancelled {
			add(w.ended(), w.by, "rollout.cancel", w.id, broken+" crashes on hosts with more than four disks", "cancelled "+title)
		}
		state := w.state
		list = append(list, fleet.AuditEntry{
			ID: w.id + ":step:end", At: w.ended().Add(time.Second), Actor: "muster", Verb: "rollout.step", Subject: w.id, Text: fmt.Sprintf("%s has ended: %s", title, state),
		})
	}
	for _, b := range p.single {
		verb, what := "agent.upgrade", b.to
		if b.component != "" {
			verb, what = "component.upgrade", "component "+b.component+" to "+b.to
		}
		add(b.at, b.by.By, verb, b.actionID, b.by.Why, fmt.Sprintf("ordered the upgrade to %s of %d agents", what, len(b.agents)))
		if b.cancelled != nil {
			add(*b.cancelled, b.by.By, "action.cancel", b.actionID, "wrong ring", "cancelled the upgrade to "+what)
		}
	}
	ago := func(days, hours int) time.Time {
		return p.now.Add(-time.Duration(days*24+hours) * time.Hour).Truncate(time.Minute)
	}
	add(ago(29, 3), "ann", "policy.update", "web", "", "changed the policy Web servers")
	add(ago(27, 5), "ann", "enrollment_key.create", "edge-branches", "", "created the enrollment key branches for the policy edge")
	add(ago(20, 2), "ben", "freeze.create", "freezes", "the auditors are here", "set the freeze “Audit week”")
	add(ago(12, 7), "ann", "policy.update", "db", "CHG-3950", "changed the policy Databases")
	add(ago(10, 1), "ben", "admin_key.revoke", "0c4v1x", "the laptop was lost", "revoked the admin key ben-laptop")
	add(ago(4, 4), "ben", "webhook.create", "hook-chat", "", "created the webhook chat")
	slices.SortFunc(list, func(a, b fleet.AuditEntry) int { return a.At.Compare(b.At) })
	if err := s.Audit().Append(ctx, list); err != nil {
		return err
	}
	if err := seedIncidents(ctx, s, p); err != nil {
		return err
	}
	return seedWebhooks(ctx, s, p)
}

// seedIncidents writes incidents that were dealt with, and one that nobody has resolved.
func seedIncidents(ctx context.Context, s store.Store, p *past) error {
	cancelledWave := p.waves[len(p.waves)-1]
	at := cancelledWave.ended().Add(-15 * time.Minute)
	decided := func(by string, at time.Time, why string) *fleet.Decision {
		return &fleet.Decision{By: by, At: at, Why: why}
	}
	for _, i := range []fleet.Incident{
		{
			ID: "rollout_stopped:" + cancelledWave.id + ":", Category: fleet.IncidentRolloutStopped, Severity: "critical", State: fleet.IncidentResolved,
			Title: fmt.Sprintf("rollout “%s” (%s) is paused by itself", cancelledWave.name, cancelledWave.id), Text: "More than 5 % of the targets attempted have failed.",
			RolloutID: cancelledWave.id, OpenedAt: at, Count: 1, Acked: decided("ben", at.Add(4*time.Minute), "looking at it"), Resolved: decided("ben", at.Add(16*time.Minute), "cancelled"),
		},
		{
			ID: "upgrade_failed:" + cancelledWave.id + ":" + p.hosts[0].id, Category: fleet.IncidentUpgradeFailed, Severity: "critical", State: fleet.IncidentAcked,
			Title: p.hosts[0].name + ": the upgrade and its rollback failed", Text: "The host could not go back to " + current + ": /opt/muster is mounted read-only. It needs manual repair.",
			RolloutID: cancelledWave.id, AgentID: p.hosts[0].id, Hostname: p.hosts[0].name, OpenedAt: at.Add(2 * time.Minute), Count: 2, Acked: decided("ann", at.Add(30*time.Minute), "OPS-881"),
		},
		{
			ID: "upgrade_stalled:" + p.waves[1].id + ":" + p.hosts[1].id, Category: fleet.IncidentStalled, Severity: "warning", State: fleet.IncidentResolved,
			Title: p.hosts[1].name + " runs " + current + ", and does not become healthy", Text: "Component collector was DEGRADED for 20 minutes.",
			RolloutID: p.waves[1].id, AgentID: p.hosts[1].id, Hostname: p.hosts[1].name, OpenedAt: p.waves[1].at(3), Count: 1, Resolved: decided("ann", p.waves[1].at(4), "the output was full"),
		},
	} {
		if err := s.Incidents().Create(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// seedWebhooks writes a webhook whose receiver is gone, with what it did not get. It is for a
// rare event only, so that a running fleet does not try to reach it.
func seedWebhooks(ctx context.Context, s store.Store, p *past) error {
	hook := fleet.Webhook{
		ID: "hook-chat", Name: "chat", URL: "https://chat.example.com/hooks/muster", Secret: "whsec_c2ltZmxlZXQgc2ltZmxlZXQgc2ltZmxlZXQ=", Events: []string{"rollout.failed"},
		CreatedAt: p.now.Add(-100 * time.Hour), CreatedBy: "ben",
	}
	pager := hook
	pager.ID, pager.Name, pager.URL, pager.Events, pager.Disabled = "hook-pager", "pager (off)", "https://pager.example.com/v2/enqueue", []string{"incident.changed"}, true
	for _, w := range []fleet.Webhook{hook, pager} {
		if err := s.Webhooks().Create(ctx, w); err != nil {
			return err
		}
	}
	for i, w := range p.waves[2:] {
		letter := fleet.DeadLetter{
			ID: fmt.Sprintf("%s:%d", hook.ID, i+1), WebhookID: hook.ID, Type: "rollout.failed", Body: fmt.Appendf(nil, `{"type":"rollout.failed","subject":%q,"name":%q}`, w.id, w.name),
			Error: "the receiver answered 410 Gone", Attempts: 8, At: w.ended(),
		}
		if err := s.DeadLetters().Create(ctx, letter); err != nil {
			return err
		}
	}
	return nil
}
