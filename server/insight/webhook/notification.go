package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/event"
)

// Ping is the type of the notification that Test sends.
const Ping = "ping"

// usual are the event types of a webhook that names none. rollout.progress comes
// every second of a rollout, so a webhook has to ask for it.
var usual = []string{
	fleet.EventRolloutCreated, fleet.EventRolloutStarted, fleet.EventRolloutPaused, fleet.EventRolloutResumed,
	fleet.EventRolloutCompleted, fleet.EventRolloutFailed, fleet.EventRolloutCancelled,
	fleet.EventRollbackStarted, fleet.EventRollbackDone, fleet.EventIncident,
	fleet.EventGroupCreated, fleet.EventGroupStarted, fleet.EventGroupPaused, fleet.EventGroupResumed, fleet.EventGroupCompleted,
	fleet.EventGroupPartial, fleet.EventGroupFailed, fleet.EventGroupCancelled, fleet.EventGroupRollbackStarted, fleet.EventGroupRolledBack,
}

// Types are the event types that a webhook can subscribe to.
func Types() []string {
	return append(slices.Clone(usual), fleet.EventRolloutProgress, fleet.EventGroupProgress)
}

func wants(w *fleet.Webhook, typ string) bool {
	if len(w.Events) > 0 {
		return slices.Contains(w.Events, typ)
	}
	return slices.Contains(usual, typ)
}

// Notification is the body of a delivery.
type Notification struct {
	ID   string    `json:"id"` // as in the header Webhook-Id
	Type string    `json:"type"`
	At   time.Time `json:"at"`
	// Actor is who caused it; empty for the rollout itself.
	Actor string `json:"actor,omitempty"`
	// Text is a sentence. Chat services that accept a JSON object with a text show it.
	Text    string   `json:"text"`
	Rollout *Rollout `json:"rollout,omitempty"`
	Group   *Group   `json:"group,omitempty"`
	// Incident is incident.Data.
	Incident json.RawMessage `json:"incident,omitempty"`
}

// Rollout is the rollout a notification is about.
type Rollout struct {
	ID string `json:"id"`
	fleet.RolloutEventData
}

// Group is the group of rollouts a notification is about.
type Group struct {
	ID string `json:"id"`
	fleet.GroupEventData
}

func deliveryID(webhookID string, seq int64) string { return fmt.Sprintf("%s:%d", webhookID, seq) }

// notify returns the body of a delivery of an event.
func notify(webhookID string, e fleet.Event) []byte {
	n := Notification{ID: deliveryID(webhookID, e.Seq), Type: e.Type, At: e.At, Actor: e.Actor}
	switch {
	case e.Type == fleet.EventIncident:
		n.Incident = e.Data
		var incident struct {
			Title, State string
			Next         struct{ Command string }
		}
		_ = json.Unmarshal(e.Data, &incident) // without data the sentence is shorter
		n.Text = strings.TrimPrefix(fmt.Sprintf("%s (incident %s)", incident.Title, incident.State), " ")
		if incident.Next.Command != "" && incident.State == string(fleet.IncidentOpen) {
			n.Text += ": see `" + incident.Next.Command + "`"
		}
	case strings.HasPrefix(e.Type, "rollout."):
		n.Rollout = &Rollout{ID: e.Subject}
		_ = json.Unmarshal(e.Data, &n.Rollout.RolloutEventData) // as above
		n.Text = sentence(e.Type, n.Rollout, e.Actor)
	case strings.HasPrefix(e.Type, "group."):
		n.Group = &Group{ID: e.Subject}
		_ = json.Unmarshal(e.Data, &n.Group.GroupEventData) // as above
		n.Text = groupSentence(e.Type, n.Group, e.Actor)
	}
	return event.Data(n)
}

func sentence(typ string, r *Rollout, actor string) string {
	name := r.ID
	if r.Name != "" {
		name = fmt.Sprintf("%q", r.Name)
	}
	_, verb, _ := strings.Cut(typ, ".")
	text := "Rollout " + name + " " + map[string]string{
		fleet.EventRolloutCreated: "was created", fleet.EventRolloutStarted: "has started", fleet.EventRolloutProgress: "goes on",
		fleet.EventRolloutPaused: "is paused", fleet.EventRolloutResumed: "goes on again", fleet.EventRolloutCompleted: "is completed",
		fleet.EventRolloutFailed: "has failed", fleet.EventRolloutCancelled: "was cancelled",
		fleet.EventRollbackStarted: "is being rolled back", fleet.EventRollbackDone: "was rolled back",
	}[typ]
	if strings.HasSuffix(text, " ") {
		text += strings.ReplaceAll(verb, "_", " ")
	}
	if actor != "" {
		text += " (" + actor + ")"
	}
	if r.Stop != nil && typ == fleet.EventRolloutPaused {
		text += ": " + strings.TrimSuffix(r.Stop.Text, ".")
	}
	if c := r.Counts; c.Total > 0 {
		text += fmt.Sprintf(". Of %d agents %d succeeded, %d failed, %d are under way", c.Total, c.Succeeded, c.Bad(), c.InFlight())
	}
	return text + "."
}

func groupSentence(typ string, g *Group, actor string) string {
	name := g.ID
	if g.Name != "" {
		name = fmt.Sprintf("%q", g.Name)
	}
	_, verb, _ := strings.Cut(typ, ".")
	text := "Group " + name + " " + map[string]string{
		fleet.EventGroupCreated: "was created", fleet.EventGroupStarted: "has started", fleet.EventGroupProgress: "goes on",
		fleet.EventGroupPaused: "is paused", fleet.EventGroupResumed: "goes on again", fleet.EventGroupCompleted: "is completed",
		fleet.EventGroupPartial: "has ended with some members completed", fleet.EventGroupFailed: "has failed", fleet.EventGroupCancelled: "was cancelled",
		fleet.EventGroupRollbackStarted: "is being rolled back", fleet.EventGroupRolledBack: "was rolled back",
	}[typ]
	if strings.HasSuffix(text, " ") {
		text += strings.ReplaceAll(verb, "_", " ")
	}
	if actor != "" {
		text += " (" + actor + ")"
	}
	if g.Stop != nil {
		text += ": " + strings.TrimSuffix(g.Stop.Text, ".")
	}
	words := make([]string, len(g.Members))
	for i, m := range g.Members {
		words[i] = strings.TrimSpace(m.Name+" "+m.Version) + " " + strings.ReplaceAll(string(m.State), "_", " ")
	}
	if len(words) > 0 {
		text += ". Members: " + strings.Join(words, ", ")
	}
	return text + "."
}
