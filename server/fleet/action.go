package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Action is what agents receive of an order: one document, however many agents. It does
// not change once created, except for CancelledAt.
type Action struct {
	ID   string              `json:"action_id"`
	Seq  int64               `json:"-"` // assigned by the store, increasing across servers
	Type agentapi.ActionType `json:"type"`
	Data json.RawMessage     `json:"data,omitempty"`
	// Sealed is the data if it has secrets: encrypted, and Data is empty.
	Sealed []byte `json:"sealed,omitempty"`
	// Agents are the agents it is delivered to.
	Agents []string `json:"agents"`
	// Actioned is how many agents the operator selected, including those that were
	// refused.
	Actioned int `json:"actioned"`

	CreatedAt time.Time `json:"@timestamp"`
	CreatedBy string    `json:"user_id"`
	// StartTime is when the first agent begins; nil means at once.
	StartTime *time.Time `json:"start_time,omitempty"`
	// RolloutSeconds spreads the starts: agent i of n begins i/n of it after StartTime.
	RolloutSeconds int        `json:"rollout_duration_seconds,omitempty"`
	Expiration     *time.Time `json:"expiration,omitempty"`
	CancelledAt    *time.Time `json:"cancelled_at,omitempty"`
	// Automatic means that it belongs to a rollout which the server has created.
	Automatic bool `json:"is_automatic,omitempty"`
	// Rollout is the rollout that it belongs to, nil for none.
	Rollout *RolloutRef `json:"rollout,omitempty"`
	// OverrideFreeze: it was ordered in spite of freezes, so a new one does not cancel it.
	OverrideFreeze bool `json:"override_freeze,omitempty"`
	// InputType and Timeout are those of an INPUT_ACTION.
	InputType string           `json:"input_type,omitempty"`
	Timeout   int64            `json:"timeout,omitempty"`
	Signed    *agentapi.Signed `json:"signed,omitempty"`
	Revision  int64            `json:"-"`
}

// DefaultExpiration is how long an UPGRADE waits for an agent that is away: a month, as
// in Fleet.
const DefaultExpiration = 30 * 24 * time.Hour

// MaxStartDelay is how far ahead an upgrade can be scheduled. Later times are probably
// mistakes.
const MaxStartDelay = 365 * 24 * time.Hour

// ForAgent returns the action as it is sent to one agent. Its start depends only on the
// agent's index in Agents, so an agent that was away keeps its start.
func (a Action) ForAgent(agentID string) agentapi.Action {
	if a.Spread() {
		a = a.For(slices.Index(a.Agents, agentID))
	}
	return agentapi.Action{
		ID: a.ID, AgentID: agentID, Type: a.Type, CreatedAt: a.CreatedAt, InputType: a.InputType,
		Data: a.Data, StartTime: a.StartTime, Expiration: a.Expiration, Timeout: a.Timeout, Signed: a.Signed,
	}
}

// Spread reports whether the agents begin one after the other.
func (a Action) Spread() bool { return a.StartTime != nil && a.RolloutSeconds > 0 }

// share returns i/n of d. Three days times 100,000 agents would overflow, so the
// division comes first and the remainder is added.
func share(d time.Duration, i, n int) time.Duration {
	whole, part, parts := int64(d), int64(i), int64(n)
	return time.Duration(whole/parts*part + whole%parts*part/parts)
}

// For returns the action of the agent at index in Agents: Agents holds that agent
// alone, and StartTime is when it begins. Below 0 the agent is not in Agents, and the
// copy has none. The copy shares nothing with a, and costs the same for 100,000 agents.
func (a Action) For(index int) Action {
	all := a.Agents
	a.Agents = nil
	if index >= 0 {
		a.Agents = []string{all[index]}
		if a.Spread() {
			start := a.StartTime.Add(share(time.Duration(a.RolloutSeconds)*time.Second, index, len(all)))
			a.StartTime, a.RolloutSeconds = &start, 0
		}
	}
	return a.Clone()
}

// Clone returns a copy that shares nothing with a.
func (a Action) Clone() Action {
	a.Data, a.Sealed, a.Agents = slices.Clone(a.Data), slices.Clone(a.Sealed), slices.Clone(a.Agents)
	for _, t := range []**time.Time{&a.StartTime, &a.Expiration, &a.CancelledAt} {
		if *t != nil {
			*t = new(**t)
		}
	}
	if a.Signed != nil {
		a.Signed = new(*a.Signed)
	}
	if a.Rollout != nil {
		a.Rollout = new(*a.Rollout)
	}
	return a
}

// Owner is whose secrets Sealed has: they can be opened for no other action.
func (a Action) Owner() string { return "action " + a.ID }

// Upgrade returns the data of an UPGRADE or a STAGE, zero for other types.
func (a Action) Upgrade() agentapi.UpgradeData {
	var d agentapi.UpgradeData
	if a.Type == agentapi.ActionUpgrade || a.Type == agentapi.ActionStage {
		_ = json.Unmarshal(a.Data, &d) // the server wrote it
	}
	return d
}

// Component returns the name of the component that an UPGRADE upgrades or a STAGE stages, empty
// for those of agents and for other types.
func (a Action) Component() string {
	if d := a.Upgrade(); d.Component != nil {
		return d.Component.Name
	}
	return ""
}

// NewPolicy returns the id of the policy of a POLICY_REASSIGN, empty for other types.
func (a Action) NewPolicy() string {
	var d agentapi.PolicyReassignData
	if a.Type == agentapi.ActionPolicyReassign {
		_ = json.Unmarshal(a.Data, &d) // checked when the action was created
	}
	return d.PolicyID
}

// Cancels returns the id of the action that a CANCEL cancels, empty for other types.
func (a Action) Cancels() string {
	var d agentapi.CancelData
	if a.Type == agentapi.ActionCancel {
		_ = json.Unmarshal(a.Data, &d) // the server wrote it
	}
	return d.TargetID
}

// Expired reports whether the action is no longer delivered.
func (a Action) Expired(now time.Time) bool { return a.Expiration != nil && !now.Before(*a.Expiration) }

// Result is the outcome of an action on one agent. Its id is action_id:agent_id.
type Result struct {
	ActionID  string    `json:"action_id"`
	AgentID   string    `json:"agent_id"`
	Hostname  string    `json:"hostname"`
	Message   string    `json:"message,omitempty"`
	Error     string    `json:"error,omitempty"` // empty: it succeeded
	Timestamp time.Time `json:"@timestamp"`
	// Outcome means that it follows from the agent's document, and not from an acknowledgement
	// alone. Presumed means that the server has given the upgrade up without a report of its end.
	Outcome  bool  `json:"outcome,omitempty"`
	Presumed bool  `json:"presumed,omitempty"`
	Revision int64 `json:"-"`
}

// ResultID returns the id of a result document. It is the same for every
// acknowledgement of an action by an agent, so a second one finds the first.
func ResultID(actionID, agentID string) string { return actionID + ":" + agentID }

// Supersedes reports whether r replaces an earlier result. An outcome does, since the document
// has what the host said last: an upgrade that was given up may be done after all. An
// acknowledgement replaces no outcome but one that is presumed. Among acknowledgements an error
// replaces a success: Fleet's agents acknowledge on receipt. A host's result replaces a
// withdrawal, since the host may have proceeded anyway. A withdrawal replaces nothing, and a
// repeated acknowledgement changes nothing.
func (r Result) Supersedes(earlier Result) bool {
	switch {
	case r.Withdrawn():
		return false
	case earlier.Withdrawn():
		return !wasCancelled(r.Error) // the cancellation that the withdrawal asked for
	case r.Outcome && earlier.Error == "" && r.Error == "":
		return false // the same, and a fleet's acknowledgements are not written twice
	case r.Outcome:
		return !earlier.Outcome || earlier.Error != r.Error || earlier.Presumed != r.Presumed
	case earlier.Outcome:
		return earlier.Presumed
	}
	return earlier.Error == "" && r.Error != ""
}

// withdrawn begins the error of a result that only records that an offer was taken
// back. Whether the host has begun is for the host to report.
const withdrawn = "withdrawn: "

// Withdrawal returns the result for an agent whose offer was withdrawn.
func Withdrawal(actionID string, a *Agent, why string, now time.Time) Result {
	return Result{ActionID: actionID, AgentID: a.ID, Hostname: a.Hostname(), Error: withdrawn + why, Timestamp: now}
}

// Withdrawn reports whether r is a withdrawal.
func (r Result) Withdrawn() bool { return strings.HasPrefix(r.Error, withdrawn) }

// WithdrawnWhy returns why a withdrawal was made.
func (r Result) WithdrawnWhy() string { return strings.TrimPrefix(r.Error, withdrawn) }

// Event returns the event that announces the result.
func (r Result) Event() Event {
	e, d := r.EventData()
	data, err := jsonv1.Marshal(d) // the same bytes as in stores that use EventData
	if err != nil {
		panic(err) // three strings always encode
	}
	e.Data = data
	return e
}

// EventData is Event with its data not yet encoded, for a store that encodes both at
// once.
func (r Result) EventData() (Event, ResultData) {
	return Event{At: r.Timestamp, Type: EventActionResult, Subject: r.ActionID}, ResultData{r.AgentID, CutText(r.Error, MaxEventText/2), CutText(r.Message, MaxEventText/2)}
}

// ResultData is the data of the event that announces a result.
type ResultData struct {
	AgentID string `json:"agent_id"`
	Error   string `json:"error"`
	Message string `json:"message"`
}

// ResultEvents returns the events of those results that changed something.
func ResultEvents(results []Result, changed []bool) []Event {
	var events []Event
	for i, r := range results {
		if changed[i] {
			events = append(events, r.Event())
		}
	}
	return events
}

// ResultCounts summarizes the results of one action.
type ResultCounts struct {
	Acked  int // without error
	Failed int
	Last   time.Time
}

// Outcome returns the state of an action by what became of its agents: it is over when no
// upgrade is under way or watched. State itself keeps Kibana's meaning, which counts
// acknowledgements.
func (s ActionState) Outcome(unended int) ActionState {
	if (s == ActionComplete || s == ActionFailed) && unended > 0 {
		return ActionInProgress
	}
	return s
}

// ActionState is the progress of an action, in Kibana's terms.
type ActionState string

const (
	ActionComplete      ActionState = "COMPLETE"
	ActionExpired       ActionState = "EXPIRED"
	ActionCancelled     ActionState = "CANCELLED"
	ActionFailed        ActionState = "FAILED"
	ActionInProgress    ActionState = "IN_PROGRESS"
	ActionRolloutPassed ActionState = "ROLLOUT_PASSED"
)

// StateAt follows Kibana's rules, except that an expired UPGRADE is EXPIRED: every
// UPGRADE here has an expiration, and IN_PROGRESS for ever would help nobody.
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

// CheckCancelType returns an error if actions of its type cannot be cancelled.
func (a Action) CheckCancelType() error {
	if a.Type != agentapi.ActionUpgrade && a.Type != agentapi.ActionStage {
		return Errorf(Invalid, "action %s is of type %s: only an UPGRADE or a STAGE can be cancelled", a.ID, a.Type)
	}
	return nil
}

// CheckCancel returns an error if the action cannot be cancelled at now. open is on how many agents
// an upgrade may still be stopped, whatever they have acknowledged: some acknowledge it before they
// carry it out.
func (a Action) CheckCancel(counts ResultCounts, open int, now time.Time) error {
	if err := a.CheckCancelType(); err != nil {
		return err
	}
	switch state := a.StateAt(counts, now).Outcome(open); state {
	case ActionInProgress, ActionRolloutPassed, ActionCancelled:
		return nil // cancelling twice is no error
	default:
		return Errorf(Conflict, "action %s is over (%s): there is nothing left to cancel", a.ID, state)
	}
}

// Commands returns whether the action can be cancelled, by the check that refuses it.
func (a Action) Commands(counts ResultCounts, open int, now time.Time) []Command {
	c := Command{Name: "cancel", Danger: true}
	switch err := a.CheckCancel(counts, open, now); {
	case err != nil:
		c.Reason = Sentence(strings.Replace(err.Error(), "action "+a.ID, "it", 1))
	case a.CancelledAt != nil:
		c.Reason = "It was cancelled."
	default:
		c.Allowed = true
	}
	return []Command{c}
}

// CancelID returns the id of the CANCEL of an action. It is derived, so that cancelling
// twice creates one document.
func CancelID(actionID string) string { return fmt.Sprintf("cancel-%s", actionID) }
