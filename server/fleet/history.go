package fleet

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// HistoryRecord is something that happened to an agent or to one of its components.
type HistoryRecord struct {
	ID      string `json:"id"`
	AgentID string `json:"agent_id"`
	// At is when it began, and EndedAt when it was over; nil: it took no time.
	At      time.Time   `json:"@timestamp"`
	EndedAt *time.Time  `json:"ended_at,omitempty"`
	Kind    HistoryKind `json:"kind"`
	// Component is the component's name, empty for the agent itself.
	Component string `json:"component,omitempty"`
	ActionID  string `json:"action_id,omitempty"`
	// By is who ordered it, empty if that was the agent or its host.
	By      string      `json:"by,omitempty"`
	Rollout *RolloutRef `json:"rollout,omitempty"`
	From    string      `json:"from,omitempty"`
	To      string      `json:"to,omitempty"`
	// State is how an upgrade ended; ProgressNone if it was cancelled or replaced.
	State  ProgressState `json:"state,omitempty"`
	Phases []Phase       `json:"phases,omitempty"`
	// Code and Reason are why it ended badly.
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Why is the reason that the operator gave.
	Why string `json:"why,omitempty"`
	// Text is what happened, as a sentence, of records without a state.
	Text string `json:"text,omitempty"`
}

// HistoryKind is what a HistoryRecord is about. Append only.
type HistoryKind string

const (
	HistoryEnrolled    HistoryKind = "enrolled"
	HistoryUpgrade     HistoryKind = "upgrade"
	HistoryRollback    HistoryKind = "rollback"
	HistoryStaged      HistoryKind = "staged"
	HistorySource      HistoryKind = "source"
	HistoryPolicy      HistoryKind = "policy"
	HistoryUnenrolled  HistoryKind = "unenrolled"
	HistoryDiagnostics HistoryKind = "diagnostics"
)

// Ended returns when it was over.
func (r *HistoryRecord) Ended() time.Time {
	if r.EndedAt != nil {
		return *r.EndedAt
	}
	return r.At
}

// End is how an upgrade ended, and why.
type End struct {
	State ProgressState
	Code  string
}

// historyID returns the id of the record of an upgrade, of which an agent or a component has one
// for each action. Those that were begun on a host have no action and differ by their time.
func historyID(agentID, component, actionID string, began time.Time) string {
	if actionID == "" {
		actionID = "host-" + strconv.FormatInt(began.UnixMilli(), 10)
	}
	return agentID + "/" + component + "/" + actionID
}

// Texts of records of upgrades that have no state.
const (
	textCancelled = "The upgrade was cancelled before it was done."
	textReplaced  = "Another order replaced the upgrade before it was done."
)

// PolicyRecord returns the record that the agent applies the revision of its policy that it has
// reported.
func (a *Agent) PolicyRecord(now time.Time) HistoryRecord {
	has := a.Policy()
	return HistoryRecord{
		ID: historyID(a.ID, "", "policy-"+has.ID+"-"+strconv.FormatInt(has.Revision, 10), now), AgentID: a.ID, At: now, Kind: HistoryPolicy,
		Text: "It applied revision " + strconv.FormatInt(has.Revision, 10) + " of its policy " + has.ID + ".",
	}
}

// StagedRecord returns the record that the host's staged versions have changed; was is what it
// had before.
func (a *Agent) StagedRecord(was []string, now time.Time) HistoryRecord {
	var texts []string
	for _, v := range a.StagedVersions {
		if !slices.Contains(was, v) {
			texts = append(texts, "staged "+v)
		}
	}
	for _, v := range was {
		if !slices.Contains(a.StagedVersions, v) {
			texts = append(texts, "removed the staged "+v)
		}
	}
	return HistoryRecord{
		ID: historyID(a.ID, "", "staged-"+strconv.FormatInt(now.UnixMilli(), 10), now), AgentID: a.ID, At: now, Kind: HistoryStaged,
		Text: "The host " + List(texts) + ".",
	}
}

// NewlyFailedSources returns the failed sources that the host reports and did not report before. A
// source counts once for each package, whatever it says the next time.
func (a *Agent) NewlyFailedSources(was []agentapi.FailedSource) []agentapi.FailedSource {
	return slices.DeleteFunc(slices.Clone(a.Kept.FailedSources), func(f agentapi.FailedSource) bool {
		return slices.ContainsFunc(was, func(old agentapi.FailedSource) bool { return old.Package == f.Package })
	})
}

// SourceRecord returns the record that sources of packages have failed on the host. Without it nobody
// sees that a site whose mirror is broken loads over its WAN.
func (a *Agent) SourceRecord(failed []agentapi.FailedSource, now time.Time) HistoryRecord {
	var texts []string
	for _, f := range failed {
		texts = append(texts, f.Package+": "+f.Reason)
	}
	return HistoryRecord{
		ID: historyID(a.ID, "", "source-"+strconv.FormatInt(now.UnixMilli(), 10), now), AgentID: a.ID, At: now, Kind: HistorySource,
		Text: CutText("A source of packages has failed, and the host has asked the next one: "+strings.Join(texts, "; "), MaxEventText),
	}
}

// record returns the record of an upgrade that o describes, as far as that has gone.
func (o *UpgradeLog) record(agentID, component, actionID, from, to string, s ProgressState, d *agentapi.UpgradeDetails) HistoryRecord {
	r := HistoryRecord{
		AgentID: agentID, EndedAt: o.UpgradeEndedAt, Kind: HistoryUpgrade, Component: component, ActionID: actionID,
		By: o.UpgradeBy, Rollout: o.UpgradeRollout, From: from, To: to, State: s, Phases: o.UpgradePhases, Why: o.UpgradeWhy,
	}
	switch {
	case len(o.UpgradePhases) > 0:
		r.At = o.UpgradePhases[0].At
	case o.UpgradeEndedAt != nil:
		r.At = *o.UpgradeEndedAt
	}
	r.ID = historyID(agentID, component, actionID, r.At)
	if s == ProgressNone {
		r.Text = cmp.Or(o.UpgradeEndText, textCancelled)
	}
	if d != nil && (s == ProgressFailed || s == ProgressRolledBack) {
		r.Code, r.Reason = failureCode(d), cause(d)
	}
	return r
}

// LastUpgrades returns the records of the last upgrade of the agent and of each component, also
// of those that are under way, by component.
func (a *Agent) LastUpgrades(now time.Time) []HistoryRecord {
	var out []HistoryRecord
	if a.UpgradeActionID != "" || a.UpgradeTo != "" {
		out = append(out, a.lastRecord(a.ID, "", now))
	}
	for _, name := range slices.Sorted(maps.Keys(a.ComponentUpgrades)) {
		out = append(out, a.upgradeOf(name).lastRecord(a.ID, name, now))
	}
	return out
}

// lastRecord returns the record of the upgrade, of an agent or of its component.
func (u *Upgrade) lastRecord(agentID, component string, now time.Time) HistoryRecord {
	r := u.record(agentID, component, u.UpgradeActionID, u.UpgradeFrom, u.UpgradeTo, u.state(now), u.UpgradeDetails)
	if u.UpgradeRollback {
		r.Kind = HistoryRollback
	}
	return r
}

// UnderWay reports whether the upgrade of the record has not ended, as far as its document
// knows.
func (r *HistoryRecord) UnderWay() bool {
	return r.EndedAt == nil && r.State != ProgressNone && !r.State.Ended()
}

// EndedUpgrades returns the records of the upgrades that have ended, of the agent and of its
// components, since the document was read; all that have ended if it was not read. An upgrade
// that continues after its end was recorded replaces that record by one without an end.
// Stores write them with the document, so that no way to end an upgrade leaves its record out.
func (a *Agent) EndedUpgrades() []HistoryRecord {
	if a.read != nil && !a.upgradesDiffer() {
		return nil
	}
	now := time.Time{} // only the start of an upgrade under way depends on it
	before := map[string]HistoryRecord{}
	if a.read != nil {
		for _, r := range a.read.LastUpgrades(now) {
			before[r.ID] = r
		}
		if r, ok := a.read.undone(); ok {
			before[r.ID] = r
		}
	}
	var out []HistoryRecord
	for _, r := range a.LastUpgrades(now) {
		old, known := before[r.ID]
		switch {
		case r.EndedAt != nil && !(known && reflect.DeepEqual(old, r)):
			out = append(out, r)
		case r.EndedAt == nil && known && old.EndedAt != nil && len(r.Phases) > 0:
			// The end that is recorded was taken back, and nothing may count it.
			r.State = r.Phases[len(r.Phases)-1].State
			out = append(out, r)
		}
		delete(before, r.ID)
	}
	undone, ok := a.undone()
	if old, known := before[undone.ID]; ok && !(known && reflect.DeepEqual(old, undone)) {
		out = append(out, undone)
	}
	delete(before, undone.ID)
	// What was under way, and is no longer the last, was replaced by another order.
	for _, id := range slices.Sorted(maps.Keys(before)) {
		r := before[id]
		if !r.UnderWay() || len(r.Phases) == 0 || a.Undoes.is(r.ActionID, r.To) && r.Component == "" {
			continue
		}
		r.EndedAt, r.State, r.Text = a.replacedAt(r.Component), ProgressNone, textReplaced
		out = append(out, r)
	}
	return out
}

// replacedAt returns when the last upgrade of the agent or of a component was ordered.
func (a *Agent) replacedAt(component string) *time.Time {
	phases := a.upgradeOf(component).UpgradePhases
	if len(phases) == 0 {
		return &a.EnrolledAt // enrolled again
	}
	return &phases[0].At
}

// undone returns the record of the upgrade that the agent's rollback has undone; ok is false
// if there is none.
func (a *Agent) undone() (r HistoryRecord, ok bool) {
	u := a.Undoes
	if u == nil || a.UpgradedAt == nil {
		return r, false
	}
	r = u.record(a.ID, "", u.ActionID, u.From, u.To, ProgressRolledBack, nil)
	r.EndedAt, r.Code, r.Reason = a.UpgradedAt, agentapi.ReasonManual, cmp.Or(u.Reason, "an operator rolled it back to "+a.UpgradeTo)
	r.Phases = append(slices.Clone(r.Phases), Phase{State: ProgressRolledBack, At: *a.UpgradedAt})
	if u.Rollback {
		r.Kind = HistoryRollback
	}
	return r, true
}

// upgradesDiffer reports whether anything of which records are made differs from what was read.
// Most writes change nothing of it.
func (a *Agent) upgradesDiffer() bool {
	was := a.read
	return a.UpgradeActionID != was.UpgradeActionID || a.UpgradeTo != was.UpgradeTo || a.UpgradeStatus != was.UpgradeStatus ||
		!sameTime(a.UpgradedAt, was.UpgradedAt) || !sameTime(a.UpgradeEndedAt, was.UpgradeEndedAt) || !reflect.DeepEqual(a.UpgradeDetails, was.UpgradeDetails) ||
		!reflect.DeepEqual(a.Undoes, was.Undoes) || !reflect.DeepEqual(a.ComponentUpgrades, was.ComponentUpgrades)
}
