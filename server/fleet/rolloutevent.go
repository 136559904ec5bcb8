package fleet

import (
	"cmp"
	"encoding/json"
	"time"
)

// RolloutEventData is the data of an event about a rollout. Notifications, metrics and
// the page of a rollout use it without reading the document.
type RolloutEventData struct {
	Name string `json:"name"`
	// Component is empty for a rollout of agents.
	Component string       `json:"component,omitempty"`
	Version   string       `json:"version,omitempty"` // empty for a rollback: each target has its own
	Strategy  StrategyKind `json:"strategy"`
	State     RolloutState `json:"state"`
	// Seconds since the start, up to the end if the rollout has ended; 0 for a draft.
	Seconds float64 `json:"seconds"`
	Counts  Counts  `json:"counts"`
	// Batch is the latest batch that has begun, counted from 0; -1 before the first.
	Batch   int `json:"batch"`
	Batches int `json:"batches"`
	// Stop is why it is paused.
	Stop         *Stop  `json:"stop,omitempty"`
	Waiting      []Wait `json:"waiting,omitempty"`
	RollbackOf   string `json:"rollback_of,omitempty"`
	RolledBackBy string `json:"rolled_back_by,omitempty"`
	// Fleet is the declared fleet that the rollout carries out; empty: none.
	Fleet string `json:"fleet,omitempty"`
}

// TargetEventData is the data of an event about one agent of a rollout.
type TargetEventData struct {
	RolloutID   string `json:"rollout_id"`
	RolloutName string `json:"rollout_name"`
	Component   string `json:"component,omitempty"`
	Hostname    string `json:"hostname"`
	From        string `json:"from"`
	To          string `json:"to"`
	Batch       int    `json:"batch"`
	// Policy and Site are those of the target: they are labels of metrics.
	Policy string      `json:"policy,omitempty"`
	Site   string      `json:"site,omitempty"`
	State  TargetState `json:"state"`
	// Phase is what happens on the host in this state: see TargetPhase.
	Phase string `json:"phase"`
	// Reported is the phase in the agent's own terms, such as UPG_DOWNLOADING.
	Reported string     `json:"reported,omitempty"`
	Code     ReasonCode `json:"code,omitempty"`
	Error    string     `json:"error,omitempty"`
	// Seconds since the offer of this attempt, up to its end if it has ended; 0 before
	// an offer.
	Seconds float64 `json:"seconds"`
	Attempt int     `json:"attempt"`
}

// RolloutEvent returns an event with the state of a rollout. The caller sets Actor for
// an operator's command.
func RolloutEvent(typ string, r *Rollout, now time.Time) Event {
	d := RolloutEventData{
		Name: r.Plan.Name, Component: r.Plan.Component, Version: r.Plan.Version, Strategy: r.Plan.Strategy.Kind, State: r.State, Counts: r.Counts,
		Batch: -1, Batches: len(r.Batches), Stop: r.Stop, Waiting: r.Waiting, RollbackOf: r.RollbackOf, RolledBackBy: r.RolledBackBy, Fleet: r.Fleet,
		Seconds: secondsBetween(r.StartedAt, r.EndedAt, now),
	}
	for i := range r.Batches {
		if r.Batches[i].StartedAt != nil {
			d.Batch = r.Batches[i].Index
		}
	}
	return Event{At: now, Type: typ, Subject: r.ID, Data: eventData(d)}
}

// TargetEvent returns an event with the state of one agent of a rollout. Its subject is
// the agent.
func TargetEvent(typ string, r *Rollout, t *Target, now time.Time) Event {
	return Event{At: now, Type: typ, Subject: t.AgentID, Data: eventData(TargetEventData{
		RolloutID: r.ID, RolloutName: r.Plan.Name, Component: r.Plan.Component, Hostname: t.Hostname, From: t.From, To: t.To, Batch: t.Batch,
		Policy: t.Policy, Site: t.Site, State: t.State, Phase: TargetPhase(t), Reported: t.Phase, Code: t.Code, Error: t.Error,
		Seconds: secondsBetween(t.OfferedAt, t.EndedAt, now), Attempt: t.Attempts,
	})}
}

// TargetPhase returns what happens on the host of a target: one of TargetPhases, or nothing. It
// is what the host reports, and until it reports that, what the state says.
func TargetPhase(t *Target) string {
	switch t.State {
	case TargetOffered:
		return cmp.Or(t.HostPhase, preparing)
	case TargetUpgrading:
		return cmp.Or(t.HostPhase, mutating)
	case TargetVerifying:
		return verifying
	}
	return ""
}

// TargetPhases are the values of TargetPhase in their order. They are the same for every kind of
// agent.
var TargetPhases = []string{preparing, stopped, mutating, starting, verifying}

// Values of Progress.Phase and TargetPhase: those of agentapi, in small letters.
const (
	preparing = "preparing"
	stopped   = "stopped"
	mutating  = "mutating"
	starting  = "starting"
	verifying = "verifying"
)

// secondsBetween returns 0 without a beginning, and never less than 0: a target that is
// offered again keeps the end of its previous attempt for a moment.
func secondsBetween(from, to *time.Time, now time.Time) float64 {
	if from == nil {
		return 0
	}
	if to == nil || to.Before(*from) {
		to = &now
	}
	return max(to.Sub(*from), 0).Seconds()
}

func eventData(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types always encode
	}
	return b
}
