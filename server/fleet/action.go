package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/muster-fleet/muster/server/agentapi"
)

// Action is one thing some agents are asked to do: one document, however many
// agents. It does not change once created, but for CancelledAt.
type Action struct {
	ID   string              `json:"action_id"`
	Seq  int64               `json:"-"` // the store's, growing over all replicas
	Type agentapi.ActionType `json:"type"`
	Data json.RawMessage     `json:"data,omitempty"`
	// Agents it is delivered to.
	Agents []string `json:"agents"`
	// Actioned is how many agents the operator chose, the refused among them.
	Actioned int `json:"actioned"`

	CreatedAt time.Time `json:"@timestamp"`
	CreatedBy string    `json:"user_id"`
	// StartTime is when the first agent begins; nil means at once.
	StartTime *time.Time `json:"start_time,omitempty"`
	// RolloutSeconds spreads the starts: agent i of n begins i/n of it later.
	RolloutSeconds int        `json:"rollout_duration_seconds,omitempty"`
	Expiration     *time.Time `json:"expiration,omitempty"`
	CancelledAt    *time.Time `json:"cancelled_at,omitempty"`
	Revision       int64      `json:"-"`
}

// DefaultExpiration is how long an UPGRADE waits for an agent that is away:
// Fleet's month.
const DefaultExpiration = 30 * 24 * time.Hour

// ForAgent is the action as it goes over the wire to one agent. Its start is the
// same whenever it is delivered, so an agent that was away keeps its place.
func (a Action) ForAgent(agentID string) agentapi.Action {
	if a.Spread() {
		a = a.For(slices.Index(a.Agents, agentID))
	}
	return agentapi.Action{
		ID: a.ID, AgentID: agentID, Type: a.Type, CreatedAt: a.CreatedAt,
		Data: a.Data, StartTime: a.StartTime, Expiration: a.Expiration,
	}
}

// Spread says that agents begin one after the other.
func (a Action) Spread() bool { return a.StartTime != nil && a.RolloutSeconds > 0 }

// share is i/n of d. Three days times 100,000 agents would overflow, so the
// division comes first and the remainder is added.
func share(d time.Duration, i, n int) time.Duration {
	whole, part, parts := int64(d), int64(i), int64(n)
	return time.Duration(whole/parts*part + whole%parts*part/parts)
}

// For is the action as it is for one agent: Agents has that agent or nobody, and it
// starts when the agent begins. place is that of the agent in Agents, below 0 if it
// is not there. It shares nothing with a, and costs the same for 100,000 agents.
func (a Action) For(place int) Action {
	all := a.Agents
	a.Agents = nil
	if place >= 0 {
		a.Agents = []string{all[place]}
		if a.Spread() {
			start := a.StartTime.Add(share(time.Duration(a.RolloutSeconds)*time.Second, place, len(all)))
			a.StartTime, a.RolloutSeconds = &start, 0
		}
	}
	return a.Clone()
}

// Clone shares nothing with a.
func (a Action) Clone() Action {
	a.Data, a.Agents = slices.Clone(a.Data), slices.Clone(a.Agents)
	for _, t := range []**time.Time{&a.StartTime, &a.Expiration, &a.CancelledAt} {
		if *t != nil {
			*t = new(**t)
		}
	}
	return a
}

// Upgrade returns the data of an UPGRADE, zero for other types.
func (a Action) Upgrade() agentapi.UpgradeData {
	var d agentapi.UpgradeData
	if a.Type == agentapi.ActionUpgrade {
		_ = json.Unmarshal(a.Data, &d) // written by us
	}
	return d
}

// Cancels is the action that a CANCEL is about, empty for other types.
func (a Action) Cancels() string {
	var d agentapi.CancelData
	if a.Type == agentapi.ActionCancel {
		_ = json.Unmarshal(a.Data, &d) // written by us
	}
	return d.TargetID
}

// Expired says whether the action is no longer delivered.
func (a Action) Expired(now time.Time) bool { return a.Expiration != nil && !now.Before(*a.Expiration) }

// Result is what became of an action on one agent. Its id is action_id:agent_id.
type Result struct {
	ActionID  string    `json:"action_id"`
	AgentID   string    `json:"agent_id"`
	Hostname  string    `json:"hostname"`
	Message   string    `json:"message,omitempty"`
	Error     string    `json:"error,omitempty"` // empty: it succeeded
	Timestamp time.Time `json:"@timestamp"`
	Revision  int64     `json:"-"`
}

// ResultID is the id of a result document: a second acknowledgement of the same
// action by the same agent meets the first.
func ResultID(actionID, agentID string) string { return actionID + ":" + agentID }

// Supersedes says whether r replaces an earlier result. An error after success
// does: a rolled back upgrade was acknowledged as soon as the new version ran.
// So does what the host says of an offer that was taken back: it may have gone
// on all the same. A withdrawal itself replaces nothing. Nothing else does, so a
// repeated acknowledgement changes nothing.
func (r Result) Supersedes(earlier Result) bool {
	switch {
	case r.Withdrawn():
		return false
	case earlier.Withdrawn():
		return !wasCancelled(r.Error) // which is what it was asked to say
	}
	return earlier.Error == "" && r.Error != ""
}

// withdrawn begins the error of a result that only says that an offer was taken
// back: whether the host has begun is for the host to say.
const withdrawn = "withdrawn: "

// Withdrawal is the result of an agent whose offer was taken back.
func Withdrawal(actionID string, a *Agent, why string, now time.Time) Result {
	return Result{ActionID: actionID, AgentID: a.ID, Hostname: a.Hostname(), Error: withdrawn + why, Timestamp: now}
}

// Withdrawn says whether it is such a result.
func (r Result) Withdrawn() bool { return strings.HasPrefix(r.Error, withdrawn) }

// Event tells of the result.
func (r Result) Event() Event {
	e, d := r.EventData()
	data, err := jsonv1.Marshal(d) // as a store that encodes both at once
	if err != nil {
		panic(err) // three texts
	}
	e.Data = data
	return e
}

// EventData is Event with its data apart, for a store that encodes both at once.
func (r Result) EventData() (Event, ResultData) {
	return Event{At: r.Timestamp, Type: EventActionResult, Subject: r.ActionID}, ResultData{r.AgentID, r.Error, r.Message}
}

// ResultData is the data of the event that tells of a result.
type ResultData struct {
	AgentID string `json:"agent_id"`
	Error   string `json:"error"`
	Message string `json:"message"`
}

// ResultEvents tell of those results that were a change.
func ResultEvents(results []Result, changed []bool) []Event {
	var events []Event
	for i, r := range results {
		if changed[i] {
			events = append(events, r.Event())
		}
	}
	return events
}

// ResultCounts are the results of one action.
type ResultCounts struct {
	Acked  int // without error
	Failed int
	Last   time.Time
}

// ActionState is how far an action has come.
type ActionState string

const (
	ActionComplete      ActionState = "COMPLETE"
	ActionExpired       ActionState = "EXPIRED"
	ActionCancelled     ActionState = "CANCELLED"
	ActionFailed        ActionState = "FAILED"
	ActionInProgress    ActionState = "IN_PROGRESS"
	ActionRolloutPassed ActionState = "ROLLOUT_PASSED"
)

// StateAt follows Kibana's rules, but that an expired UPGRADE says so: with an
// expiration on each, nobody is helped by IN_PROGRESS for ever.
func (a Action) StateAt(counts ResultCounts, now time.Time) ActionState {
	switch {
	case a.CancelledAt != nil:
		return ActionCancelled
	case counts.Acked+counts.Failed >= a.Actioned && counts.Failed > 0:
		return ActionFailed
	case counts.Acked+counts.Failed >= a.Actioned:
		return ActionComplete
	case a.Expired(now):
		return ActionExpired
	case a.StartTime != nil && a.RolloutSeconds > 0 && now.After(a.StartTime.Add(time.Duration(a.RolloutSeconds)*time.Second)):
		return ActionRolloutPassed
	}
	return ActionInProgress
}

// CheckCancel says whether the action can be cancelled at now.
func (a Action) CheckCancel(counts ResultCounts, now time.Time) error {
	if a.Type != agentapi.ActionUpgrade {
		return Errorf(Invalid, "action %s is of type %s: only an UPGRADE can be cancelled", a.ID, a.Type)
	}
	switch state := a.StateAt(counts, now); state {
	case ActionInProgress, ActionRolloutPassed, ActionCancelled:
		return nil // cancelling twice is no error
	default:
		return Errorf(Conflict, "action %s is over (%s): there is nothing left to cancel", a.ID, state)
	}
}

// CancelID is the id of the CANCEL that belongs to an action, so that cancelling
// twice makes one document.
func CancelID(actionID string) string { return fmt.Sprintf("cancel-%s", actionID) }
