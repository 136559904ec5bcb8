package fleet

import (
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// ProgressState is how an upgrade stands, in the words of the API, the UI and the command
// line.
type ProgressState string

const (
	// ProgressNone: there was no upgrade, or the last one was cancelled.
	ProgressNone      ProgressState = ""
	ProgressScheduled ProgressState = "scheduled"
	// ProgressSent: the order waits for the agent.
	ProgressSent ProgressState = "sent"
	// ProgressAccepted: the agent reports that it has the order, and has not begun. An
	// acknowledgement does not change the document, so that those of a whole fleet are cheap.
	ProgressAccepted    ProgressState = "accepted"
	ProgressDownloading ProgressState = "downloading"
	ProgressInstalling  ProgressState = "installing"
	ProgressRestarting  ProgressState = "restarting"
	// ProgressWatching: the new version runs, and the host's watcher has not accepted it.
	ProgressWatching ProgressState = "watching"
	// ProgressCommitted is the only success: the watch is over.
	ProgressCommitted  ProgressState = "committed"
	ProgressRolledBack ProgressState = "rolled_back"
	ProgressFailed     ProgressState = "failed"
	// ProgressWaitingForHost: the upgrade is under way, and its agent is offline.
	ProgressWaitingForHost ProgressState = "waiting_for_host"
)

// ProgressStates lists all states but ProgressNone in the sequence of an upgrade.
var ProgressStates = [...]ProgressState{
	ProgressScheduled, ProgressSent, ProgressAccepted, ProgressDownloading, ProgressInstalling, ProgressRestarting, ProgressWatching,
	ProgressCommitted, ProgressRolledBack, ProgressFailed, ProgressWaitingForHost,
}

// Ended reports whether an upgrade in this state is over.
func (s ProgressState) Ended() bool {
	return s == ProgressCommitted || s == ProgressRolledBack || s == ProgressFailed
}

// Progress is how the last upgrade of an agent or of a component stands, or the one under way.
type Progress struct {
	State   ProgressState
	Version string // that was ordered
	From    string
	// Since is when the state began, nil if that is not known.
	Since *time.Time
	// Percent is that of the download; nil in other states.
	Percent *float64
	// Until is when a scheduled upgrade begins, or until when failed attempts are repeated.
	Until *time.Time
	// Retrying is the error of the last attempt, while the agent will try again.
	Retrying string
	// Code and Reason are why it ended badly.
	Code, Reason string
	// Rollback means that an operator ordered to go back.
	Rollback bool
	By       string
	Rollout  *RolloutRef
	// Phase is what is done on the host, in the words of rollouts and of components: preparing,
	// stopped, mutating, starting or verifying. It is empty if nothing is.
	Phase string
}

// HostPhase returns what is done on a host that reports d, in the words of Progress.Phase; empty if
// that is not known.
func HostPhase(d *agentapi.UpgradeDetails) string {
	if d == nil || d.State.Ended() {
		return ""
	}
	return hostPhase(underWay(time.Time{}, d, time.Time{}), d)
}

// hostPhase returns Progress.Phase of an upgrade in the state s. A component's agent reports it.
// One that is none of ours is ignored, because the phase is a label of metrics too.
func hostPhase(s ProgressState, d *agentapi.UpgradeDetails) string {
	if d != nil && slices.Contains(componentPhases, d.Metadata.Phase) && !s.Ended() && s != ProgressWaitingForHost {
		return strings.ToLower(d.Metadata.Phase)
	}
	switch s {
	case ProgressAccepted, ProgressDownloading:
		return preparing
	case ProgressInstalling:
		return mutating
	case ProgressRestarting:
		return starting
	case ProgressWatching:
		return verifying
	}
	return ""
}

// RolloutRef names the rollout that ordered an upgrade.
type RolloutRef struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Phase is the beginning of a state of an upgrade.
type Phase struct {
	State ProgressState `json:"state"`
	At    time.Time     `json:"at"`
	// Text is the error of an attempt, for example.
	Text string `json:"text,omitempty"`
}

// maxPhases bounds the phases of an upgrade. A smooth one has eight; the rest is room for
// attempts that failed, of which the latest are kept.
const maxPhases = 20

// UpgradeLog is who ordered an upgrade, and what became of it over time.
type UpgradeLog struct {
	// UpgradeBy is who ordered it, empty if that was on the host.
	UpgradeBy      string      `json:"upgrade_by,omitempty"`
	UpgradeRollout *RolloutRef `json:"upgrade_rollout,omitempty"`
	// UpgradeWhy is the reason that the operator gave, shortened.
	UpgradeWhy string `json:"upgrade_why,omitempty"`
	// UpgradeEndedAt is when it was committed, rolled back or cancelled, or failed.
	UpgradeEndedAt *time.Time `json:"upgrade_ended_at,omitempty"`
	// UpgradeEndText is why it stopped without an outcome, as a sentence; empty: it was cancelled.
	UpgradeEndText string `json:"upgrade_end_text,omitempty"`
	// UpgradePhases are its states, oldest first.
	UpgradePhases []Phase `json:"upgrade_phases,omitempty"`
	// UpgradeMoved is when its phase or its percentage last changed; nil since it was ordered. That
	// the agent checks in is no progress.
	UpgradeMoved *time.Time `json:"upgrade_moved_at,omitempty"`
	// UpgradeUnreported is since when the agent has checked in without a report of the upgrade,
	// though it had reported it; nil while it reports it, or has not begun.
	UpgradeUnreported *time.Time `json:"upgrade_unreported_since,omitempty"`
	// UpgradePresumed means that the server has failed the upgrade without a report of its end. A
	// later report shows that it continues.
	UpgradePresumed bool `json:"upgrade_presumed,omitempty"`
	// CancelConfirmedAt is when the host confirmed that it does not carry the order out. Nil after
	// a cancellation: it may carry it out all the same.
	CancelConfirmedAt *time.Time `json:"upgrade_cancel_confirmed_at,omitempty"`
}

// UnreportedGrace is how long an agent may check in without a report of an upgrade that it had
// reported, before the upgrade counts as failed. An agent that has just started may report less
// than it knows. Ten minutes are two long polls, and as long as AckGrace.
const UnreportedGrace = 10 * time.Minute

// reported records that the agent reports the upgrade, and whether that changed anything.
func (o *UpgradeLog) reported() bool {
	was := o.UpgradeUnreported
	o.UpgradeUnreported = nil
	return was != nil
}

// unreported records that the agent checks in without a report of the upgrade. over reports
// whether that has lasted for UnreportedGrace.
func (o *UpgradeLog) unreported(now time.Time) (over, changed bool) {
	if o.UpgradeUnreported == nil {
		o.UpgradeUnreported = &now
		return false, true
	}
	return now.Sub(*o.UpgradeUnreported) >= UnreportedGrace, false
}

// requestedAt returns when the upgrade was ordered; now if that is not known.
func (o *UpgradeLog) requestedAt(now time.Time) time.Time {
	if len(o.UpgradePhases) > 0 {
		return o.UpgradePhases[0].At
	}
	return now
}

// Requester is who ordered an upgrade, and why.
type Requester struct {
	By, Why string
	Rollout *RolloutRef // nil: by none
}

// requestedBy records who ordered an upgrade at now that begins at start.
func (o *UpgradeLog) requestedBy(by Requester, start *time.Time, now time.Time) {
	first := ProgressSent
	if start != nil && start.After(now) {
		first = ProgressScheduled
	}
	o.UpgradeEndText = ""
	o.UpgradeBy, o.UpgradeRollout, o.UpgradeWhy, o.UpgradePhases = by.By, by.Rollout, Shorten(by.Why, maxFailedReason), []Phase{{State: first, At: now}}
}

// note records that the upgrade has come into a state, of which text may say more. An upgrade
// without a state was cancelled.
func (o *UpgradeLog) note(s ProgressState, text string, now time.Time) {
	o.UpgradeEndedAt, o.UpgradeEndText = nil, ""
	if s == ProgressNone || s.Ended() {
		o.UpgradeEndedAt = &now
	}
	if n := len(o.UpgradePhases); s == ProgressNone || n > 0 && o.UpgradePhases[n-1].State == s && o.UpgradePhases[n-1].Text == text {
		return
	}
	phases := append(slices.Clone(o.UpgradePhases), Phase{State: s, At: now, Text: text})
	if over := len(phases) - maxPhases; over > 0 {
		phases = slices.Delete(phases, 1, 1+over) // the first has when it was ordered
	}
	o.UpgradePhases = phases
}

// confirm records that the host has confirmed the cancellation, and whether that is news.
func (o *UpgradeLog) confirm(now time.Time) bool {
	if o.CancelConfirmedAt != nil {
		return false
	}
	o.CancelConfirmedAt = &now
	return true
}

// since returns when state s began if it is the last that was noted.
func (o *UpgradeLog) since(s ProgressState) *time.Time {
	if n := len(o.UpgradePhases); n > 0 && o.UpgradePhases[n-1].State == s {
		return &o.UpgradePhases[n-1].At
	}
	return nil
}

// detailsStates are the states of upgrades under way by what their agent reports.
var detailsStates = map[agentapi.UpgradeState]ProgressState{
	agentapi.UpgradeScheduled: ProgressScheduled, agentapi.UpgradeDownloading: ProgressDownloading, agentapi.UpgradeExtracting: ProgressInstalling,
	agentapi.UpgradeReplacing: ProgressInstalling, agentapi.UpgradeRestarting: ProgressRestarting, agentapi.UpgradeWatching: ProgressWatching,
}

// shownPhase returns the phase that the state of an upgrade under way is taken from: while a host
// undoes what failed, which has no state of its own, that in which it failed.
func shownPhase(d *agentapi.UpgradeDetails) agentapi.UpgradeState {
	if d.State == agentapi.UpgradeRollback {
		return d.Metadata.FailedState
	}
	return d.State
}

// underWay returns the state of an upgrade under way that starts at start, without regard to
// whether its host is there.
func underWay(start time.Time, d *agentapi.UpgradeDetails, now time.Time) ProgressState {
	switch {
	case start.After(now):
		return ProgressScheduled
	case d != nil && detailsStates[shownPhase(d)] != ProgressNone:
		return detailsStates[shownPhase(d)]
	case d != nil && d.State != "":
		return ProgressAccepted
	}
	return ProgressSent
}

// hostState returns the state of an upgrade that is in state s and starts at start, of an agent
// that was last seen at seen.
func hostState(s ProgressState, start *time.Time, seen, now time.Time) ProgressState {
	due := start == nil || !start.After(now)
	if due && s != ProgressNone && !s.Ended() && now.Sub(seen) > OfflineAfter {
		return ProgressWaitingForHost
	}
	return s
}

// state returns the state of the upgrade, without regard to whether its host is there. ProgressRules
// express the same as filters.
func (u *Upgrade) state(now time.Time) ProgressState {
	d := u.UpgradeDetails
	switch {
	case u.Upgrading():
		return underWay(*u.UpgradeStartedAt, d, now)
	case u.UpgradeStatus == UpgradeFailed:
		return ProgressFailed
	case u.UpgradeStatus == UpgradeRolledBack:
		return ProgressRolledBack
	case u.UpgradedAt != nil && d != nil && d.State != "" && !d.State.Ended():
		return ProgressWatching // of an agent: a component's upgrade ends only when its watch does
	case u.UpgradedAt != nil:
		return ProgressCommitted
	}
	return ProgressNone
}

// ProgressStateAt returns how the agent's last upgrade stands at now. That of an unenrolled
// agent no longer counts.
func (a *Agent) ProgressStateAt(now time.Time) ProgressState {
	if !a.Active {
		return ProgressNone
	}
	return hostState(a.state(now), a.UpgradeStartedAt, a.LastActivity(), now)
}

// ProgressAt returns how the agent's last upgrade stands at now; ok is false if there was none,
// or if it was cancelled.
func (a *Agent) ProgressAt(now time.Time) (p Progress, ok bool) {
	return a.progressOf(&a.Upgrade, now)
}

// progressOf returns how an upgrade on the agent's host stands at now.
func (a *Agent) progressOf(u *Upgrade, now time.Time) (p Progress, ok bool) {
	s := hostState(u.state(now), u.UpgradeStartedAt, a.LastActivity(), now)
	if s == ProgressNone || !a.Active {
		return p, false
	}
	p = progress(s, &u.UpgradeLog, u.UpgradeDetails, u.UpgradeStartedAt, a.LastActivity(), now)
	p.Version, p.From, p.Rollback = u.UpgradeTo, u.UpgradeFrom, u.UpgradeRollback
	return p, true
}

// progress describes the state s of an upgrade of which its agent has reported d, and which
// starts at start.
func progress(s ProgressState, o *UpgradeLog, d *agentapi.UpgradeDetails, start *time.Time, seen, now time.Time) Progress {
	p := Progress{State: s, By: o.UpgradeBy, Rollout: o.UpgradeRollout, Since: o.since(s), Phase: hostPhase(s, d)}
	switch {
	case s == ProgressWaitingForHost:
		since := seen.Add(OfflineAfter)
		if start != nil && start.After(since) {
			since = *start // it was due when its host was away already
		}
		p.Since = &since
	case s == ProgressSent && p.Since == nil && o.since(ProgressScheduled) != nil:
		p.Since = start // nothing reports that the time has come
	case s == ProgressScheduled && start != nil && start.After(now):
		p.Until = start
	}
	if d == nil {
		return p
	}
	m := d.Metadata
	switch s {
	case ProgressDownloading:
		p.Percent = &m.DownloadPercent
	case ProgressFailed, ProgressRolledBack:
		p.Code, p.Reason = failureCode(d), cause(d)
	}
	if !s.Ended() && m.RetryErrorMsg != "" {
		p.Retrying = m.RetryErrorMsg
		if m.RetryUntil != nil {
			p.Until = m.RetryUntil
		}
	}
	return p
}

// RequestedBy records who ordered the upgrade, of a component or of the agent, that has just begun.
func (a *Agent) RequestedBy(component string, by Requester, now time.Time) {
	u := a.upgradeOf(component)
	u.requestedBy(by, u.UpgradeStartedAt, now)
	a.setUpgrade(component, *u)
}

// noting calls change, which may change the upgrade, and records the new state of the upgrade, each
// attempt that failed, and that it has moved, with the time. It returns what change returns.
func (u *Upgrade) noting(now time.Time, change func() bool) bool {
	was, attempt, at := u.state(now), attemptError(u.UpgradeDetails), positionOf(u.UpgradeDetails)
	changed := change()
	if !u.Upgrading() {
		u.UpgradeUnreported = nil
	}
	s, text := u.state(now), attemptError(u.UpgradeDetails)
	if s != was || text != attempt && text != "" {
		u.note(s, text, now)
	}
	if changed && (s != was || positionOf(u.UpgradeDetails) != at) {
		u.UpgradeMoved = &now
	}
	return changed
}

// position is where an upgrade is on its host. What its agent reports besides, such as the rate of a
// download, changes without progress.
type position struct {
	state    agentapi.UpgradeState
	phase    string
	step     string // of a component's phase
	permille int    // of a download; fractions of it are no progress, or a byte a second would be
	attempt  int
	reached  agentapi.LockstepPhase
}

func positionOf(d *agentapi.UpgradeDetails) position {
	if d == nil {
		return position{}
	}
	m := d.Metadata
	p := position{state: d.State, phase: m.Phase, step: m.Reason, permille: int(10 * m.DownloadPercent), attempt: m.RetryAttempt}
	if m.Lockstep != nil {
		p.reached = m.Lockstep.Reached
	}
	return p
}

const (
	// StallFactor times the longest silence that is no failure is how long an upgrade may stay at
	// one phase and one tenth of a percent. Life shows within seconds; but to unpack a large package
	// on a slow disk, or to wait for a source that is restarted, takes minutes in which nothing moves.
	StallFactor = 3
	// MinStall is the least: unpacking alone takes some tens of seconds.
	MinStall = time.Minute
	// DefaultStall is the bound of upgrades without a plan.
	DefaultStall = StallFactor * DefaultStaleAfter
)

// Moved returns when the upgrade under way has last moved. One that is scheduled, or waits for
// another try, moves when its time comes. It is zero if none is under way.
func (s *Subject) Moved() time.Time {
	if !s.Upgrading() {
		return time.Time{}
	}
	moved := *s.UpgradeStartedAt
	for _, at := range []*time.Time{s.UpgradeMoved, scheduledAt(s.UpgradeDetails)} {
		if at != nil && at.After(moved) {
			moved = *at
		}
	}
	return moved
}

func scheduledAt(d *agentapi.UpgradeDetails) *time.Time {
	if d == nil || d.State != agentapi.UpgradeScheduled {
		return nil
	}
	return d.Metadata.ScheduledAt
}

// StallBound returns how long the upgrade may not move if bound is the limit for agents that report
// their progress. Others do not show it.
func (s *Subject) StallBound(bound time.Duration) time.Duration {
	if !s.Agent.Host().Maker.ReportsPhases(s.Agent.Version) {
		return max(bound, unseenGrace)
	}
	return bound
}

// Stalled returns since when the upgrade under way has not moved, if that is longer than
// DefaultStall, and its host is there; ok is false otherwise.
func (s *Subject) Stalled(now time.Time) (since time.Time, ok bool) {
	since = s.Moved()
	ok = !since.IsZero() && now.Sub(s.Agent.LastActivity()) <= OfflineAfter && now.Sub(since) >= s.StallBound(DefaultStall)
	return since, ok
}

// ComponentProgressAt is ProgressAt of a component of the agent. An upgrade that was asked for
// on the host shows only while it is under way.
func (a *Agent) ComponentProgressAt(c *Component, now time.Time) (p Progress, ok bool) {
	u, d := c.Upgrade, c.UpgradeDetails
	if d != nil && d.ActionID != u.UpgradeActionID && !d.State.Ended() && !u.Upgrading() {
		u = Upgrade{UpgradeTo: d.TargetVersion, UpgradeFrom: c.Version, UpgradeStartedAt: &time.Time{}, UpgradeStatus: UpgradeStarted, UpgradeDetails: d}
	}
	return a.progressOf(&u, now)
}

// ActionProgressAt returns how the upgrade that an action ordered of the agent, or of a component
// of it, stands at now; ok is false if another order has replaced it, or if it was cancelled.
func (a *Agent) ActionProgressAt(actionID, component string, now time.Time) (p Progress, ok bool) {
	u := a.upgradeOf(component)
	if u.UpgradeActionID != actionID {
		return p, false
	}
	return a.progressOf(u, now)
}

// attemptError returns the error of the last attempt of an upgrade that will be tried again.
func attemptError(d *agentapi.UpgradeDetails) string {
	if d == nil || !retries(d) {
		return ""
	}
	return d.Metadata.RetryErrorMsg
}

// failureCode returns the code of why an upgrade ended badly: that of its watcher, or else the
// phase it failed in. It is empty if neither is known.
func failureCode(d *agentapi.UpgradeDetails) string {
	if d == nil {
		return ""
	}
	if d.Metadata.ReasonCode != "" {
		return d.Metadata.ReasonCode
	}
	return string(d.Metadata.FailedState)
}
