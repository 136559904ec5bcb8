package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// LateReportWindow is how long a target is still assessed after its end.
const LateReportWindow = fleet.LateReportWindow

// Assess returns the state of a rollout's target in flight, or of one that ended recently, from
// the document of its agent (nil if it was deleted). next is when the state may change
// by time alone; zero: not before the agent reports.
func Assess(t fleet.Target, a *fleet.Agent, r *fleet.Rollout, now time.Time) (_ fleet.Target, changed bool, next time.Time) {
	c := assess(t, a, r.Plan.Component)
	c.rollout, c.plan, c.rule, c.now = r, &r.Plan, healthRule(&r.Plan), now
	switch {
	case t.State.InFlight():
		c.inFlight()
	case t.ActionID == "" || a == nil || !a.Active:
	case t.State == fleet.TargetPending, t.State == fleet.TargetHeld, CalledOff(t.State):
		c.wentOn()
	case t.State == fleet.TargetSucceeded, t.State == fleet.TargetFailed, t.State == fleet.TargetRolledBack:
		c.applyLateReports()
	}
	return c.Target, c.changed, c.next
}

func assess(t fleet.Target, a *fleet.Agent, component string) assessment {
	c := assessment{Target: t, agent: a, subject: fleet.NoSubject()}
	if a != nil {
		c.subject = a.Of(component)
	}
	return c
}

// Gone returns why nothing of a rollout reaches the agent any more, as a clause; empty: something may.
func Gone(a *fleet.Agent) string {
	if a == nil {
		return "the agent was deleted"
	}
	if left, ok := a.Left(); ok {
		return "the agent " + left.Text
	}
	return ""
}

// healthRule returns the plan's health rule with defaults.
func healthRule(p *fleet.Plan) fleet.HealthRule {
	h := p.Health
	h.Wait = cmp.Or(h.Wait, fleet.Duration(fleet.DefaultHealthWait))
	h.StaleAfter = cmp.Or(h.StaleAfter, fleet.Duration(fleet.DefaultStaleAfter))
	h.SilentAfter = cmp.Or(h.SilentAfter, fleet.Duration(fleet.DefaultSilentAfter))
	h.MaxCrashes = cmp.Or(h.MaxCrashes, fleet.DefaultMaxCrashes)
	return h
}

// assessment is a target while it is assessed.
type assessment struct {
	fleet.Target
	agent   *fleet.Agent  // nil: it was deleted
	subject fleet.Subject // what is upgraded: the agent, or its component
	rollout *fleet.Rollout
	plan    *fleet.Plan // the rollout's
	rule    fleet.HealthRule
	now     time.Time
	changed bool
	next    time.Time
}

// move changes the state and appends to the history.
func (c *assessment) move(s fleet.TargetState, code fleet.ReasonCode, text string) {
	if c.State == s && c.Code == code && c.Error == text {
		return
	}
	ChangeState(&c.Target, s, code, text, c.now)
	c.changed = true
}

// ChangeState changes the state of a target. Every change of state goes through it.
func ChangeState(t *fleet.Target, s fleet.TargetState, code fleet.ReasonCode, text string, now time.Time) {
	t.State, t.Code, t.Error, t.EndedAt = s, code, text, nil
	if s.Ended() {
		t.EndedAt = &now
	}
	remember(t, now)
}

// remember appends the state of the target to its history.
func remember(t *fleet.Target, now time.Time) {
	if over := len(t.History) + 1 - fleet.MaxTargetHistory; over > 0 {
		t.History = t.History[over:]
	}
	// A copy, since targets are compared and written again after a conflict.
	t.History = append(t.History[:len(t.History):len(t.History)], fleet.TargetChange{At: now, State: t.State, Phase: t.Phase, Code: t.Code, Error: t.Error})
}

// by lowers the time at which the state may change by itself.
func (c *assessment) by(t time.Time) {
	if c.next.IsZero() || t.Before(c.next) {
		c.next = t
	}
}

// ours reports whether the last upgrade is the offered one.
func (c *assessment) ours() bool { return c.subject.UpgradeActionID == c.ActionID }

// runs reports whether the version runs that was offered.
func (c *assessment) runs() bool { return c.subject.Runs(c.To, c.From, c.ActionID) }

// details returns what the agent reported of this upgrade.
func (c *assessment) details() *agentapi.UpgradeDetails {
	if d := c.subject.UpgradeDetails; d != nil && d.ActionID == c.ActionID {
		return d
	}
	return nil
}

// watch returns what the watcher reported of this upgrade.
func (c *assessment) watch() *fleet.Watch {
	if w := c.subject.Watch; w != nil && w.ActionID == c.ActionID {
		return w
	}
	return nil
}

// inFlight assesses a target from its offer to its end.
func (c *assessment) inFlight() {
	c.noteReached()
	switch {
	case Gone(c.agent) != "":
		c.move(fleet.TargetCancelled, fleet.WhyGone, Gone(c.agent))
		return
	case c.endedBadly():
		return
	case c.runs():
		c.reach()
		c.verify()
		return
	case !c.ours():
		c.move(fleet.TargetFailed, fleet.WhyLostTarget, fmt.Sprintf("another action took the agent over, to %s", cmp.Or(c.subject.UpgradeTo, c.subject.Version)))
		return
	case c.State == fleet.TargetVerifying && !c.undoing():
		c.left()
		return
	}
	c.begin()
}

// undoing reports whether the host puts the earlier version of the component back. Its
// report of the end follows.
func (c *assessment) undoing() bool { return c.subject.Component != "" && c.subject.Upgrading() }

// endedBadly ends a target whose failure the agent or its watcher reported.
func (c *assessment) endedBadly() bool {
	status := c.subject.UpgradeStatus
	if !c.ours() {
		return false
	}
	text, d := "", c.details()
	if d != nil {
		text = cmp.Or(d.Metadata.ErrorMsg, d.Metadata.Reason)
	}
	switch {
	case status == fleet.UpgradeRolledBack:
		c.move(fleet.TargetRolledBack, fleet.WhyCompensated, text)
	case d != nil && c.subject.Stuck():
		c.move(fleet.TargetFailed, fleet.WhyStuck, text)
	case status == fleet.UpgradeFailed:
		c.move(fleet.TargetFailed, fleet.WhyReported, cmp.Or(text, "the agent gave no reason"))
	default:
		if w := c.watch(); w != nil && w.Phase != agentapi.BeaconCommitted && w.Agent.Crashes >= c.rule.MaxCrashes {
			c.move(fleet.TargetFailed, fleet.WhyCrashLoop, fmt.Sprintf("its process ended %d times, %d are a crash loop", w.Agent.Crashes, c.rule.MaxCrashes))
			return true
		}
		return false
	}
	return true
}

// noteReached records the phase that the host has reached in lockstep. It never goes back: right
// after a start an agent may report less, or nothing.
func (c *assessment) noteReached() {
	d := c.details()
	if d == nil || d.Metadata.Lockstep == nil {
		return
	}
	if is := d.Metadata.Lockstep.Reached; is.Valid() == nil && !c.Reached.Reaches(is) {
		c.Reached, c.changed = is, true
	}
}

// begin assesses a target from its offer until the version runs.
func (c *assessment) begin() {
	a, d, w := c.agent, c.details(), c.watch()
	phase := c.Phase
	if d != nil {
		phase = string(d.State)
	}
	begun := w != nil || c.Reached != "" || fleet.HostChanging(agentapi.UpgradeState(phase))
	switch {
	case begun && c.State == fleet.TargetOffered:
		c.Phase = phase
		c.move(fleet.TargetUpgrading, "", "")
	case phase != c.Phase:
		c.Phase, c.changed = phase, true
		remember(&c.Target, c.now)
	}
	if is := fleet.HostPhase(d); d != nil && is != c.HostPhase {
		c.HostPhase, c.changed = is, true
	}
	sign := c.sign()
	if c.changed {
		c.SignAt = &sign
	}
	stale, away := sign.Add(c.rule.StaleAfter.D()), a.LastActivity().Add(fleet.OfflineAfter)
	switch {
	case Together(c.plan.Strategy.Kind):
		// Hosts wait for each other, and those that are away go on when they are back. The
		// patience of the plan bounds each phase; see lockstep.go.
	case c.State == fleet.TargetOffered && c.Phase == "":
		// The agent never reported that it received the offer. An agent that is away
		// neither blocks the batch nor counts for or against the version.
		if !c.now.Before(away) {
			c.move(fleet.TargetHeld, fleet.WhyAway, "")
			return
		}
		if c.stalled() {
			return
		}
		c.by(away)
	case !c.now.Before(stale):
		c.move(fleet.TargetFailed, fleet.WhyStale, fmt.Sprintf("no sign of the host since %s, while it was %s", sign.UTC().Format(time.RFC3339), c.doing()))
		return
	case c.stalled():
		return
	default:
		c.by(stale)
	}
	if !c.subject.Upgrading() && d == nil && w == nil {
		// Another action cancelled it: the rollout's own, which a crash kept from being recorded
		// here, or an operator's.
		code, why := TakesBack(c.rollout)
		if code == "" {
			code, why = fleet.WhyOperator, "the upgrade of this agent was called off"
		}
		c.move(fleet.TargetWithdrawn, code, why)
	}
}

// stalled fails a target whose host is alive and whose upgrade does not move.
func (c *assessment) stalled() bool {
	moved := c.subject.Moved()
	if moved.IsZero() || !c.ours() {
		return false
	}
	if c.OfferedAt != nil && c.OfferedAt.After(moved) {
		moved = *c.OfferedAt
	}
	if n := len(c.History); n > 0 && c.History[n-1].At.After(moved) {
		moved = c.History[n-1].At // its watcher has said more than the agent, for example
	}
	until := moved.Add(StallAfter(&c.subject, c.plan))
	if c.now.Before(until) {
		c.by(until)
		return false
	}
	c.move(fleet.TargetFailed, fleet.WhyNoProgress, fmt.Sprintf("its host is online, and has made no progress since %s, while it was %s", moved.UTC().Format(time.RFC3339), c.doing()))
	return true
}

// StallAfter returns how long the upgrade of a target may stay at one phase and one percentage.
func StallAfter(s *fleet.Subject, p *fleet.Plan) time.Duration {
	return s.StallBound(max(fleet.MinStall, fleet.StallFactor*healthRule(p).StaleAfter.D()))
}

// doing describes the last phase that the agent reported.
func (c *assessment) doing() string {
	if c.Phase == "" {
		return "asked to upgrade"
	}
	return strings.ToLower(strings.TrimPrefix(c.Phase, "UPG_"))
}

// sign returns the time of the last sign of life or progress since the offer. An agent
// that waits for its start, or to retry, counts as alive until then.
func (c *assessment) sign() time.Time {
	sign := c.lastReport()
	for _, at := range []*time.Time{c.OfferedAt, c.SignAt} {
		if at != nil && at.After(sign) {
			sign = *at
		}
	}
	if c.changed {
		sign = c.now
	}
	if d := c.details(); d != nil && d.State == agentapi.UpgradeScheduled {
		if at := d.Metadata.ScheduledAt; at != nil && at.After(sign) {
			sign = *at
		}
	}
	return sign
}

// lastReport returns when the agent or its watcher last reported.
func (c *assessment) lastReport() time.Time {
	heard := c.agent.LastActivity()
	if w := c.watch(); w != nil && w.ReceivedAt.After(heard) {
		heard = w.ReceivedAt
	}
	return heard
}

// reach records that the agent runs the version.
func (c *assessment) reach() {
	if d := c.details(); d != nil && c.Phase != string(d.State) {
		c.Phase, c.changed = string(d.State), true
		if c.State == fleet.TargetVerifying {
			remember(&c.Target, c.now)
		}
	}
	if c.State == fleet.TargetVerifying {
		return
	}
	at := c.now
	switch {
	case c.ours() && c.subject.UpgradedAt != nil:
		at = *c.subject.UpgradedAt
	case c.subject.Component != "": // its runtime's clock is the host's
	case c.subject.VersionSince != nil && (c.OfferedAt == nil || c.subject.VersionSince.After(*c.OfferedAt)):
		at = *c.subject.VersionSince
	}
	c.ReachedAt = &at
	c.move(fleet.TargetVerifying, "", "")
}

// left ends a target that no longer runs the version although no rollback was reported.
func (c *assessment) left() {
	if c.subject.Version == c.From {
		c.move(fleet.TargetRolledBack, fleet.WhyCompensated, "runs "+VersionText(c.From)+" again, and did not say why")
		return
	}
	c.move(fleet.TargetFailed, fleet.WhyLostTarget, "runs "+VersionText(c.subject.Version)+", which no rollout or operator ordered")
}

// verify judges a target that runs the version, by criteria that a host under load
// after its start can meet: degraded suffices.
func (c *assessment) verify() {
	if c.plan.Strategy.SkipValidation {
		c.move(fleet.TargetSucceeded, fleet.WhyUnchecked, "")
		return
	}
	a, reached := c.agent, *c.ReachedAt
	heard := c.lastReport()
	if reached.After(heard) {
		heard = reached
	}
	silent := heard.Add(max(c.rule.SilentAfter.D(), a.UsualGap.D()))
	end := reached.Add(c.rule.Wait.D())
	switch n := c.restarts(); {
	case n >= c.rule.MaxCrashes:
		c.move(fleet.TargetFailed, fleet.WhyCrashLoop, fmt.Sprintf("it was restarted %d times, %d are a crash loop", n, c.rule.MaxCrashes))
		return
	case !c.now.Before(silent):
		c.move(fleet.TargetFailed, fleet.WhySilent, fmt.Sprintf("reached %s and has been silent since %s", c.To, heard.UTC().Format(time.RFC3339)))
		return
	case c.now.Before(end):
		c.by(end)
		c.by(silent)
		return
	}
	sick, unsure := c.unwell()
	switch {
	case sick != "":
		c.move(fleet.TargetFailed, fleet.WhyUnhealthy, sick)
	case unsure == "":
		c.move(fleet.TargetSucceeded, fleet.WhyHealthy, "")
	case c.now.Before(c.deadline(end)):
		c.by(c.deadline(end))
		c.by(silent)
	case !a.LastActivity().After(reached):
		c.by(silent) // nothing was reported since: verify fails it as silent
	default:
		c.move(fleet.TargetFailed, fleet.WhyStalled, unsure)
	}
}

// deadline returns when a target fails that is neither healthy nor sick at the end of the plan's
// wait. Its host observes the version too, and gives its own verdict: that may take as long as
// the observation, however short the wait is.
func (c *assessment) deadline(end time.Time) time.Time {
	observation := fleet.DefaultWatch
	if c.subject.Component != "" {
		observation = cmp.Or(c.Observes.D(), agentapi.DefaultComponentWait) + agentapi.ComponentWaitSlack
	}
	return end.Add(max(c.rule.Wait.D(), observation))
}

// restarts counts the restarts of the component since the host has accepted its version. It
// judges those during its own observation.
func (c *assessment) restarts() int {
	if c.subject.UpgradedAt == nil || !c.ours() {
		return 0
	}
	return c.subject.Restarts()
}

// unwell returns, at the end of the health wait, what is wrong with an agent (sick), or
// what is missing to call it healthy (unsure).
func (c *assessment) unwell() (sick, unsure string) {
	if c.subject.Component != "" {
		return c.componentUnwell()
	}
	a, d, w := c.agent, c.details(), c.watch()
	switch {
	case a.Last.Status == "error":
		return strings.TrimSuffix("the agent says error: "+a.Last.Message, ": "), ""
	case failedComponent(a) != "":
		return failedComponent(a), ""
	case !a.LastActivity().After(*c.ReachedAt):
		return "", "has not checked in again since it reached " + c.To
	case a.PolicyRev == 0: // its status is "updating", whatever it says of itself
		return "", "has not received its policy yet"
	case a.Last.Status == "starting":
		return "", fmt.Sprintf("still starting after %s", max(0, c.now.Sub(*c.ReachedAt)).Round(time.Second))
	case w != nil && w.Phase == agentapi.BeaconRollingBack:
		return "", "its watcher is restoring the previous version"
	case w != nil && !w.Phase.Ended() && !w.Fresh(c.now) && d != nil:
		return "", fmt.Sprintf("its watcher was last heard of at %s and has not agreed yet", w.ReceivedAt.UTC().Format(time.RFC3339))
	}
	return "", ""
}

// componentUnwell is unwell of a component. What else runs on the host does not count.
func (c *assessment) componentUnwell() (sick, unsure string) {
	s := &c.subject
	status, message := s.ComponentStatus()
	switch {
	case !s.Reported:
		return "", "the agent does not report component " + s.Component
	case s.Upgrading(): // whatever it reports: its host may tolerate some restarts
		return "", "its host still observes it"
	case strings.EqualFold(status, "failed"):
		return strings.TrimSuffix(fmt.Sprintf("component %s failed: %s", s.Component, message), ": "), ""
	case !c.agent.LastActivity().After(*c.ReachedAt):
		return "", "the agent has not checked in again since it runs " + c.To
	case !strings.EqualFold(status, "healthy") && !strings.EqualFold(status, "degraded"):
		return "", fmt.Sprintf("component %s is %s after %s", s.Component, cmp.Or(strings.ToLower(status), "in an unknown state"), max(0, c.now.Sub(*c.ReachedAt)).Round(time.Second))
	}
	return "", ""
}

// failedComponent describes a failed component in a sentence; empty if none failed. One that
// is being upgraded is judged by its own upgrade.
func failedComponent(a *fleet.Agent) string {
	var list []agentapi.Component
	if len(a.Components) == 0 || json.Unmarshal(a.Components, &list) != nil { // agents of other makers may send anything
		return ""
	}
	for _, c := range list {
		if u := a.ComponentUpgrades[c.Name]; c.Name != "" && u.Upgrading() {
			continue
		}
		if strings.EqualFold(c.Status, "failed") {
			return strings.TrimSuffix(fmt.Sprintf("component %s failed: %s", c.ID, c.Message), ": ")
		}
	}
	return ""
}

// RollbackDeadline returns until when to wait for the watcher of a target that has ended badly
// to report whether the rollback succeeded; zero if it is not rolling back.
func RollbackDeadline(t *fleet.Target, a *fleet.Agent, p *fleet.Plan) time.Time {
	c := assess(*t, a, p.Component)
	if a == nil || c.subject.EndReported() || (t.State != fleet.TargetRolledBack && t.State != fleet.TargetFailed) {
		return time.Time{}
	}
	w := c.watch()
	if w == nil || (w.Phase != agentapi.BeaconRollingBack && (t.Code != fleet.WhyCrashLoop || w.Phase.Ended())) {
		return time.Time{}
	}
	return w.ReceivedAt.Add(healthRule(p).StaleAfter.D())
}

// WatchDeadline returns until when to wait for the end of the host's watch of a target
// that has succeeded; zero if it is not watched. Its watcher can still roll it back.
func WatchDeadline(t *fleet.Target, a *fleet.Agent, p *fleet.Plan) time.Time {
	if a == nil || t.State != fleet.TargetSucceeded || t.EndedAt == nil {
		return time.Time{}
	}
	c := assess(*t, a, p.Component)
	if d := c.details(); c.ours() && d != nil && !d.State.Ended() {
		return t.EndedAt.Add(LateReportWindow)
	}
	if w := c.watch(); c.ours() && w != nil && w.Phase == agentapi.BeaconWatching && a.LastActivity().Before(w.ReceivedAt) {
		return w.ReceivedAt.Add(fleet.BeaconFresh) // only the watcher is heard from
	}
	return time.Time{}
}

// CalledOff reports whether a target in this state has ended without the version by what an
// operator, a stop or a time decided, and not by what its host did. What was delivered to the host
// before may still be carried out.
func CalledOff(s fleet.TargetState) bool {
	switch s {
	case fleet.TargetWithdrawn, fleet.TargetSkipped, fleet.TargetExpired, fleet.TargetCancelled:
		return true
	}
	return false
}

// Final reports whether no later report corrects the end of a target any more. A host that brings the
// version although the target ended without it corrects that whenever it does.
func Final(t *fleet.Target, now time.Time) bool {
	ended := t.State == fleet.TargetSucceeded || t.State == fleet.TargetRolledBack
	return t.ActionID == "" || ended && t.EndedAt != nil && now.Sub(*t.EndedAt) > LateReportWindow
}

// CancelDeadline returns until when to wait for the host of a target that was called off to say
// whether it carries the offer out all the same; zero: it has said so, or the offer was not
// delivered. A host that was connected has reported something seconds after the delivery, so one that
// was not heard of since the offer does not have it, as far as is known.
func CancelDeadline(t *fleet.Target, a *fleet.Agent, p *fleet.Plan) time.Time {
	if a == nil || !a.Active || t.ActionID == "" || t.EndedAt == nil || !CalledOff(t.State) {
		return time.Time{}
	}
	c := assess(*t, a, p.Component)
	if !c.ours() || !c.subject.Upgrading() && !c.subject.Unconfirmed() || t.OfferedAt != nil && !c.lastReport().After(*t.OfferedAt) {
		return time.Time{}
	}
	since := *t.EndedAt
	for _, h := range slices.Backward(t.History) { // it may have been held, or have waited for a retry, since
		if h.State.InFlight() {
			break
		}
		since = h.At
	}
	return since.Add(LateReportWindow)
}

// wentOn resumes a target whose offer was called off, and whose agent continued nevertheless.
func (c *assessment) wentOn() {
	if !c.ours() {
		return
	}
	status, d := c.subject.UpgradeStatus, c.details()
	stuck := d != nil && d.Metadata.FailedState == agentapi.UpgradeRollback || c.subject.Stuck()
	switch {
	case status == fleet.UpgradeRolledBack || status == fleet.UpgradeFailed:
		// For a target that waits for a retry this is its known failure. A withdrawn
		// target that failed without harm shows nothing about the version. An operator who has
		// skipped a failed target has decided about this failure.
		if CalledOff(c.State) && (stuck || status == fleet.UpgradeRolledBack) && !c.failedBefore(stuck) {
			c.endedBadly()
		}
	case c.runs():
		c.reach()
		c.inFlight()
	case d != nil && !d.State.Ended() && (fleet.HostChanging(d.State) && c.Code != fleet.WhyNoProgress && c.heardSince() || c.movedSince()):
		c.Phase, c.HostPhase = string(d.State), fleet.HostPhase(d)
		at := c.now
		c.SignAt = &at
		c.move(fleet.TargetUpgrading, "", "")
		c.inFlight()
	}
}

// failedBefore reports whether the failure of the offer was known before the target was called off.
// stuck is whether its host could not be put back either, which may have become known since.
func (c *assessment) failedBefore(stuck bool) bool {
	for _, h := range slices.Backward(c.History) {
		switch {
		case h.State.InFlight():
			return false
		case (h.State == fleet.TargetRolledBack || h.State == fleet.TargetFailed) && (h.Code == fleet.WhyStuck) == stuck:
			return true
		}
	}
	return false
}

// heardSince reports whether the agent or its watcher has reported since the target
// came into its state. Their earlier reports are the reason for the state.
func (c *assessment) heardSince() bool {
	n := len(c.History)
	return n == 0 || c.lastReport().After(c.History[n-1].At)
}

// movedSince reports whether the upgrade of a failed target goes on: it has moved since the end.
func (c *assessment) movedSince() bool {
	at := c.subject.UpgradeMoved
	return c.State == fleet.TargetFailed && c.subject.Upgrading() && at != nil && c.EndedAt != nil && at.After(*c.EndedAt)
}

// applyLateReports corrects the end of a target by later reports of agent and watcher.
func (c *assessment) applyLateReports() {
	if !c.ours() || c.Code == fleet.WhyStuck || c.EndedAt == nil {
		return
	}
	status := c.subject.UpgradeStatus
	ended := status == fleet.UpgradeRolledBack || status == fleet.UpgradeFailed
	switch judged := c.State == fleet.TargetFailed && c.Code != fleet.WhyReported; {
	case c.Code == fleet.WhyUndone && !c.subject.Stuck(): // its failure is what the rollout required
	case c.State == fleet.TargetRolledBack && c.Error != "" && status != fleet.UpgradeFailed:
		// Watchers report a rollback before they have done it: it may still fail.
	case ended && (status == fleet.UpgradeRolledBack || c.State != fleet.TargetFailed || judged || c.subject.Component != "" && c.subject.Stuck()):
		c.endedBadly()
	case c.Code == fleet.WhyStale || c.Code == fleet.WhyNoProgress || c.Code == fleet.WhyReported:
		// A presumed failure, or one that the agent retries: the version that runs
		// decides.
		c.wentOn()
	}
}
