package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// Aftermath is how long a target is still assessed after its end: a watcher may roll
// back an agent that the rollout called healthy, and an agent called silent may turn
// out to have been rolled back. Watchers watch for ten minutes, and retry a rollback
// that fails for some more.
const Aftermath = 30 * time.Minute

// Assess says what has become of a target in flight, or of one that has ended
// lately, from the document of its agent (nil: there is none any more). next is
// when time alone will change the answer; zero: not before the agent is heard of.
func Assess(t fleet.Target, a *fleet.Agent, p *fleet.Plan, now time.Time) (_ fleet.Target, changed bool, next time.Time) {
	c := course{Target: t, agent: a, plan: p, rule: healthRule(p), now: now}
	switch {
	case t.State.InFlight():
		c.inFlight()
	case t.ActionID == "" || a == nil:
	case t.State == fleet.TargetPending, t.State == fleet.TargetHeld, t.State == fleet.TargetWithdrawn, t.State == fleet.TargetExpired:
		c.wentOn()
	case t.State == fleet.TargetSucceeded, t.State == fleet.TargetFailed, t.State == fleet.TargetRolledBack:
		c.aftermath()
	}
	return c.Target, c.changed, c.next
}

// healthRule is the plan's health rule with defaults.
func healthRule(p *fleet.Plan) fleet.HealthRule {
	h := p.Health
	h.Wait = cmp.Or(h.Wait, fleet.Duration(fleet.DefaultHealthWait))
	h.StaleAfter = cmp.Or(h.StaleAfter, fleet.Duration(fleet.DefaultStaleAfter))
	h.SilentAfter = cmp.Or(h.SilentAfter, fleet.Duration(fleet.DefaultSilentAfter))
	h.MaxCrashes = cmp.Or(h.MaxCrashes, fleet.DefaultMaxCrashes)
	return h
}

// course is a target while it is assessed.
type course struct {
	fleet.Target
	agent   *fleet.Agent
	plan    *fleet.Plan
	rule    fleet.HealthRule
	now     time.Time
	changed bool
	next    time.Time
}

// move changes the state and appends to the history.
func (c *course) move(s fleet.TargetState, code fleet.ReasonCode, text string) {
	if c.State == s && c.Code == code && c.Error == text {
		return
	}
	ChangeState(&c.Target, s, code, text, c.now)
	c.changed = true
}

// ChangeState changes the state of a target. Every change of state goes through it.
func ChangeState(t *fleet.Target, s fleet.TargetState, code fleet.ReasonCode, text string, now time.Time) {
	t.State, t.Code, t.Error, t.EndedAt = s, code, text, nil
	if s.Over() {
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

// by sets the earliest time at which the answer changes by itself.
func (c *course) by(t time.Time) {
	if c.next.IsZero() || t.Before(c.next) {
		c.next = t
	}
}

// ours says whether the last upgrade of the agent is the offered one.
func (c *course) ours() bool { return c.agent.UpgradeActionID == c.ActionID }

// runs says whether the agent runs the version it was offered.
func (c *course) runs() bool { return c.agent.Version == c.To }

// details are what the agent reported of this upgrade.
func (c *course) details() *agentapi.UpgradeDetails {
	if d := c.agent.UpgradeDetails; d != nil && d.ActionID == c.ActionID {
		return d
	}
	return nil
}

// watch is what the watcher reported of this upgrade.
func (c *course) watch() *fleet.Watch {
	if w := c.agent.Watch; w != nil && w.ActionID == c.ActionID {
		return w
	}
	return nil
}

// inFlight follows an offer to its end.
func (c *course) inFlight() {
	switch {
	case c.agent == nil || !c.agent.Active:
		c.move(fleet.TargetCancelled, fleet.WhyGone, "the agent is unenrolled")
		return
	case c.endedBadly():
		return
	case c.runs():
		c.reach()
		c.verify()
		return
	case !c.ours():
		c.move(fleet.TargetFailed, fleet.WhyLostTarget, fmt.Sprintf("another action took the agent over, to %s", cmp.Or(c.agent.UpgradeTarget, c.agent.Version)))
		return
	case c.State == fleet.TargetVerifying:
		c.left()
		return
	}
	c.begin()
}

// endedBadly ends a target whose failure the agent or its watcher reported.
func (c *course) endedBadly() bool {
	a := c.agent
	if !c.ours() {
		return false
	}
	text, d := "", c.details()
	if d != nil {
		text = cmp.Or(d.Metadata.ErrorMsg, d.Metadata.Reason)
	}
	switch {
	case a.UpgradeStatus == fleet.UpgradeRolledBack:
		c.move(fleet.TargetRolledBack, fleet.WhyCompensated, text)
	case a.UpgradeStatus == fleet.UpgradeFailed && d != nil && d.Metadata.FailedState == agentapi.UpgradeRollback:
		c.move(fleet.TargetFailed, fleet.WhyStuck, text)
	case a.UpgradeStatus == fleet.UpgradeFailed:
		c.move(fleet.TargetFailed, fleet.WhyReported, cmp.Or(text, "the agent gave no reason"))
	default:
		if w := c.watch(); w != nil && w.Stage != agentapi.BeaconCommitted && w.Agent.Crashes >= c.rule.MaxCrashes {
			c.move(fleet.TargetFailed, fleet.WhyCrashLoop, fmt.Sprintf("its process ended %d times, %d are a crash loop", w.Agent.Crashes, c.rule.MaxCrashes))
			return true
		}
		return false
	}
	return true
}

// begin follows an offer until the version runs.
func (c *course) begin() {
	a, d, w := c.agent, c.details(), c.watch()
	phase := c.Phase
	if d != nil {
		phase = string(d.State)
	}
	begun := w != nil || fleet.HostChanging(agentapi.UpgradeState(phase))
	switch {
	case begun && c.State != fleet.TargetUpgrading:
		c.Phase = phase
		c.move(fleet.TargetUpgrading, "", "")
	case phase != c.Phase:
		c.Phase, c.changed = phase, true
		remember(&c.Target, c.now)
	}
	sign := c.sign()
	if c.changed {
		c.SignAt = &sign
	}
	stale, away := sign.Add(c.rule.StaleAfter.D()), a.LastActivity().Add(fleet.OfflineAfter)
	switch {
	case c.State == fleet.TargetOffered && c.Phase == "":
		// It never reported that it received the offer. An agent that is away
		// neither blocks the batch nor counts for or against the version.
		if !c.now.Before(away) {
			c.move(fleet.TargetHeld, fleet.WhyAway, "")
			return
		}
		c.by(away)
	case !c.now.Before(stale):
		c.move(fleet.TargetFailed, fleet.WhyStale, fmt.Sprintf("no sign of the host since %s, while it was %s", sign.UTC().Format(time.RFC3339), c.doing()))
		return
	default:
		c.by(stale)
	}
	if !a.Upgrading() && d == nil && w == nil {
		// Another action cancelled it: an operator's, or one that a crash kept
		// from being recorded here.
		c.move(fleet.TargetWithdrawn, fleet.WhyOperator, "the upgrade of this agent was called off")
	}
}

// doing is the last phase that the agent reported, in words.
func (c *course) doing() string {
	if c.Phase == "" {
		return "asked to upgrade"
	}
	return strings.ToLower(strings.TrimPrefix(c.Phase, "UPG_"))
}

// sign is the last sign of life or progress since the offer. An agent that waits
// for its time, or to try again, has given one until then.
func (c *course) sign() time.Time {
	sign := c.lastHeard()
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

// lastHeard is when the agent or its watcher was last heard of.
func (c *course) lastHeard() time.Time {
	heard := c.agent.LastActivity()
	if w := c.watch(); w != nil && w.ReceivedAt.After(heard) {
		heard = w.ReceivedAt
	}
	return heard
}

// reach records that the agent runs the version.
func (c *course) reach() {
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
	case c.ours() && c.agent.UpgradedAt != nil:
		at = *c.agent.UpgradedAt
	case c.agent.VersionSince != nil && (c.OfferedAt == nil || c.agent.VersionSince.After(*c.OfferedAt)):
		at = *c.agent.VersionSince
	}
	c.ReachedAt = &at
	c.move(fleet.TargetVerifying, "", "")
}

// left ends a target that does not run the version any more although nobody
// reported a rollback.
func (c *course) left() {
	if c.agent.Version == c.From {
		c.move(fleet.TargetRolledBack, fleet.WhyCompensated, "runs "+c.From+" again, and did not say why")
		return
	}
	c.move(fleet.TargetFailed, fleet.WhyLostTarget, "runs "+c.agent.Version+", which nobody here asked for")
}

// verify judges a target that runs the version, by criteria that a host under
// load after its start can meet: degraded is well enough.
func (c *course) verify() {
	if c.plan.Strategy.SkipValidation {
		c.move(fleet.TargetSucceeded, fleet.WhyUnchecked, "")
		return
	}
	a, reached := c.agent, *c.ReachedAt
	heard := c.lastHeard()
	if reached.After(heard) {
		heard = reached
	}
	silent := heard.Add(max(c.rule.SilentAfter.D(), a.UsualGap.D()))
	end := reached.Add(c.rule.Wait.D())
	switch {
	case !c.now.Before(silent):
		c.move(fleet.TargetFailed, fleet.WhySilent, fmt.Sprintf("reached %s and was not heard of since %s", c.To, heard.UTC().Format(time.RFC3339)))
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
	case c.now.Before(end.Add(c.rule.Wait.D())):
		c.by(end.Add(c.rule.Wait.D()))
		c.by(silent)
	case !a.LastActivity().After(reached):
		c.by(silent) // nothing was heard since: verify fails it as silent
	default:
		c.move(fleet.TargetFailed, fleet.WhyStalled, unsure)
	}
}

// unwell says, at the end of the health wait, what is wrong with an agent (sick), or
// what is missing to call it healthy (unsure).
func (c *course) unwell() (sick, unsure string) {
	a, d, w := c.agent, c.details(), c.watch()
	switch {
	case a.Last.Status == "error":
		return strings.TrimSuffix("the agent says error: "+a.Last.Message, ": "), ""
	case failedComponent(a.Components) != "":
		return failedComponent(a.Components), ""
	case !a.LastActivity().After(*c.ReachedAt):
		return "", "has not checked in again since it reached " + c.To
	case a.Last.Status == "starting":
		return "", fmt.Sprintf("still starting after %s", c.now.Sub(*c.ReachedAt).Round(time.Second))
	case w != nil && w.Stage == agentapi.BeaconRollingBack:
		return "", "its watcher is putting the old version back"
	case w != nil && !w.Stage.Ended() && !w.Fresh(c.now) && d != nil:
		return "", fmt.Sprintf("its watcher was last heard of at %s and has not agreed yet", w.ReceivedAt.UTC().Format(time.RFC3339))
	}
	return "", ""
}

// failedComponent names a component that failed, in a sentence; empty: none did.
func failedComponent(raw json.RawMessage) string {
	var list []agentapi.Component
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil { // agents of others may send anything
		return ""
	}
	for _, c := range list {
		if strings.EqualFold(c.Status, "failed") {
			return strings.TrimSuffix(fmt.Sprintf("component %s failed: %s", c.ID, c.Message), ": ")
		}
	}
	return ""
}

// GoingBack is until when to wait for the watcher of a target that has ended badly
// to report whether the rollback succeeded; zero: it is not rolling back.
func GoingBack(t *fleet.Target, a *fleet.Agent, p *fleet.Plan) time.Time {
	if a == nil || a.UpgradeEndTold || (t.State != fleet.TargetRolledBack && t.State != fleet.TargetFailed) {
		return time.Time{}
	}
	w := (&course{Target: *t, agent: a}).watch()
	if w == nil || (w.Stage != agentapi.BeaconRollingBack && (t.Code != fleet.WhyCrashLoop || w.Stage.Ended())) {
		return time.Time{}
	}
	return w.ReceivedAt.Add(healthRule(p).StaleAfter.D())
}

// wentOn resumes a target whose offer was withdrawn or expired, and whose agent went
// on all the same.
func (c *course) wentOn() {
	if !c.ours() {
		return
	}
	a, d := c.agent, c.details()
	stuck := d != nil && d.Metadata.FailedState == agentapi.UpgradeRollback
	switch {
	case a.UpgradeStatus == fleet.UpgradeRolledBack || a.UpgradeStatus == fleet.UpgradeFailed:
		// For a target that waits to be retried this is its known failure. A
		// withdrawn target that failed without harm says nothing of the version.
		if c.State == fleet.TargetWithdrawn && (stuck || a.UpgradeStatus == fleet.UpgradeRolledBack) {
			c.endedBadly()
		}
	case c.runs():
		c.reach()
		c.inFlight()
	case d != nil && fleet.HostChanging(d.State) && !d.State.Ended() && c.heardSince():
		c.Phase = string(d.State)
		at := c.now
		c.SignAt = &at
		c.move(fleet.TargetUpgrading, "", "")
		c.inFlight()
	}
}

// heardSince says whether the agent or its watcher was heard of since the target
// came into its state. What they reported before is why it did.
func (c *course) heardSince() bool {
	n := len(c.History)
	return n == 0 || c.lastHeard().After(c.History[n-1].At)
}

// aftermath corrects the end of a target by what agent and watcher report later.
func (c *course) aftermath() {
	if !c.ours() || c.Code == fleet.WhyStuck || c.EndedAt == nil {
		return
	}
	a := c.agent
	ended := a.UpgradeStatus == fleet.UpgradeRolledBack || a.UpgradeStatus == fleet.UpgradeFailed
	switch judged := c.State == fleet.TargetFailed && c.Code != fleet.WhyReported; {
	case c.State == fleet.TargetRolledBack && c.Error != "" && a.UpgradeStatus != fleet.UpgradeFailed:
		// Watchers report a rollback before they have done it: it may still fail.
	case ended && (a.UpgradeStatus == fleet.UpgradeRolledBack || c.State != fleet.TargetFailed || judged):
		c.endedBadly()
	case c.Code == fleet.WhyStale || c.Code == fleet.WhyReported:
		// A failure that was presumed, or that the agent retries: what runs decides.
		c.wentOn()
	}
}

// Busy says whether something is under way on the agent that an offer would
// disturb.
func Busy(a *fleet.Agent) bool {
	return a.Upgrading() || (a.UpgradeDetails != nil && !a.UpgradeDetails.State.Ended())
}
