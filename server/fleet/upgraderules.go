package fleet

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The rules of upgrades that hold for agents and for components; see upgrade.go.

// Bounds of [Agent.ReconcileUpgrade].
const (
	// CreateGrace is how long an agent may be marked before its action exists: creating
	// an action for 10,000 agents takes a second or two.
	CreateGrace = time.Minute
	// AckGrace is how long the old version may check in after it acknowledged the
	// upgrade: a switch takes seconds.
	AckGrace = 10 * time.Minute
	// SilentGrace is how long a host must have been silent before an upgrade that it had begun, or
	// acknowledged, ends with its action: a host that sleeps at night may still finish it.
	SilentGrace = 24 * time.Hour
	// unseenGrace is AckGrace for an agent that reports no phases: its download may take 120
	// minutes, and it unpacks the package and restarts after that.
	unseenGrace = 150 * time.Minute
)

// hasBegun reports whether an agent in this phase has begun to work on the upgrade.
func hasBegun(s agentapi.UpgradeState) bool {
	return s != agentapi.UpgradeRequested && s != agentapi.UpgradeScheduled
}

// waits reports whether the agent has not begun, as far as the server knows.
func (u *Upgrade) waits() bool { return u.UpgradeDetails == nil || !hasBegun(u.UpgradeDetails.State) }

// phase returns the phase of the upgrade under way, or the one in which it failed.
func (u *Upgrade) phase() agentapi.UpgradeState {
	switch d := u.UpgradeDetails; {
	case d == nil:
		return agentapi.UpgradeRequested
	case d.State.Ended():
		return d.Metadata.FailedState
	default:
		return d.State
	}
}

// calledOff reports whether the upgrade was cancelled or withdrawn.
func (u *Upgrade) calledOff() bool {
	return u.UpgradeActionID != "" && u.UpgradeStatus == UpgradeNone && u.UpgradeStartedAt == nil && u.UpgradedAt == nil
}

// retries reports whether the agent has failed and waits to retry.
func retries(d *agentapi.UpgradeDetails) bool {
	return d.State == agentapi.UpgradeScheduled && d.Metadata.RetryErrorMsg != ""
}

// endedBadly reports whether the upgrade failed or was rolled back, and the reason is known.
func (u *Upgrade) endedBadly() bool {
	return u.UpgradeStatus != UpgradeNone && u.UpgradeStatus != UpgradeStarted && u.UpgradeDetails != nil && u.UpgradeDetails.State.Ended()
}

func (u *Upgrade) endBadly(s UpgradeStatus) {
	u.UpgradeStartedAt, u.UpgradedAt, u.UpgradeStatus, u.UpgradePresumed = nil, nil, s, false
}

func (u *Upgrade) fail(msg string, phase agentapi.UpgradeState) {
	u.endBadly(UpgradeFailed)
	u.UpgradeDetails = &agentapi.UpgradeDetails{
		TargetVersion: u.UpgradeTo, ActionID: u.UpgradeActionID, State: agentapi.UpgradeFailed,
		Metadata: agentapi.UpgradeMetadata{FailedState: phase, ErrorMsg: msg},
	}
}

// presume fails the upgrade without a report of its end.
func (u *Upgrade) presume(why string) {
	u.fail(why, u.phase())
	u.UpgradePresumed = true
}

// unpresume takes back a failure that the server has presumed, since the host reports the upgrade
// again. It reports whether there was one.
func (u *Upgrade) unpresume(now time.Time) bool {
	if !u.UpgradePresumed {
		return false
	}
	at := u.requestedAt(now)
	u.UpgradeStartedAt, u.UpgradeStatus, u.UpgradeDetails, u.UpgradePresumed = &at, UpgradeStarted, nil, false
	return true
}

// done ends the upgrade well, and drops what was reported of it.
func (u *Upgrade) done(now time.Time) {
	u.UpgradeStartedAt, u.UpgradedAt, u.UpgradeStatus = nil, &now, UpgradeNone
	u.UpgradeDetails, u.UpgradeEndReported, u.UpgradePresumed = nil, false, false
}

// cancel ends the upgrade that was called off before it was done.
func (u *Upgrade) cancel() bool {
	if !u.Upgrading() && !u.UpgradePresumed {
		return false
	}
	u.UpgradeStartedAt, u.UpgradeStatus, u.UpgradeDetails, u.UpgradePresumed = nil, UpgradeNone, nil, false
	u.resume()
	return true
}

// dropCancelled handles the host's own report that it does not carry the order out. It also drops a
// phase that the agent reported while the CANCEL was on its way.
func (u *Upgrade) dropCancelled(now time.Time) bool {
	late := u.UpgradeStatus == UpgradeNone && u.UpgradedAt == nil && u.UpgradeDetails != nil
	if late {
		u.UpgradeDetails = nil
	}
	return u.cancelConfirmed(u.UpgradeActionID, now) || late
}

// cancelConfirmed is cancel of an action's upgrade if the host has confirmed that it does not carry
// it out.
func (u *Upgrade) cancelConfirmed(actionID string, now time.Time) bool {
	cancelled := u.cancel()
	return u.UpgradeActionID == actionID && u.calledOff() && u.confirm(now) || cancelled
}

// observeStart moves the start of a scheduled upgrade to the time that the agent reports:
// an action that spreads its starts gives each agent its own. It reports whether the
// document changed.
func (u *Upgrade) observeStart(d *agentapi.UpgradeDetails, now time.Time) bool {
	if !u.Upgrading() {
		return false
	}
	start := *u.UpgradeStartedAt
	switch at := d.Metadata.ScheduledAt; {
	case d.State == agentapi.UpgradeRequested || retries(d):
	case d.State != agentapi.UpgradeScheduled && start.After(now):
		start = now // the host's clock is ahead
	case d.State == agentapi.UpgradeScheduled && at != nil && at.After(now) && at.Sub(now) < MaxStartDelay:
		start = *at
	}
	if start.Equal(*u.UpgradeStartedAt) {
		return false
	}
	u.UpgradeStartedAt = &start
	return true
}

// observeReport handles details that are those of the upgrade. It reports whether the upgrade changed.
func (s *Subject) observeReport(d *agentapi.UpgradeDetails, now time.Time) bool {
	changed := hasBegun(d.State) && s.unpresume(now)
	changed = s.reported() || changed
	ends := d.State.Ended()
	if s.Component != "" {
		ends = d.State == agentapi.UpgradeFailed // what is being rolled back is not over
	}
	switch {
	case !ends && (s.endedBadly() || s.Component != "" && s.UpgradedAt != nil):
		// The report was sent before the end and arrived after it, on another connection. If the
		// upgrade of an agent continues after all, the version that runs will show it.
		return changed
	case d.State == agentapi.UpgradeFailed && wasCancelled(d.Metadata.ErrorMsg):
		return s.dropCancelled(now) || changed
	case ends:
		return s.end(d, now) || changed
	}
	changed = s.observeStart(d, now) || changed
	if !reflect.DeepEqual(s.UpgradeDetails, d) {
		s.UpgradeDetails, changed = d, true
	}
	return s.reached(now) || changed
}

// reached ends the upgrade of an agent that runs the version. A component's ends with a report.
func (s *Subject) reached(now time.Time) bool { return s.Component == "" && s.Agent.reached(now) }

// end ends the upgrade as the agent's details say. They replace those of the server, which may
// have given it up, or know it by the acknowledgement or the watcher alone.
func (s *Subject) end(d *agentapi.UpgradeDetails, now time.Time) (changed bool) {
	d = keepReason(s.UpgradeDetails, d)
	status := UpgradeFailed
	if d.State == agentapi.UpgradeRollback || s.Component != "" && putBack(d) {
		status = UpgradeRolledBack
	}
	if s.UpgradeStatus != status || !reflect.DeepEqual(s.UpgradeDetails, d) {
		s.endBadly(status)
		s.UpgradeDetails, changed = d, true
	}
	if s.Component != "" {
		return s.noteFailed(now) || changed
	}
	changed = changed || !s.UpgradeEndReported
	s.UpgradeEndReported = true
	return changed
}

// has says in a text what the host has now.
func (s *Subject) has() string {
	if s.Component == "" {
		return "still runs " + s.Version
	}
	return "still has " + cmp.Or(s.Version, "no version")
}

// observeMissing handles a check-in without a report of the upgrade under way, which the agent may
// have reported before. idle means that nothing of it is left on the host.
func (s *Subject) observeMissing(idle bool, now time.Time) bool {
	d := s.UpgradeDetails
	if !s.Upgrading() || d == nil {
		return false
	}
	over, changed := s.unreported(now)
	switch since := s.UpgradeUnreported; {
	case idle:
		of := ""
		if s.Component != "" {
			of = " of the component"
		}
		s.presume(fmt.Sprintf("the host has no upgrade%s under way any more, was last in %s, and %s", of, d.State, s.has()))
	case over:
		s.presume(fmt.Sprintf("the agent has reported nothing of the upgrade since %s, when it was in %s, and %s", since.Format(time.RFC3339), d.State, s.has()))
	default:
		return changed
	}
	return true
}

// ObserveMissing handles what a check-in does not report of the upgrades under way, after
// ObserveUpgrade and ObserveComponents. idle means that the agent says that no upgrade runs or waits
// on its host: one that it had reported has ended then, though the report of the end was lost.
// It returns whether the agent's upgrade changed, and the components whose upgrade did.
func (a *Agent) ObserveMissing(idle bool, now time.Time) (upgrade bool, components []string) {
	if idle && a.Upgrading() && a.UpgradeUnreported != nil {
		upgrade = a.changing("", now, func(s *Subject) bool { return s.observeMissing(true, now) })
	}
	for _, id := range a.ComponentActions {
		name := a.ComponentOf(id)
		if a.changing(name, now, func(s *Subject) bool { return !s.component.reports(id) && s.observeMissing(idle, now) }) {
			components = append(components, name)
		}
	}
	return upgrade, components
}

// changing calls change with what a name designates, see Of, stores its upgrade if change says that
// it has changed, and returns that.
func (a *Agent) changing(component string, now time.Time, change func(*Subject) bool) bool {
	s := a.Of(component)
	changed := s.noting(now, func() bool { return change(&s) })
	if changed {
		a.setUpgrade(component, *s.Upgrade)
	}
	return changed
}

// upgradeOf returns the last upgrade of a component, or of the agent itself if the name is empty.
// That of a component is a copy; see changing.
func (a *Agent) upgradeOf(component string) *Upgrade {
	if component == "" {
		return &a.Upgrade
	}
	u := a.ComponentUpgrades[component].Upgrade
	return &u
}

// ObserveAck handles the acknowledgement of an UPGRADE, of the agent or of a component; errText is
// empty if the agent reports no error. It reports whether the document changed.
func (a *Agent) ObserveAck(actionID, errText string, retry bool, now time.Time) bool {
	component := a.ComponentOf(actionID)
	changed := a.changing(component, now, func(s *Subject) bool {
		return actionID == s.UpgradeActionID && !retry && s.observeAck(errText, now)
	})
	if changed && component == "" {
		a.rememberFailed(now)
	}
	return changed
}

func (s *Subject) observeAck(errText string, now time.Time) bool {
	if errText == "" {
		return s.reached(now)
	}
	s.unpresume(now)
	switch {
	case wasCancelled(errText):
		return s.cancelConfirmed(s.UpgradeActionID, now) // before the CANCEL itself is acknowledged
	case !s.Upgrading():
		// A check-in reported the reason first, or the upgrade was rolled back after
		// the version had been reached: then the details follow.
		return false
	}
	s.fail(errText, s.phase())
	return true
}

// CancelUpgrade ends the upgrade, of the agent or of a component, that was cancelled before
// it was done. It reports whether the document changed.
func (a *Agent) CancelUpgrade(actionID string, now time.Time) bool {
	return a.changing(a.ComponentOf(actionID), now, func(s *Subject) bool { return actionID == s.UpgradeActionID && s.cancel() })
}

// ConfirmCancel is CancelUpgrade if the host itself has confirmed that it does not carry the order
// out.
func (a *Agent) ConfirmCancel(actionID string, now time.Time) bool {
	return a.changing(a.ComponentOf(actionID), now, func(s *Subject) bool {
		return actionID == s.UpgradeActionID && s.cancelConfirmed(actionID, now)
	})
}

// ReconcileUpgrade ends an action's upgrade that no message will end, because the action is
// missing (nil), expired or cancelled, or has a result and no effect. It reports
// whether the document changed.
func (a *Agent) ReconcileUpgrade(actionID string, action *Action, result *Result, now time.Time) bool {
	return a.changing(a.ComponentOf(actionID), now, func(s *Subject) bool {
		return s.Upgrading() && s.UpgradeActionID == actionID && actionID != "" && s.reconcile(action, result, now)
	})
}

func (s *Subject) reconcile(action *Action, result *Result, now time.Time) bool {
	if result != nil && result.Presumed {
		result = nil // the server's own, and the host has reported since that it continues
	}
	seen, at := s.Agent.LastActivity(), func(t time.Time) string { return t.Format(time.RFC3339) }
	switch {
	case action == nil:
		if now.Sub(*s.UpgradeStartedAt) < CreateGrace {
			return false
		}
		s.fail("the action was never created: try again", s.phase())
	case action.CancelledAt != nil && s.waits():
		return s.cancel()
	case result != nil && result.Withdrawn():
		// If the host has begun, it reports an outcome or answers the CANCEL; otherwise
		// the upgrade is given up when its rollout has ended.
		return s.waits() && s.cancel()
	case result != nil && result.Error != "":
		s.fail(result.Error, s.phase())
	case result != nil && s.inLockstep():
		return false // its host may wait for others; its rollout bounds that
	case result != nil && s.withoutEffect(result.Timestamp, now):
		if s.Component != "" && s.Version == s.UpgradeTo {
			s.done(now)
			return true
		}
		s.presume(fmt.Sprintf("the agent acknowledged the upgrade at %s and %s", at(result.Timestamp), s.has()))
	case result == nil && s.waits() && action.Expired(now):
		text := fmt.Sprintf("the action expired at %s before the agent began", at(*action.Expiration))
		if d := s.UpgradeDetails; d != nil && retries(d) {
			text = fmt.Sprintf("the action expired at %s while the agent waited to try again: %s", at(*action.Expiration), d.Metadata.RetryErrorMsg)
		}
		s.presume(text)
	case action.Expired(now) && now.Sub(seen) > SilentGrace && (s.Component == "" || s.Agent.Last.At != nil):
		s.presume(fmt.Sprintf("the action expired at %s, and the host has been silent since %s, when it was in %s", at(*action.Expiration), at(seen), s.phase()))
	case s.Component != "" && result == nil && action.Expired(now) && !s.component.reports(s.UpgradeActionID):
		// It has lost what it knew, and the component would count as being upgraded for ever.
		s.presume(fmt.Sprintf("the action expired at %s, and the agent no longer reports the upgrade", at(*action.Expiration)))
	case s.rolledBackUnseen(now):
		s.fail(fmt.Sprintf("the watcher put %s back at %s, and the agent has not checked in since", s.UpgradeTo, at(s.Watch.ReceivedAt)), s.phase())
	default:
		return false
	}
	return true
}

// withoutEffect reports whether the agent has checked in for longer than AckGrace since it acknowledged
// the upgrade, and nothing shows that it works on it.
func (s *Subject) withoutEffect(acked, now time.Time) bool {
	seen := s.Agent.Last.At
	if now.Sub(acked) <= AckGrace || seen == nil || !seen.After(acked.Add(AckGrace)) {
		return false
	}
	if s.Component != "" {
		return true
	}
	downloadsUnseen := now.Sub(acked) <= unseenGrace && !s.Agent.Host().Maker.ReportsPhases(s.Version)
	return s.waits() && !downloadsUnseen
}

// UpgradingBy reports whether an action's upgrade, of the agent or of a component, is under
// way or scheduled.
func (a *Agent) UpgradingBy(actionID string) bool {
	u := a.upgradeOf(a.ComponentOf(actionID))
	return u.UpgradeActionID == actionID && u.Upgrading()
}

// Waits reports whether the agent has not begun an action's upgrade, as far as the server
// knows.
func (a *Agent) Waits(actionID string) bool { return a.upgradeOf(a.ComponentOf(actionID)).waits() }

// GiveUpUpgrade fails an action's upgrade of the agent, or of its component, that nothing
// waits for any longer. It reports whether the document changed.
func (a *Agent) GiveUpUpgrade(actionID, why string, now time.Time) bool {
	return a.changing(a.ComponentOf(actionID), now, func(s *Subject) bool {
		if !s.Upgrading() {
			return false
		}
		s.presume(why)
		return true
	})
}

// Withdrawable reports whether the offer of an action can still be withdrawn from the
// agent: as far as the server knows, the agent has neither begun nor answered.
func (a *Agent) Withdrawable(actionID string) bool {
	u := a.upgradeOf(a.ComponentOf(actionID))
	switch d, w := u.UpgradeDetails, a.Watch; {
	case u.UpgradeActionID != actionID:
		return true // the agent never took the offer, or has another one now
	case d != nil && HostChanging(d.State), w != nil && w.ActionID == actionID:
		return false
	}
	return u.Upgrading() || u.calledOff()
}

// UpgradeResult derives the result of the last upgrade, of a component or of the agent, from the
// document; ok is false while there is none. It does not depend on an acknowledgement, which may be
// lost.
func (a *Agent) UpgradeResult(component string, now time.Time) (r Result, ok bool) {
	s := a.Of(component)
	if s.UpgradeActionID == "" || s.Upgrading() {
		return Result{}, false
	}
	r = Result{ActionID: s.UpgradeActionID, AgentID: a.ID, Hostname: a.Hostname(), Timestamp: now, Outcome: true, Presumed: s.UpgradePresumed}
	switch {
	case s.UpgradeStatus == UpgradeFailed || s.UpgradeStatus == UpgradeRolledBack:
		if s.UpgradeDetails == nil {
			return Result{}, false
		}
		if r.Error = cmp.Or(cause(s.UpgradeDetails), s.noReason()); r.Error == "" {
			// The old version is back before the watcher has reported the reason. The
			// reason follows, and a result is written only once.
			return Result{}, false
		}
	case s.UpgradedAt == nil:
		return Result{}, false // cancelled
	case s.Component != "":
		r.Message = s.Component + " upgraded to " + s.UpgradeTo
	case s.UpgradeRollback:
		r.Message = "rolled back to " + s.UpgradeTo
	default:
		r.Message = "upgraded to " + s.UpgradeTo
	}
	return r, true
}

// noReason returns the error of an upgrade that ended badly if no reason will be reported.
func (s *Subject) noReason() string {
	switch {
	case s.Component != "":
		return "the agent gave no reason"
	case s.Agent.Host().Maker != MakerElastic:
		return ""
	case s.UpgradeStatus == UpgradeRolledBack:
		return "the agent rolled back from " + s.UpgradeTo + " and gave no reason"
	}
	return "the upgrade to " + s.UpgradeTo + " failed, and the agent gave no reason"
}

// OutcomeOf returns the result of the upgrade of an action, of the agent or of a component, by the
// document; ok is false while it is under way, or if another order has replaced it.
func (a *Agent) OutcomeOf(actionID string, now time.Time) (r Result, ok bool) {
	component := a.ComponentOf(actionID)
	if a.upgradeOf(component).UpgradeActionID != actionID {
		return Result{}, false
	}
	return a.UpgradeResult(component, now)
}
