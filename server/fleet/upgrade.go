package fleet

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/agentapi"
)

// The life of an upgrade on an agent document:
//
//	Begin ──► started ──► the target version checks in ──► watched ──► details gone: done
//	             │                                            │
//	             ├─ FAILED reported, or acked with an error   └─ ROLLBACK reported: rolled_back
//	             └─ settled: action gone, expired, or acked but the old version stays: failed
//
// An agent that failed and will try again goes back to SCHEDULED: nothing ends.
// What the watcher of the host says of the end is in watch.go, rollbacks that an
// operator asks for in rollback.go.
//
// An acknowledgement alone never ends an upgrade well: it says that the agent
// took the action, the version that checks in says what runs. And nothing but
// Begin starts one, so every path above leaves "updating".

// Upgrading says whether an upgrade is under way, as Kibana does.
func (a *Agent) Upgrading() bool { return a.UpgradeStartedAt != nil && a.UpgradedAt == nil }

// BeginUpgrade marks the agent as being upgraded by an action.
func (a *Agent) BeginUpgrade(actionID, target string, now time.Time) {
	a.UpgradeStartedAt = &now
	a.UpgradedAt = nil
	a.UpgradeStatus = UpgradeStarted
	a.UpgradeDetails = nil
	a.UpgradeActionID = actionID
	a.UpgradeTarget = target
	a.UpgradeFrom = a.Version
	a.UpgradeRollback, a.Undoes, a.UpgradeEndTold = false, nil, false
}

// ObserveUpgrade takes in what a check-in says: the version that runs, and the
// agent's upgrade details or nil. It says whether the document changed.
func (a *Agent) ObserveUpgrade(version string, details *agentapi.UpgradeDetails, now time.Time) bool {
	changed := a.Version != version && version != ""
	if changed {
		a.runs(version, now)
		a.arrivedLate(details, now)
	}
	if details == nil {
		return a.observeNoDetails(now) || changed
	}
	changed = a.observeUndone(details, now) || changed
	if a.beganOnHost(details) {
		a.BeginUpgrade("", details.TargetVersion, now)
		changed = true
	}
	if details.ActionID != a.UpgradeActionID {
		// Details of an earlier upgrade, which the agent repeats until it takes
		// up the new one, or of an action cancelled and forgotten.
		return changed
	}
	if a.endedBadly() && !details.State.Ended() {
		// A report from before the end, overtaken by it on another connection.
		// Should the upgrade go on all the same, the version that runs tells.
		return changed
	}
	if details.State == agentapi.UpgradeFailed && wasCancelled(details.Metadata.ErrorMsg) {
		return a.dropCancelled(details.ActionID) || changed
	}
	details = a.withReason(details)
	if !reflect.DeepEqual(a.UpgradeDetails, details) {
		a.UpgradeDetails = details
		changed = true
	}
	if details.State.Ended() && !a.UpgradeEndTold {
		a.UpgradeEndTold, changed = true, true
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

// arrivedLate takes back a failure that was only presumed, and a withdrawal that
// came too late, when the version that was aimed at begins to run after all:
// what runs decides.
func (a *Agent) arrivedLate(d *agentapi.UpgradeDetails, now time.Time) {
	denied := d != nil && (d.State.Ended() || d.ActionID != a.UpgradeActionID)
	if w := a.Watch; w != nil && w.Stage == agentapi.BeaconRollbackFailed && w.ActionID == a.UpgradeActionID {
		denied = true // it runs because it could not be put back
	}
	// Of an upgrade that was called off only the agent can say that it went on:
	// the same version may have come to the host in another way.
	wentOn := a.calledOff() && d != nil
	if (a.UpgradeStatus == UpgradeFailed || wentOn) && a.runsTarget() && !denied {
		a.UpgradedAt, a.UpgradeStatus, a.UpgradeDetails, a.UpgradeEndTold = &now, UpgradeNone, nil, false
	}
}

// calledOff says whether the last upgrade was cancelled or withdrawn.
func (a *Agent) calledOff() bool {
	return a.UpgradeActionID != "" && a.UpgradeStatus == UpgradeNone && a.UpgradeStartedAt == nil && a.UpgradedAt == nil
}

// withReason keeps the reason for a rollback when the agent says that it was
// rolled back, but does not yet know why: its watcher may have said so before.
func (a *Agent) withReason(d *agentapi.UpgradeDetails) *agentapi.UpgradeDetails {
	old := a.UpgradeDetails
	if d.State != agentapi.UpgradeRollback || cause(d) != "" || old == nil || old.State != d.State {
		return d
	}
	kept := *d
	kept.Metadata.Reason, kept.Metadata.ReasonCode, kept.Metadata.ErrorMsg = old.Metadata.Reason, old.Metadata.ReasonCode, old.Metadata.ErrorMsg
	return &kept
}

// cause is why an upgrade ended, as a sentence; empty when that is not known.
func cause(d *agentapi.UpgradeDetails) string {
	return cmp.Or(d.Metadata.ErrorMsg, d.Metadata.Reason)
}

// wasCancelled says whether an error is that of an upgrade called off in flight.
func wasCancelled(errText string) bool { return strings.HasPrefix(errText, agentapi.Cancelled) }

// beganOnHost says whether the details are the first news of an upgrade that was
// asked for on the host itself: nobody told us, so it begins with them.
func (a *Agent) beganOnHost(d *agentapi.UpgradeDetails) bool {
	if d.ActionID != "" || d.State.Ended() {
		return false
	}
	if a.UpgradeActionID != "" {
		return !a.Upgrading() // ours goes on until it ends
	}
	followed := a.UpgradeDetails != nil && !a.UpgradeDetails.State.Ended() && a.UpgradeTarget == d.TargetVersion
	return !followed
}

func (a *Agent) observeNoDetails(now time.Time) bool {
	d := a.UpgradeDetails
	switch {
	case a.Upgrading() && a.runsTarget():
		a.reached(now)
		a.UpgradeDetails = nil
		return true
	case d == nil:
		return false // not begun yet, or none
	case a.Upgrading():
		a.fail(fmt.Sprintf("the agent stopped reporting the upgrade in %s and still runs %s", d.State, a.Version), d.State)
		return true
	case d.State.Ended():
		// The reason stays for people to read until the next upgrade, though
		// some agents forget it sooner.
		return false
	default:
		a.UpgradeDetails = nil // watched, and good
		return true
	}
}

// ObserveAck takes in the acknowledgement of an UPGRADE; errText is empty when
// the agent reports no error. It says whether the document changed.
func (a *Agent) ObserveAck(actionID, errText string, retry bool, now time.Time) bool {
	if actionID != a.UpgradeActionID || retry {
		return false
	}
	if errText == "" {
		return a.reached(now)
	}
	if !a.Upgrading() {
		// The check-in brought the reason first, or it was rolled back after
		// the target had been reached: then the details follow.
		return false
	}
	if wasCancelled(errText) {
		return a.CancelUpgrade(actionID) // before the CANCEL itself is acknowledged
	}
	phase := agentapi.UpgradeRequested
	if d := a.UpgradeDetails; d != nil {
		phase = d.State
		if phase.Ended() {
			phase = d.Metadata.FailedState
		}
	}
	a.fail(errText, phase)
	return true
}

// CancelUpgrade ends an upgrade that was called off before it was done.
func (a *Agent) CancelUpgrade(actionID string) bool {
	if actionID != a.UpgradeActionID || !a.Upgrading() {
		return false
	}
	a.UpgradeStartedAt, a.UpgradeStatus, a.UpgradeDetails = nil, UpgradeNone, nil
	a.resume()
	return true
}

// dropCancelled takes in that the agent says its upgrade was called off. A phase
// it reported while the CANCEL was on its way goes too.
func (a *Agent) dropCancelled(actionID string) bool {
	late := a.UpgradeStatus == UpgradeNone && a.UpgradedAt == nil && a.UpgradeDetails != nil
	if late {
		a.UpgradeDetails = nil
	}
	return a.CancelUpgrade(actionID) || late
}

// Bounds of [Agent.SettleUpgrade].
const (
	// CreateGrace is how long an agent may be marked before its action is there:
	// creating one for 10,000 agents takes a second or two.
	CreateGrace = time.Minute
	// AckGrace is how long the old version may go on checking in after it
	// acknowledged: a switch takes seconds.
	AckGrace = 10 * time.Minute
)

// SettleUpgrade ends an upgrade that no message will end: its action is missing
// (nil), expired or cancelled, or was answered (result not nil) without effect.
// It says whether the document changed.
func (a *Agent) SettleUpgrade(action *Action, result *Result, now time.Time) bool {
	if !a.Upgrading() || a.UpgradeActionID == "" {
		return false
	}
	phase := agentapi.UpgradeRequested
	if a.UpgradeDetails != nil {
		phase = a.UpgradeDetails.State
	}
	begun := phase != agentapi.UpgradeRequested && phase != agentapi.UpgradeScheduled
	switch {
	case action == nil:
		if now.Sub(*a.UpgradeStartedAt) < CreateGrace {
			return false
		}
		a.fail("the action was never created: try again", phase)
	case action.CancelledAt != nil && !begun:
		return a.CancelUpgrade(action.ID)
	case result != nil && result.Withdrawn():
		// The host has begun, or it answers the CANCEL, or else it is given up
		// when its rollout has ended.
		return !begun && a.CancelUpgrade(action.ID)
	case result != nil && result.Error != "":
		a.fail(result.Error, phase)
	case result != nil && !begun && now.Sub(result.Timestamp) > AckGrace && a.Last.At != nil && a.Last.At.After(result.Timestamp.Add(AckGrace)):
		a.fail(fmt.Sprintf("the agent acknowledged the upgrade at %s and still runs %s", result.Timestamp.Format(time.RFC3339), a.Version), phase)
	case result == nil && !begun && action.Expired(now):
		text := fmt.Sprintf("the action expired at %s before the agent began", action.Expiration.Format(time.RFC3339))
		if a.retrying() {
			text = fmt.Sprintf("the action expired at %s while the agent waited to try again: %s", action.Expiration.Format(time.RFC3339), a.UpgradeDetails.Metadata.RetryErrorMsg)
		}
		a.fail(text, phase)
	case a.rolledBackUnseen(now):
		a.fail(fmt.Sprintf("the watcher put %s back at %s, and the agent has not checked in since", a.UpgradeTarget, a.Watch.ReceivedAt.Format(time.RFC3339)), phase)
	default:
		return false
	}
	return true
}

// GiveUpUpgrade ends an upgrade that is not waited for any longer.
func (a *Agent) GiveUpUpgrade(why string) bool {
	if !a.Upgrading() {
		return false
	}
	phase := agentapi.UpgradeRequested
	if a.UpgradeDetails != nil {
		phase = a.UpgradeDetails.State
	}
	a.fail(why, phase)
	return true
}

// HostChanging says whether an agent in this phase has begun to change its host.
// Before that an upgrade can be taken back without a trace.
func HostChanging(s agentapi.UpgradeState) bool {
	switch s {
	case "", agentapi.UpgradeRequested, agentapi.UpgradeScheduled, agentapi.UpgradeDownloading:
		return false
	}
	return true
}

// Withdrawable says whether the offer of an action can still be taken back from
// the agent, as far as is known: it has neither begun nor answered.
func (a *Agent) Withdrawable(actionID string) bool {
	if a.UpgradeActionID != actionID {
		return true // it never took it, or has gone on to another
	}
	if d := a.UpgradeDetails; d != nil && HostChanging(d.State) {
		return false
	}
	if w := a.Watch; w != nil && w.ActionID == actionID {
		return false
	}
	return a.Upgrading() || a.calledOff()
}

// UpgradeResult is the result of the agent's last upgrade as its document tells
// it; ok is false while there is none. It does not wait for an acknowledgement,
// which may be lost.
func (a *Agent) UpgradeResult(now time.Time) (r Result, ok bool) {
	if a.UpgradeActionID == "" || a.Upgrading() {
		return Result{}, false
	}
	r = Result{ActionID: a.UpgradeActionID, AgentID: a.ID, Hostname: a.Hostname(), Timestamp: now}
	switch {
	case a.UpgradeStatus == UpgradeFailed || a.UpgradeStatus == UpgradeRolledBack:
		if a.UpgradeDetails == nil {
			return Result{}, false
		}
		r.Error = cause(a.UpgradeDetails)
		if r.Error == "" {
			// The old version is back before the watcher has said why: the
			// reason follows, and a result is written once.
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

// retrying says whether the agent has failed and waits to try again.
func (a *Agent) retrying() bool {
	d := a.UpgradeDetails
	return d != nil && d.State == agentapi.UpgradeScheduled && d.Metadata.RetryErrorMsg != ""
}

func (a *Agent) runsTarget() bool { return a.UpgradeTarget != "" && a.Version == a.UpgradeTarget }

func (a *Agent) reached(now time.Time) bool {
	if !a.Upgrading() || !a.runsTarget() {
		return false
	}
	a.UpgradeStartedAt, a.UpgradedAt, a.UpgradeStatus = nil, &now, UpgradeNone
	return true
}

// endedBadly says whether the last upgrade failed or was rolled back, with its
// reason known.
func (a *Agent) endedBadly() bool {
	return a.UpgradeStatus != UpgradeNone && a.UpgradeStatus != UpgradeStarted && a.UpgradeDetails != nil && a.UpgradeDetails.State.Ended()
}

func (a *Agent) endBadly(s UpgradeStatus) {
	a.UpgradeStartedAt, a.UpgradedAt, a.UpgradeStatus = nil, nil, s
}

func (a *Agent) fail(msg string, phase agentapi.UpgradeState) {
	a.endBadly(UpgradeFailed)
	a.UpgradeDetails = &agentapi.UpgradeDetails{
		TargetVersion: a.UpgradeTarget, ActionID: a.UpgradeActionID, State: agentapi.UpgradeFailed,
		Metadata: agentapi.UpgradeMetadata{FailedState: phase, ErrorMsg: msg},
	}
}

// Catalog is the published packages as far as a decision needs them.
type Catalog []Package

// Has says whether there is a package of a full version for a platform; an empty
// platform asks for any.
func (c Catalog) Has(version, os, arch string) bool {
	return slices.ContainsFunc(c, func(p Package) bool { return p.fits(version, os, arch) })
}

func (p Package) fits(version, os, arch string) bool {
	return p.Version == version && (os == "" || p.OS == "" || p.OS == os) && (arch == "" || p.Arch == "" || p.Arch == goArch(arch))
}

// checkSigned says why hosts would refuse every package that Has finds.
func (c Catalog) checkSigned(version, os, arch string) error {
	var why error
	for _, p := range c {
		switch {
		case !p.fits(version, os, arch):
		case p.Withheld == "":
			return nil
		case why == nil:
			why = Errorf(Invalid, "hosts will not install %s: %s (those enrolled with --trust-key alone would: force it for them)", p.File, p.Withheld)
		}
	}
	return why
}

// Versions are the distinct full versions that can be installed, newest first.
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

// goArch turns the kernel's spelling, which Elastic's agents report, into Go's.
func goArch(arch string) string {
	switch arch {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return arch
}

// UpgradeWish is what an operator asks for.
type UpgradeWish struct {
	Version   string
	SourceURI string
	Force     bool
}

// Check says what is wrong with the wish whatever the agent.
func (w UpgradeWish) Check(c Catalog) error {
	if w.Version == "" {
		return FieldError("body.version", "is missing: name the version to upgrade to, such as 1.2.3")
	}
	if _, err := manifest.ParseVersion(w.Version); err != nil {
		return FieldError("body.version", "%w", err)
	}
	if w.SourceURI != "" {
		return nil
	}
	if c.Has(w.Version, "", "") {
		if err := c.checkSigned(w.Version, "", ""); err != nil && !w.Force {
			return FieldError("body.version", "%w", err)
		}
		return nil
	}
	published := "nothing is published yet"
	if v := c.Versions(); len(v) > 0 {
		published = fmt.Sprintf("published are %v", v)
	}
	return FieldError("body.version", "no package of version %s is published (%s): publish it with `muster package push`, or say in source_uri where it is", w.Version, published)
}

// CheckUpgrade says why this agent cannot be upgraded as wished, or nil. The
// text is shown to operators as it is.
func (a *Agent) CheckUpgrade(w UpgradeWish, c Catalog) error {
	host := a.Host()
	switch {
	case !a.Active:
		return Errorf(Invalid, "agent %s is unenrolled", a.ID)
	case a.UnenrollmentStartedAt != nil:
		return Errorf(Invalid, "agent %s is being unenrolled", a.ID)
	case !host.Elastic.Agent.Upgradeable:
		return Errorf(Invalid, "agent %s cannot upgrade itself: it may run in a container, or was not installed", a.ID)
	case w.SourceURI == "" && !c.Has(w.Version, host.OS.Type, host.Host.Architecture):
		return Errorf(Invalid, "there is no package of version %s for %s/%s", w.Version, host.OS.Type, host.Host.Architecture)
	case w.Force:
		return nil
	case w.SourceURI == "" && c.checkSigned(w.Version, host.OS.Type, host.Host.Architecture) != nil:
		return c.checkSigned(w.Version, host.OS.Type, host.Host.Architecture)
	case a.Upgrading():
		return Errorf(Invalid, "agent %s is already being upgraded to %s", a.ID, a.UpgradeTarget)
	case a.UpgradeDetails != nil && !a.UpgradeDetails.State.Ended():
		return Errorf(Invalid, "agent %s is still being watched after its upgrade to %s", a.ID, a.UpgradeDetails.TargetVersion)
	}
	switch cmp, err := manifest.CompareVersions(w.Version, a.Version); {
	case err != nil:
		return Errorf(Invalid, "agent %s runs a version that cannot be compared: %w", a.ID, err)
	case cmp == 0:
		return Errorf(Invalid, "agent %s already runs %s", a.ID, a.Version)
	case cmp < 0:
		return Errorf(Invalid, "agent %s runs %s: going down to %s needs force", a.ID, a.Version, w.Version)
	}
	return nil
}

// VersionKey is a text that sorts as versions do, for stores, which can only
// compare text and know nothing of packages; see manifest.VersionKey.
func VersionKey(version string) string { return manifest.VersionKey(version) }
