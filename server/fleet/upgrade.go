package fleet

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The states of an upgrade on an agent document:
//
//	Begin ──► started ──► the target version checks in ──► watched ──► details gone: done
//	             │                                            │
//	             ├─ FAILED reported, or acked with an error   └─ ROLLBACK reported: rolled_back
//	             ├─ presumed: reported before, and the host says that it is idle, or reports nothing
//	             │  of it for UnreportedGrace: failed, until a report shows that it continues
//	             └─ reconciled: action gone, expired, or acked but the old version stays: failed
//
// A check-in without upgrade details says nothing: an agent that has just started may know less
// than it will.
//
// An agent that failed and will retry goes back to SCHEDULED; the upgrade does not end.
// watch.go handles what the host's watcher reports, rollback.go the rollbacks that
// operators ask for.
//
// An acknowledgement alone never completes an upgrade: it only means that the agent
// accepted the action. The version that checks in decides. Only BeginUpgrade starts an
// upgrade, so every path above leaves "updating".

// Upgrading reports whether an upgrade is under way or scheduled, by Kibana's rule.
func (a *Agent) Upgrading() bool { return a.UpgradeStartedAt != nil && a.UpgradedAt == nil }

// BeginUpgrade marks the agent as being upgraded by an action from start on, which is in
// the future for a scheduled upgrade.
func (a *Agent) BeginUpgrade(actionID, target string, start time.Time) {
	a.UpgradeStartedAt = &start
	a.UpgradedAt = nil
	a.UpgradeStatus = UpgradeStarted
	a.UpgradeDetails = nil
	a.UpgradeActionID = actionID
	a.UpgradeTarget = target
	a.UpgradeFrom = a.Version
	a.UpgradeRollback, a.Undoes, a.UpgradeEndReported = false, nil, false
	a.UpgradeOrder = UpgradeOrder{UpgradePhases: []Phase{{State: ProgressSent, At: start}}}
}

// ObserveUpgrade handles what a check-in reports: the version that runs, and the
// agent's upgrade details or nil. It reports whether the document changed.
func (a *Agent) ObserveUpgrade(version string, details *agentapi.UpgradeDetails, now time.Time) bool {
	changed := a.noting(now, func() bool { return a.observeUpgrade(version, details, now) })
	return a.rememberFailed(now) || changed
}

func (a *Agent) observeUpgrade(version string, details *agentapi.UpgradeDetails, now time.Time) bool {
	changed := a.Version != version && version != ""
	if changed {
		if details == nil && a.rolledBackSilently(version, now) {
			a.endSilentRollback(fmt.Sprintf("the agent runs %s again and has reported no reason", version))
			a.runs(version, now)
			return true
		}
		a.runs(version, now)
	}
	if changed || a.calledOff() {
		a.arrivedLate(details, now)
	}
	if details == nil {
		return a.observeNoDetails(now) || changed
	}
	details, there := a.goingBack(details)
	if there {
		return a.wentBack(now) || changed
	}
	changed = a.observeUndone(details, now) || changed
	if a.beganOnHost(details) {
		a.BeginUpgrade("", details.TargetVersion, now)
		changed = true
	}
	if details.ActionID != a.UpgradeActionID {
		// Details of an earlier upgrade, which the agent repeats until it begins the
		// new one, or of a cancelled action.
		if d := a.UpgradeDetails; d != nil && hasBegun(d.State) {
			changed = a.observeUnreported(now) || changed
		}
		return changed
	}
	if hasBegun(details.State) {
		changed = a.unpresume(now) || changed
	}
	changed = a.reported() || changed
	if a.endedBadly() && !details.State.Ended() {
		// The report was sent before the end and arrived after it, on another
		// connection. If the upgrade continues after all, the version that runs will
		// show it.
		return changed
	}
	if details.State == agentapi.UpgradeFailed && wasCancelled(details.Metadata.ErrorMsg) {
		return a.dropCancelled(details.ActionID, now) || changed
	}
	changed = a.observeStart(details, now) || changed
	details = keepReason(a.UpgradeDetails, details)
	if !reflect.DeepEqual(a.UpgradeDetails, details) {
		a.UpgradeDetails = details
		changed = true
	}
	if details.State.Ended() && !a.UpgradeEndReported {
		a.UpgradeEndReported, changed = true, true
	}
	switch {
	case details.State == agentapi.UpgradeRollback && a.UpgradeStatus != UpgradeRolledBack:
		a.endBadly(UpgradeRolledBack)
		changed = true
	case details.State == agentapi.UpgradeFailed && a.UpgradeStatus != UpgradeFailed:
		a.endBadly(UpgradeFailed)
		changed = true
	case !details.State.Ended() && a.reached(now):
		changed = true
	}
	return changed
}

// observeStart moves the start of a scheduled upgrade to the time that the agent reports:
// an action that spreads its starts gives each agent its own. It reports whether the
// document changed.
func (a *Agent) observeStart(d *agentapi.UpgradeDetails, now time.Time) bool {
	if !a.Upgrading() {
		return false
	}
	start := *a.UpgradeStartedAt
	switch at := d.Metadata.ScheduledAt; {
	case d.State == agentapi.UpgradeRequested || retries(d):
	case d.State != agentapi.UpgradeScheduled && start.After(now):
		start = now // the host's clock is ahead
	case d.State == agentapi.UpgradeScheduled && at != nil && at.After(now) && at.Sub(now) < MaxStartDelay:
		start = *at
	}
	if start.Equal(*a.UpgradeStartedAt) {
		return false
	}
	a.UpgradeStartedAt = &start
	return true
}

// arrivedLate revokes a presumed failure, or a withdrawal that came too late, when the
// target version begins to run after all.
func (a *Agent) arrivedLate(d *agentapi.UpgradeDetails, now time.Time) {
	denied := d != nil && (d.State.Ended() || d.ActionID != a.UpgradeActionID)
	if w := a.Watch; w != nil && w.Stage == agentapi.BeaconRollbackFailed && w.ActionID == a.UpgradeActionID {
		denied = true // it runs only because its rollback failed
	}
	// The same version may have reached the host in another way, so after a
	// cancellation only the agent's own details show that the upgrade continued.
	wentOn := a.calledOff() && d != nil
	if (a.UpgradeStatus == UpgradeFailed || wentOn) && a.runsTarget() && !denied {
		a.UpgradedAt, a.UpgradeStatus, a.UpgradeDetails, a.UpgradeEndReported, a.UpgradePresumed = &now, UpgradeNone, nil, false, false
	}
}

// calledOff reports whether the last upgrade was cancelled or withdrawn.
func (a *Agent) calledOff() bool {
	return a.UpgradeActionID != "" && a.UpgradeStatus == UpgradeNone && a.UpgradeStartedAt == nil && a.UpgradedAt == nil
}

// cause returns why an upgrade ended, as a sentence; empty if that is not known.
func cause(d *agentapi.UpgradeDetails) string {
	return cmp.Or(d.Metadata.ErrorMsg, d.Metadata.Reason)
}

// wasCancelled reports whether an error text is that of an upgrade cancelled in flight.
func wasCancelled(errText string) bool { return strings.HasPrefix(errText, agentapi.Cancelled) }

// beganOnHost reports whether the details are the first report of an upgrade that was
// started on the host itself. The server learns of such an upgrade only here. It may have ended
// already: Elastic's agents report nothing during a poll, and a version that never checks in leaves
// it to the version before to report the rollback.
func (a *Agent) beganOnHost(d *agentapi.UpgradeDetails) bool {
	switch {
	case d.ActionID != "":
		return false
	case d.State.Ended() && a.UpgradeActionID != "":
		// Unless the server's own upgrade succeeded, the agent may repeat what it reported before.
		return a.UpgradedAt != nil && a.UpgradeDetails == nil && !a.UpgradeRollback
	case d.State.Ended():
		return a.UpgradeTarget != d.TargetVersion
	case a.UpgradeActionID != "":
		return !a.Upgrading() // the server's own upgrade continues until it ends
	}
	followed := a.UpgradeDetails != nil && !a.UpgradeDetails.State.Ended() && a.UpgradeTarget == d.TargetVersion
	return !followed
}

// silentWatch is how soon after an upgrade a return to the version before it can only be
// a rollback: Elastic's watcher watches 11 minutes, and restarts the agent five times with
// pauses of up to 90 seconds.
const silentWatch = 30 * time.Minute

// rolledBackSilently reports whether an agent that now runs version, and reports no upgrade,
// was rolled back by its watcher. Elastic's agents before 9.2 remove the watcher's report.
func (a *Agent) rolledBackSilently(version string, now time.Time) bool {
	return a.UpgradedAt != nil && now.Sub(*a.UpgradedAt) < silentWatch && a.runsTarget() && version == a.UpgradeFrom &&
		a.Host().Maker == MakerElastic
}

// endSilentRollback ends an upgrade that the host has undone without a report.
func (a *Agent) endSilentRollback(why string) {
	a.endBadly(UpgradeRolledBack)
	a.UpgradeDetails = &agentapi.UpgradeDetails{
		TargetVersion: a.UpgradeTarget, ActionID: a.UpgradeActionID, State: agentapi.UpgradeRollback,
		Metadata: agentapi.UpgradeMetadata{ErrorMsg: why},
	}
}

func (a *Agent) observeNoDetails(now time.Time) bool {
	d := a.UpgradeDetails
	switch {
	case a.Upgrading() && a.runsTarget():
		a.reached(now)
		a.UpgradeDetails = nil
		return true
	case d == nil:
		return false // not begun, or there is none
	case a.Upgrading():
		return a.observeUnreported(now)
	case d.State.Ended():
		// Operators can read the reason until the next upgrade, though some agents drop
		// it sooner.
		return false
	default:
		a.UpgradeDetails = nil // the watch ended well
		return true
	}
}

// observeUnreported handles a check-in without a report of the upgrade under way, which the agent
// may have reported before.
func (a *Agent) observeUnreported(now time.Time) bool {
	d := a.UpgradeDetails
	if !a.Upgrading() || d == nil || d.State.Ended() {
		return false
	}
	over, changed := a.unreported(now)
	if over {
		a.presume(fmt.Sprintf("the agent has reported nothing of the upgrade since %s, when it was in %s, and still runs %s", a.UpgradeUnreported.Format(time.RFC3339), d.State, a.Version))
	}
	return over || changed
}

// ObserveMissing handles what a check-in does not report of the upgrades under way, after
// ObserveUpgrade and ObserveComponents. idle means that the agent says that no upgrade runs or waits
// on its host: one that it had reported has ended then, though the report of the end was lost.
// It returns whether the agent's upgrade changed, and the components whose upgrade did.
func (a *Agent) ObserveMissing(idle bool, now time.Time) (upgrade bool, components []string) {
	if d := a.UpgradeDetails; idle && a.Upgrading() && d != nil && a.UpgradeUnreported != nil {
		upgrade = a.noting(now, func() bool {
			a.presume(fmt.Sprintf("the host has no upgrade under way any more, was last in %s, and still runs %s", d.State, a.Version))
			return true
		})
	}
	for _, id := range a.ComponentActions {
		name, u, _ := a.upgradedBy(id)
		if c, _ := a.Component(name); u.noting(now, func() bool { return u.observeMissing(&c, idle, now) }) {
			a.setUpgrade(name, u)
			components = append(components, name)
		}
	}
	return upgrade, components
}

// presume fails the upgrade without a report of its end.
func (a *Agent) presume(why string) {
	phase := agentapi.UpgradeRequested
	if a.UpgradeDetails != nil {
		phase = a.UpgradeDetails.State
	}
	a.fail(why, phase)
	a.UpgradePresumed = true
}

// unpresume takes back a failure that the server has presumed, since the host reports the upgrade
// again. It reports whether there was one.
func (a *Agent) unpresume(now time.Time) bool {
	if !a.UpgradePresumed {
		return false
	}
	at := a.ordered(now)
	a.UpgradeStartedAt, a.UpgradeStatus, a.UpgradeDetails, a.UpgradePresumed = &at, UpgradeStarted, nil, false
	return true
}

// ObserveAck handles the acknowledgement of an UPGRADE; errText is empty if the agent
// reports no error. It reports whether the document changed.
func (a *Agent) ObserveAck(actionID, errText string, retry bool, now time.Time) bool {
	return a.noting(now, func() bool { return a.observeAck(actionID, errText, retry, now) })
}

func (a *Agent) observeAck(actionID, errText string, retry bool, now time.Time) bool {
	if actionID != a.UpgradeActionID || retry {
		return false
	}
	if errText == "" {
		return a.reached(now)
	}
	a.unpresume(now)
	if wasCancelled(errText) { // before the CANCEL itself is acknowledged
		cancelled := a.cancelUpgrade(actionID)
		return a.confirmCancel(actionID, now) || cancelled
	}
	if !a.Upgrading() {
		// A check-in reported the reason first, or the upgrade was rolled back after
		// the target had been reached: then the details follow.
		return false
	}
	phase := agentapi.UpgradeRequested
	if d := a.UpgradeDetails; d != nil {
		phase = d.State
		if phase.Ended() {
			phase = d.Metadata.FailedState
		}
	}
	a.fail(errText, phase)
	a.rememberFailed(now)
	return true
}

// CancelUpgrade ends the upgrade, of the agent or of a component, that was cancelled before
// it was done. It reports whether the document changed.
func (a *Agent) CancelUpgrade(actionID string, now time.Time) bool {
	if a.cancelComponent(actionID, now) {
		return true
	}
	return a.noting(now, func() bool { return a.cancelUpgrade(actionID) })
}

// ConfirmCancel is CancelUpgrade if the host itself has confirmed that it does not carry the order
// out.
func (a *Agent) ConfirmCancel(actionID string, now time.Time) bool {
	changed := a.CancelUpgrade(actionID, now)
	name, u, ok := a.upgradedBy(actionID)
	if !ok {
		return a.confirmCancel(actionID, now) || changed
	}
	if u.calledOff() && u.confirm(now) {
		a.setUpgrade(name, u)
		changed = true
	}
	return changed
}

func (a *Agent) confirmCancel(actionID string, now time.Time) bool {
	return actionID == a.UpgradeActionID && a.calledOff() && a.confirm(now)
}

func (a *Agent) cancelUpgrade(actionID string) bool {
	if actionID != a.UpgradeActionID || !a.Upgrading() && !a.UpgradePresumed {
		return false
	}
	a.UpgradeStartedAt, a.UpgradeStatus, a.UpgradeDetails, a.UpgradePresumed = nil, UpgradeNone, nil, false
	a.resume()
	return true
}

// dropCancelled handles the agent's report that its upgrade was cancelled. It also
// drops a phase that the agent reported while the CANCEL was on its way.
func (a *Agent) dropCancelled(actionID string, now time.Time) bool {
	late := a.UpgradeStatus == UpgradeNone && a.UpgradedAt == nil && a.UpgradeDetails != nil
	if late {
		a.UpgradeDetails = nil
	}
	cancelled := a.cancelUpgrade(actionID)
	return a.confirmCancel(actionID, now) || cancelled || late
}

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
)

// hasBegun reports whether an agent in this phase has begun to work on the upgrade.
func hasBegun(s agentapi.UpgradeState) bool {
	return s != agentapi.UpgradeRequested && s != agentapi.UpgradeScheduled
}

// unseenGrace is AckGrace for an agent that reports no phases: its download may take 120
// minutes, and it unpacks the package and restarts after that.
const unseenGrace = 150 * time.Minute

// downloadsUnseen reports whether an agent that acknowledged its upgrade may be
// downloading without a report.
func (a *Agent) downloadsUnseen(acked, now time.Time) bool {
	return now.Sub(acked) <= unseenGrace && !a.Host().Maker.ReportsPhases(a.Version)
}

// ReconcileUpgrade ends an upgrade that no message will end, because its action is
// missing (nil), expired or cancelled, or has a result and no effect. It reports
// whether the document changed.
func (a *Agent) ReconcileUpgrade(action *Action, result *Result, now time.Time) bool {
	return a.noting(now, func() bool { return a.reconcileUpgrade(action, result, now) })
}

func (a *Agent) reconcileUpgrade(action *Action, result *Result, now time.Time) bool {
	if !a.Upgrading() || a.UpgradeActionID == "" {
		return false
	}
	phase := agentapi.UpgradeRequested
	if a.UpgradeDetails != nil {
		phase = a.UpgradeDetails.State
	}
	if result != nil && result.Presumed {
		result = nil // the server's own, and the host has reported since that it continues
	}
	begun := hasBegun(phase)
	switch {
	case action == nil:
		if now.Sub(*a.UpgradeStartedAt) < CreateGrace {
			return false
		}
		a.fail("the action was never created: try again", phase)
	case action.CancelledAt != nil && !begun:
		return a.cancelUpgrade(action.ID)
	case result != nil && result.Withdrawn():
		// If the host has begun, it reports an outcome or answers the CANCEL; otherwise
		// the upgrade is given up when its rollout has ended.
		return !begun && a.cancelUpgrade(action.ID)
	case result != nil && result.Error != "":
		a.fail(result.Error, phase)
	case result != nil && !begun && now.Sub(result.Timestamp) > AckGrace && !a.downloadsUnseen(result.Timestamp, now) && a.Last.At != nil && a.Last.At.After(result.Timestamp.Add(AckGrace)):
		a.presume(fmt.Sprintf("the agent acknowledged the upgrade at %s and still runs %s", result.Timestamp.Format(time.RFC3339), a.Version))
	case result == nil && !begun && action.Expired(now):
		text := fmt.Sprintf("the action expired at %s before the agent began", action.Expiration.Format(time.RFC3339))
		if a.retrying() {
			text = fmt.Sprintf("the action expired at %s while the agent waited to try again: %s", action.Expiration.Format(time.RFC3339), a.UpgradeDetails.Metadata.RetryErrorMsg)
		}
		a.presume(text)
	case action.Expired(now) && now.Sub(a.LastActivity()) > SilentGrace:
		a.presume(fmt.Sprintf("the action expired at %s, and the host has been silent since %s, when it was in %s", action.Expiration.Format(time.RFC3339), a.LastActivity().Format(time.RFC3339), phase))
	case a.rolledBackUnseen(now):
		a.fail(fmt.Sprintf("the watcher put %s back at %s, and the agent has not checked in since", a.UpgradeTarget, a.Watch.ReceivedAt.Format(time.RFC3339)), phase)
	default:
		return false
	}
	return true
}

// UpgradingBy reports whether an action's upgrade, of the agent or of a component, is under
// way or scheduled.
func (a *Agent) UpgradingBy(actionID string) bool {
	if _, u, ok := a.upgradedBy(actionID); ok {
		return u.Upgrading()
	}
	return a.UpgradeActionID == actionID && a.Upgrading()
}

// Waits reports whether the agent has not begun an action's upgrade, as far as the server
// knows.
func (a *Agent) Waits(actionID string) bool {
	if _, u, ok := a.upgradedBy(actionID); ok {
		return u.waits()
	}
	d := a.UpgradeDetails
	return d == nil || d.State == agentapi.UpgradeScheduled || d.State == agentapi.UpgradeRequested
}

// GiveUpUpgrade fails an action's upgrade of the agent, or of its component, that nothing
// waits for any longer. It reports whether the document changed.
func (a *Agent) GiveUpUpgrade(actionID, why string, now time.Time) bool {
	if name, u, ok := a.upgradedBy(actionID); ok {
		if !u.Upgrading() {
			return false
		}
		u.noting(now, func() bool { u.presume(why); return true })
		a.setUpgrade(name, u)
		return true
	}
	if !a.Upgrading() {
		return false
	}
	return a.noting(now, func() bool { a.presume(why); return true })
}

// HostChanging reports whether an agent in this phase has begun to change its host.
// Before that an upgrade can be withdrawn without a trace.
func HostChanging(s agentapi.UpgradeState) bool {
	switch s {
	case "", agentapi.UpgradeRequested, agentapi.UpgradeScheduled, agentapi.UpgradeDownloading:
		return false
	}
	return true
}

// Withdrawable reports whether the offer of an action can still be withdrawn from the
// agent: as far as the server knows, the agent has neither begun nor answered.
func (a *Agent) Withdrawable(actionID string) bool {
	if _, u, ok := a.upgradedBy(actionID); ok {
		return (u.Details == nil || !HostChanging(u.Details.State)) && (u.Upgrading() || u.calledOff())
	}
	if a.UpgradeActionID != actionID {
		return true // the agent never took the offer, or has another one now
	}
	if d := a.UpgradeDetails; d != nil && HostChanging(d.State) {
		return false
	}
	if w := a.Watch; w != nil && w.ActionID == actionID {
		return false
	}
	return a.Upgrading() || a.calledOff()
}

// UpgradeResult derives the result of the agent's last upgrade from its document; ok is
// false while there is none. It does not depend on an acknowledgement, which may be
// lost.
func (a *Agent) UpgradeResult(now time.Time) (r Result, ok bool) {
	if a.UpgradeActionID == "" || a.Upgrading() {
		return Result{}, false
	}
	r = Result{ActionID: a.UpgradeActionID, AgentID: a.ID, Hostname: a.Hostname(), Timestamp: now, Outcome: true, Presumed: a.UpgradePresumed}
	switch {
	case a.UpgradeStatus == UpgradeFailed || a.UpgradeStatus == UpgradeRolledBack:
		if a.UpgradeDetails == nil {
			return Result{}, false
		}
		r.Error = cause(a.UpgradeDetails)
		if r.Error == "" && a.Host().Maker == MakerElastic {
			r.Error = "the upgrade to " + a.UpgradeTarget + " failed, and the agent gave no reason"
			if a.UpgradeStatus == UpgradeRolledBack {
				r.Error = "the agent rolled back from " + a.UpgradeTarget + " and gave no reason"
			}
		}
		if r.Error == "" {
			// The old version is back before the watcher has reported the reason. The
			// reason follows, and a result is written only once.
			return Result{}, false
		}
	case a.UpgradedAt != nil:
		r.Message = "upgraded to " + a.UpgradeTarget
		if a.UpgradeRollback {
			r.Message = "rolled back to " + a.UpgradeTarget
		}
	default:
		return Result{}, false // cancelled
	}
	return r, true
}

// OutcomeOf returns the result of the upgrade of an action, of the agent or of a component, by the
// document; ok is false while it is under way, or if another order has replaced it.
func (a *Agent) OutcomeOf(actionID string, now time.Time) (r Result, ok bool) {
	if name := a.ComponentOf(actionID); name != "" {
		return a.ComponentResult(name, now)
	}
	if a.UpgradeActionID != actionID || actionID == "" {
		return Result{}, false
	}
	return a.UpgradeResult(now)
}

// retrying reports whether the agent has failed and waits to retry.
func (a *Agent) retrying() bool { return a.UpgradeDetails != nil && retries(a.UpgradeDetails) }

func retries(d *agentapi.UpgradeDetails) bool {
	return d.State == agentapi.UpgradeScheduled && d.Metadata.RetryErrorMsg != ""
}

func (a *Agent) runsTarget() bool { return a.UpgradeTarget != "" && a.Version == a.UpgradeTarget }

func (a *Agent) reached(now time.Time) bool {
	if !a.Upgrading() || !a.runsTarget() {
		return false
	}
	a.UpgradeStartedAt, a.UpgradedAt, a.UpgradeStatus = nil, &now, UpgradeNone
	return true
}

// endedBadly reports whether the last upgrade failed or was rolled back, and the reason
// is known.
func (a *Agent) endedBadly() bool {
	return a.UpgradeStatus != UpgradeNone && a.UpgradeStatus != UpgradeStarted && a.UpgradeDetails != nil && a.UpgradeDetails.State.Ended()
}

func (a *Agent) endBadly(s UpgradeStatus) {
	a.UpgradeStartedAt, a.UpgradedAt, a.UpgradeStatus, a.UpgradePresumed = nil, nil, s, false
}

func (a *Agent) fail(msg string, phase agentapi.UpgradeState) {
	a.endBadly(UpgradeFailed)
	a.UpgradeDetails = &agentapi.UpgradeDetails{
		TargetVersion: a.UpgradeTarget, ActionID: a.UpgradeActionID, State: agentapi.UpgradeFailed,
		Metadata: agentapi.UpgradeMetadata{FailedState: phase, ErrorMsg: msg},
	}
}

// Catalog lists the published packages of agents, or those of one component, with the fields
// that decisions need.
type Catalog []Package

// OfComponent returns the packages of a component, or with an empty name, those of agents.
func OfComponent(packages []Package, name string) Catalog {
	return Catalog(packages).only(func(p Package) bool { return p.Component == name })
}

// Has reports whether there is a package of a full version for a host.
func (c Catalog) Has(version string, host HostMetadata) bool {
	return slices.ContainsFunc(c, func(p Package) bool { return p.Version == version && p.Fits(host) })
}

// For returns the packages of a full version for a host. There are several if one is for any
// platform, or if the host's architecture is not known.
func (c Catalog) For(version string, host HostMetadata) Catalog {
	return c.only(func(p Package) bool { return p.Version == version && p.Fits(host) })
}

// Of returns the packages of a full version.
func (c Catalog) Of(version string) Catalog {
	return c.only(func(p Package) bool { return p.Version == version })
}

// only returns the packages for which keep is true.
func (c Catalog) only(keep func(Package) bool) Catalog {
	var out Catalog
	for _, p := range c {
		if keep(p) {
			out = append(out, p)
		}
	}
	return out
}

// Fits reports whether the package is for the host: for its agent's maker and its system,
// which has to be known, and for its architecture if that is known.
func (p Package) Fits(host HostMetadata) bool {
	arch := host.Host.Architecture
	return p.Maker == host.Maker && (p.OS == "" || p.OS == host.OS.Type) && (arch == "" || p.Arch == "" || p.Arch == goArch(arch))
}

// NewestAgent returns the package that a new host of a platform, such as linux-amd64, is
// installed from: the newest release that hosts accept, and a snapshot only if there is no
// release.
func (c Catalog) NewestAgent(platform string) (newest Package, ok bool) {
	for _, p := range c {
		if p.Component != "" || p.Maker != MakerMuster || p.Withheld != "" || p.OS+"-"+p.Arch != platform {
			continue
		}
		later := strings.Compare(manifest.VersionKey(p.Version), manifest.VersionKey(newest.Version)) > 0
		if !ok || newest.Snapshot && !p.Snapshot || newest.Snapshot == p.Snapshot && later {
			newest, ok = p, true
		}
	}
	return newest, ok
}

// checkSigned returns an error that says why hosts would refuse every package of the
// catalog, or nil.
func (c Catalog) checkSigned() error {
	var why error
	for _, p := range c {
		switch {
		case p.Withheld == "":
			return nil
		case why == nil:
			e := Errorf(Invalid, "hosts will not install %s: %s (those enrolled with --trust-key alone would: force it for them)", p.File, p.Withheld).unlessForced(CauseWithheld)
			if p.BelowFloor {
				e.Cause, e.Forceable = CauseFloor, false // nearly all hosts refuse it also then
			}
			why = e
		}
	}
	return why
}

// checkFits returns an error that says why none of the packages, which are of one version,
// is for the host.
func (c Catalog) checkFits(agentID, version string, host HostMetadata) error {
	switch {
	case host.OS.Type == "":
		return Errorf(Invalid, "agent %s reports no operating system that is known (platform %q, family %q), so no package can be chosen for it: say in source_uri where its package is", agentID, host.OS.Platform, host.OS.Family).Because(CausePlatform)
	case len(c) > 0 && !slices.ContainsFunc(c, func(p Package) bool { return p.Maker == host.Maker }):
		if host.Maker != MakerElastic {
			return Errorf(Invalid, "agent %s is Muster's agent, and version %s is published for Elastic Agents only", agentID, version).Because(CausePlatform)
		}
		return Errorf(Invalid, "agent %s is an Elastic Agent, and version %s is published for Muster's agents only: publish Elastic's package with `muster package push --elastic`", agentID, version).Because(CausePlatform)
	}
	return Errorf(Invalid, "there is no package of version %s for %s/%s", version, host.OS.Type, host.Host.Architecture).Because(CausePlatform)
}

// Versions returns the distinct full versions that can be installed, newest first.
func (c Catalog) Versions() []string {
	seen := map[string]bool{}
	out := []string{}
	for _, p := range c {
		if !seen[p.Version] && p.Withheld == "" {
			seen[p.Version] = true
			out = append(out, p.Version)
		}
	}
	manifest.SortVersions(out)
	return out
}

// goArch converts the kernel's name of an architecture, which Elastic's agents report,
// to Go's.
func goArch(arch string) string {
	switch arch {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return arch
}

// CheckSourceURI returns an error unless hosts may fetch packages from uri, as far as that does
// not depend on their configuration: http is for the hosts that allow it.
func CheckSourceURI(field, uri string) error {
	if uri == "" {
		return nil
	}
	scheme, rest, _ := strings.Cut(uri, "://")
	authority := strings.FieldsFunc(rest+"/", func(r rune) bool { return strings.ContainsRune("/?#", r) })
	switch {
	case scheme != "https" && scheme != "http" || len(authority) == 0:
		return FieldError(field, "is not https://host/path (http://host/path needs hosts whose agent.yml lists it in upgrade.download.allow_http)")
	case strings.Contains(authority[0], "@"):
		return FieldError(field, "holds a user or a password, which hosts refuse: let the source serve packages without")
	}
	return nil
}

// UpgradeRequest is an operator's request to upgrade agents.
type UpgradeRequest struct {
	Version   string
	SourceURI string
	Force     bool
	// Retry asks for the version although it failed on the host before. It overrides only that; the
	// host, which remembers it as well, gets the upgrade with force.
	Retry bool
}

// Check validates the request without regard to any agent.
func (w UpgradeRequest) Check(c Catalog) error {
	return w.check(c, "package of version "+w.Version)
}

// check is Check with the packages of what is upgraded, and what such a package is called.
func (w UpgradeRequest) check(c Catalog, called string) error {
	if w.Version == "" {
		return FieldError("body.version", "is missing: name the version to upgrade to, such as 1.2.3")
	}
	if _, err := manifest.ParseVersion(w.Version); err != nil {
		return FieldError("body.version", "%w", err)
	}
	if w.SourceURI != "" {
		return CheckSourceURI("body.source_uri", w.SourceURI)
	}
	if of := c.Of(w.Version); len(of) > 0 {
		if err := of.checkSigned(); err != nil && !w.Force {
			return FieldError("body.version", "%w", err)
		}
		return nil
	}
	published := "nothing is published yet"
	if v := c.Versions(); len(v) > 0 {
		published = "published are " + List(v)
	}
	return FieldError("body.version", "no %s is published (%s): publish it with `muster package push`, or say where it is (source_uri, --source-uri)", called, published)
}

// CheckUpgrade returns an error that says why this agent cannot be upgraded as
// requested, or nil. The text is shown to operators as it is.
func (a *Agent) CheckUpgrade(w UpgradeRequest, c Catalog) error {
	host := a.Host()
	var published, fitting Catalog // of the version; empty if the package comes from elsewhere
	if w.SourceURI == "" {
		published = c.Of(w.Version)
		fitting = published.only(func(p Package) bool { return p.Fits(host) })
	}
	switch {
	case a.checkAble() != nil:
		return a.checkAble()
	case w.SourceURI == "" && len(fitting) == 0:
		return published.checkFits(a.ID, w.Version, host)
	case a.runsBuildOf(w.Version, fitting):
		// Also with force: the host would load all of it, and then refuse it.
		return Errorf(Invalid, "agent %s already runs %s", a.ID, a.Version).Because(CauseRunning)
	case w.Force:
		return nil
	case fitting.checkSigned() != nil:
		return fitting.checkSigned()
	case !w.Retry && a.CheckFailedBefore(w.Version, c) != nil:
		return a.CheckFailedBefore(w.Version, c)
	case a.checkIdle() != nil:
		return a.checkIdle()
	}
	switch cmp, err := manifest.CompareVersions(w.Version, a.Version); {
	case err != nil:
		return Errorf(Invalid, "agent %s runs a version that cannot be compared: %w", a.ID, err).unlessForced(CauseUnknownVersion)
	case cmp == 0:
		return Errorf(Invalid, "agent %s already runs %s", a.ID, a.Version).unlessForced(CauseRunning)
	case cmp < 0:
		return Errorf(Invalid, "agent %s runs %s: going down to %s needs force, and a host that does not keep that version refuses it unless its publishers allow it (`muster package allow-downgrade`)", a.ID, a.Version, w.Version).unlessForced(CauseNewer)
	}
	return a.checkSpace(w.Version, host, fitting)
}

// runsBuildOf reports whether the agent runs what each of the packages holds, is not being upgraded
// from it, and does not carry out an upgrade that was called off, as far as is known. Builds of one version differ in their hash, and hosts refuse only their own;
// one that does not report it runs the release, but any build of a snapshot.
func (a *Agent) runsBuildOf(version string, fitting Catalog) bool {
	if s := a.Of(""); a.Version != version || a.Upgrading() || s.Unconfirmed() || len(fitting) == 0 {
		return false
	}
	build := a.Host().Elastic.Agent.Build.Original
	return !slices.ContainsFunc(fitting, func(p Package) bool {
		if build == "" || p.Hash == "" {
			return p.Snapshot
		}
		return !strings.Contains(build, p.Hash[:min(len(p.Hash), manifest.HashLength)])
	})
}

// checkSpace returns an error if the host reports too little free space for each of the packages,
// which are of one version. The host makes the same check before it downloads. It needs no space for
// a version that it has. What it reported is rounded down and may be out of date, so force orders the
// upgrade, and the host decides.
func (a *Agent) checkSpace(version string, host HostMetadata, fitting Catalog) error {
	free := host.Muster.FreeBytes
	if free == nil || len(fitting) == 0 || slices.Contains(a.StagedVersions, version) ||
		slices.ContainsFunc(a.Kept.Rollbacks, func(r agentapi.Rollback) bool { return r.Version == version }) {
		return nil
	}
	need := slices.MinFunc(fitting, func(p, q Package) int { return cmp.Compare(p.Needs, q.Needs) }).Needs
	if *free >= need {
		return nil
	}
	return Errorf(Invalid, "agent %s needs %s of free disk space for version %s%s%s: free some on the host; with force the host decides by what is free then",
		a.ID, megabytes(need), version, spaceReported, megabytes(*free)).unlessForced(CauseNoSpace)
}

func megabytes(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }

// VersionKey returns a string that sorts in the order of versions, for stores, which
// compare text; see manifest.VersionKey.
func VersionKey(version string) string { return manifest.VersionKey(version) }
