package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The states of a component's upgrade on its agent's document are those of the agent's own;
// see upgrade.go. It is simpler: the agent, which does not change, reports it to its end.
//
//	Begin ──► started ──► details gone, and the target is installed: done
//	             │
//	             ├─ FAILED reported, or acked with an error: failed, or rolled_back if the
//	             │  host had started the version and has put the earlier one back
//	             ├─ presumed: as that of the agent
//	             └─ reconciled: action gone, expired, or acked but the old version stays: failed
//
// The installed version alone completes nothing: an upgrade may change only the
// configuration. Reported details whose action is another one are those of an earlier
// upgrade, or of one that was begun on the host.

// ComponentUpgrade is the last upgrade of a component that the server has ordered.
type ComponentUpgrade struct {
	ActionID string `json:"action_id"`
	Target   string `json:"target_version"`
	From     string `json:"from_version,omitempty"` // that was installed when it began; empty: none
	// StartedAt is nil once it has ended, UpgradedAt unless it ended well.
	StartedAt  *time.Time    `json:"upgrade_started_at,omitempty"`
	UpgradedAt *time.Time    `json:"upgraded_at,omitempty"`
	Status     UpgradeStatus `json:"upgrade_status,omitempty"`
	// Details are the last that the agent has reported; why it failed stays until the next
	// upgrade.
	Details *agentapi.UpgradeDetails `json:"upgrade_details,omitempty"`
	// Failed are the versions that failed on the host, the latest last.
	Failed []FailedVersion `json:"failed_versions,omitempty"`
	UpgradeOrder
}

// Upgrading reports whether it is under way or scheduled.
func (u *ComponentUpgrade) Upgrading() bool { return u.StartedAt != nil }

// Component is a component that an agent of Muster reports.
type Component struct {
	agentapi.Component
	// Upgrade is the last one that was ordered, zero if there is none.
	Upgrade ComponentUpgrade
}

// Desired returns the version that the component is to run, as far as orders tell.
func (c *Component) Desired() string {
	if c.Upgrade.Upgrading() {
		return c.Upgrade.Target
	}
	return c.Version
}

// LastDetails returns the details of its last upgrade: those that the agent reports, or what the
// server knows if the agent has forgotten why it failed, or never knew. An agent repeats how an
// earlier upgrade ended until it begins the one that was ordered; that says nothing of the order.
func (c *Component) LastDetails() *agentapi.UpgradeDetails {
	d, u := c.UpgradeDetails, &c.Upgrade
	if d == nil || u.Upgrading() && d.ActionID != u.ActionID && d.State.Ended() {
		return u.Details
	}
	return d
}

// RunsComponents returns the components that the agent reports and that can be upgraded.
// Elastic's agents have none.
func (a *Agent) RunsComponents() []Component {
	var out []Component
	for _, c := range reportedComponents(a.Components) {
		out = append(out, Component{Component: c, Upgrade: a.ComponentUpgrades[c.Name]})
	}
	return out
}

// Component returns the component of a name; ok is false if the agent reports none.
func (a *Agent) Component(name string) (c Component, ok bool) {
	all := a.RunsComponents()
	if i := slices.IndexFunc(all, func(c Component) bool { return c.Name == name }); i >= 0 {
		return all[i], true
	}
	return c, false
}

// reportedComponents decodes the components with a name. What is none is left out: agents of
// other makers send what they like.
func reportedComponents(raw json.RawMessage) []agentapi.Component {
	var list []json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var out []agentapi.Component
	for _, r := range list {
		var c agentapi.Component
		if json.Unmarshal(r, &c) == nil && c.Name != "" && len(out) < agentapi.MaxComponents {
			out = append(out, c)
		}
	}
	return out
}

// setUpgrade stores the upgrade of a component, and what queries and reconciliation read of
// all of them.
func (a *Agent) setUpgrade(name string, u ComponentUpgrade) {
	all := maps.Clone(a.ComponentUpgrades)
	if all == nil {
		all = map[string]ComponentUpgrade{}
	}
	all[name] = u
	a.ComponentUpgrades, a.ComponentActions, a.ComponentsSince = all, nil, nil
	for _, name := range slices.Sorted(maps.Keys(all)) {
		u := all[name]
		if !u.Upgrading() {
			continue
		}
		a.ComponentActions = append(a.ComponentActions, u.ActionID)
		if a.ComponentsSince == nil || u.StartedAt.Before(*a.ComponentsSince) {
			a.ComponentsSince = u.StartedAt
		}
	}
}

// upgradedBy returns the component whose last upgrade an action has ordered.
func (a *Agent) upgradedBy(actionID string) (name string, u ComponentUpgrade, ok bool) {
	for name, u := range a.ComponentUpgrades {
		if u.ActionID == actionID && actionID != "" {
			return name, u, true
		}
	}
	return "", u, false
}

// ComponentOf returns the component whose last upgrade an action has ordered, empty if it is
// none of the agent's.
func (a *Agent) ComponentOf(actionID string) string {
	name, _, _ := a.upgradedBy(actionID)
	return name
}

// BeginComponentUpgrade marks a component as being upgraded by an action from start on.
func (a *Agent) BeginComponentUpgrade(name, actionID, target string, start time.Time) {
	c, _ := a.Component(name)
	a.setUpgrade(name, ComponentUpgrade{
		ActionID: actionID, Target: target, From: c.Version, StartedAt: &start, Status: UpgradeStarted, Failed: c.Upgrade.Failed,
		UpgradeOrder: UpgradeOrder{UpgradePhases: []Phase{{State: ProgressSent, At: start}}},
	})
}

// ObserveComponents handles a change of what the agent reports of its components; was is what
// it reported before. It returns the components whose state people see has changed, and
// those whose upgrade has.
func (a *Agent) ObserveComponents(was json.RawMessage, now time.Time) (changed, upgraded []string) {
	before := map[string]agentapi.Component{}
	for _, c := range reportedComponents(was) {
		before[c.Name] = c
	}
	for _, c := range reportedComponents(a.Components) {
		old := before[c.Name]
		u, ordered := a.ComponentUpgrades[c.Name]
		if ordered && u.noting(now, func() bool { return u.observe(c, old.Version, now) }) {
			a.setUpgrade(c.Name, u)
			upgraded = append(upgraded, c.Name)
		}
		if shown(&c) != shown(&old) {
			changed = append(changed, c.Name)
		}
	}
	return changed, upgraded
}

// componentState is what makes news of a component; the progress of a download is none.
type componentState struct {
	version, status, action string
	state                   agentapi.UpgradeState
	phase, failure          string
	lockstep                agentapi.LockstepReport
}

func shown(c *agentapi.Component) componentState {
	s := componentState{version: c.Version, status: c.Status}
	if d := c.UpgradeDetails; d != nil {
		s.action, s.state, s.phase, s.failure = d.ActionID, d.State, d.Metadata.Phase, d.Metadata.ErrorMsg
		if d.Metadata.Lockstep != nil {
			s.lockstep = *d.Metadata.Lockstep
		}
	}
	return s
}

// observe handles a report, and reports whether the upgrade changed. was is the version of
// the report before.
func (u *ComponentUpgrade) observe(c agentapi.Component, was string, now time.Time) bool {
	d := c.UpgradeDetails
	switch {
	case d == nil:
		return u.observeNone(c.Version, was, now)
	case d.ActionID != u.ActionID:
		return false
	}
	changed := hasBegun(d.State) && u.unpresume(now)
	changed = u.reported() || changed
	switch {
	case (u.endedBadly() || u.UpgradedAt != nil) && d.State != agentapi.UpgradeFailed:
		return changed // sent before the end, and arrived after it
	case d.State == agentapi.UpgradeFailed && wasCancelled(d.Metadata.ErrorMsg):
		late := u.calledOff() && u.Details != nil // reported while the CANCEL was on its way
		if late {
			u.Details = nil
		}
		return u.cancelledBy(now) || late || changed
	}
	if d.State == agentapi.UpgradeFailed {
		return u.end(d, now) || changed
	}
	changed = u.observeStart(d, now) || changed
	if !reflect.DeepEqual(u.Details, d) {
		u.Details, changed = d, true
	}
	return changed
}

func (u *ComponentUpgrade) observeNone(version, was string, now time.Time) bool {
	arrived := version == u.Target && was != version
	switch {
	case u.Upgrading() && u.From == u.Target && u.waitsForOthers():
		return false // only its files change, and right after a start an agent reports no details
	case u.Upgrading() && version == u.Target && (u.Details != nil || u.From != u.Target):
	case !u.Upgrading() && arrived && u.UpgradedAt == nil: // presumed to have failed, or withdrawn too late
	default:
		// The agent may have just started, and continues.
		return false
	}
	u.done(now)
	return true
}

func (u *ComponentUpgrade) done(now time.Time) {
	u.StartedAt, u.UpgradedAt, u.Status, u.Details, u.UpgradePresumed = nil, &now, UpgradeNone, nil, false
}

// observeMissing is Agent.ObserveMissing of a component, of which the agent reports c.
func (u *ComponentUpgrade) observeMissing(c *Component, idle bool, now time.Time) bool {
	if !u.Upgrading() || u.Details == nil || c.reports(u.ActionID) {
		return false
	}
	state, since := u.Details.State, u.UpgradeUnreported
	over, changed := u.unreported(now)
	switch has := cmp.Or(c.Version, "no version"); {
	case idle:
		u.presume(fmt.Sprintf("the host has no upgrade of the component under way any more, was last in %s, and still has %s", state, has))
	case over:
		u.presume(fmt.Sprintf("the agent has reported nothing of the upgrade since %s, when it was in %s, and still has %s", since.Format(time.RFC3339), state, has))
	default:
		return changed
	}
	return true
}

// reports reports whether the agent reports the upgrade of an action.
func (c *Component) reports(actionID string) bool {
	return c.UpgradeDetails != nil && c.UpgradeDetails.ActionID == actionID
}

// presume is Agent.presume of a component.
func (u *ComponentUpgrade) presume(why string) {
	u.fail(why)
	u.UpgradePresumed = true
}

// unpresume is Agent.unpresume of a component.
func (u *ComponentUpgrade) unpresume(now time.Time) bool {
	if !u.UpgradePresumed {
		return false
	}
	at := u.ordered(now)
	u.StartedAt, u.Status, u.Details, u.UpgradePresumed = &at, UpgradeStarted, nil, false
	return true
}

// observeStart moves the start of a scheduled upgrade to the time that the agent reports.
func (u *ComponentUpgrade) observeStart(d *agentapi.UpgradeDetails, now time.Time) bool {
	if !u.Upgrading() {
		return false
	}
	start := *u.StartedAt
	switch at := d.Metadata.ScheduledAt; {
	case d.State == agentapi.UpgradeRequested || retries(d):
	case d.State != agentapi.UpgradeScheduled && start.After(now):
		start = now // the host's clock is ahead
	case d.State == agentapi.UpgradeScheduled && at != nil && at.After(now) && at.Sub(now) < MaxStartDelay:
		start = *at
	}
	changed := !start.Equal(*u.StartedAt)
	u.StartedAt = &start
	return changed
}

// endedBadly reports whether the agent itself has reported its end.
func (u *ComponentUpgrade) endedBadly() bool {
	return !u.Upgrading() && u.Status != UpgradeNone && u.Details != nil && u.Details.State == agentapi.UpgradeFailed
}

// end ends the upgrade as the agent's details say. They replace those of the server, which may
// have given it up, or know it by the acknowledgement alone.
func (u *ComponentUpgrade) end(d *agentapi.UpgradeDetails, now time.Time) bool {
	if !u.UpgradePresumed {
		d = keepReason(u.Details, d)
	}
	m := d.Metadata
	started := m.FailedState == agentapi.UpgradeRestarting || m.FailedState == agentapi.UpgradeWatching
	status := UpgradeFailed
	if started && m.ReasonCode != agentapi.FailedRollback && !goesForward(d) {
		status = UpgradeRolledBack
	}
	// By the host's own rule: a version that was started is bad, unless only the configuration
	// was to change.
	bad := started && u.From != u.Target
	noted := slices.ContainsFunc(u.Failed, func(f FailedVersion) bool { return f.Version == u.Target && f.ActionID == u.ActionID })
	if reflect.DeepEqual(u.Details, d) && u.Status == status && (noted || !bad) {
		return false
	}
	u.StartedAt, u.UpgradedAt, u.Status, u.Details, u.UpgradePresumed = nil, nil, status, d, false
	if bad && !noted {
		f := FailedVersion{Version: u.Target, ActionID: u.ActionID, Reason: shortReason(cause(d)), At: now}
		list := slices.DeleteFunc(slices.Clone(u.Failed), func(old FailedVersion) bool { return old.Version == f.Version })
		list = append(list, f)
		u.Failed = list[max(0, len(list)-maxFailedComponents):]
	}
	return true
}

// waitsForOthers reports whether the host may not start the new version yet, as it has reported
// last.
func (u *ComponentUpgrade) waitsForOthers() bool {
	return u.inLockstep() && !u.Details.Metadata.Lockstep.Until.Reaches(agentapi.LockstepStart)
}

// inLockstep reports whether the host has reported that it goes along with others.
func (u *ComponentUpgrade) inLockstep() bool {
	return u.Details != nil && u.Details.Metadata.Lockstep != nil
}

// goesForward reports whether the host puts no earlier version back: others of its rollout in
// lockstep run the new one.
func goesForward(d *agentapi.UpgradeDetails) bool {
	l := d.Metadata.Lockstep
	return l != nil && l.Until.Reaches(agentapi.LockstepSwitch)
}

// maxFailedComponents bounds the failed versions of a component: an agent has up to
// agentapi.MaxComponents of them.
const maxFailedComponents = 10

func (u *ComponentUpgrade) fail(why string) {
	phase := u.phase()
	u.StartedAt, u.UpgradedAt, u.Status, u.UpgradePresumed = nil, nil, UpgradeFailed, false
	u.Details = &agentapi.UpgradeDetails{
		TargetVersion: u.Target, ActionID: u.ActionID, State: agentapi.UpgradeFailed,
		Metadata: agentapi.UpgradeMetadata{FailedState: phase, ErrorMsg: why},
	}
}

func (u *ComponentUpgrade) phase() agentapi.UpgradeState {
	if u.Details == nil {
		return agentapi.UpgradeRequested
	}
	if u.Details.State.Ended() {
		return u.Details.Metadata.FailedState
	}
	return u.Details.State
}

// waits reports whether the agent has not begun, as far as the server knows.
func (u *ComponentUpgrade) waits() bool {
	return u.Details == nil || u.Details.State == agentapi.UpgradeScheduled || u.Details.State == agentapi.UpgradeRequested
}

func (u *ComponentUpgrade) calledOff() bool {
	return u.Status == UpgradeNone && u.StartedAt == nil && u.UpgradedAt == nil
}

func (u *ComponentUpgrade) cancel() bool {
	if !u.Upgrading() && !u.UpgradePresumed {
		return false
	}
	u.StartedAt, u.Status, u.Details, u.UpgradePresumed = nil, UpgradeNone, nil, false
	return true
}

// cancelledBy handles the host's own report that it does not carry the order out.
func (u *ComponentUpgrade) cancelledBy(now time.Time) bool {
	cancelled := u.cancel()
	return u.calledOff() && u.confirm(now) || cancelled
}

// observeAck is Agent.ObserveAck of a component: a success only means that the agent has
// accepted the order, since the report says what is installed.
func (u *ComponentUpgrade) observeAck(errText string, retry bool, now time.Time) bool {
	if errText != "" && !retry {
		u.unpresume(now)
	}
	switch {
	case retry || errText == "":
		return false
	case wasCancelled(errText):
		return u.cancelledBy(now) // before the CANCEL itself is acknowledged
	case !u.Upgrading():
		return false // a check-in has reported it first
	}
	u.fail(errText)
	return true
}

// reconcile is Agent.ReconcileUpgrade of a component, of which its agent reports c.
func (u *ComponentUpgrade) reconcile(c *Component, seen *time.Time, action *Action, result *Result, now time.Time) bool {
	if !u.Upgrading() {
		return false
	}
	if result != nil && result.Presumed {
		result = nil
	}
	switch {
	case action == nil:
		if now.Sub(*u.StartedAt) < CreateGrace {
			return false
		}
		u.fail("the action was never created: try again")
	case action.CancelledAt != nil && u.waits():
		return u.cancel()
	case result != nil && result.Withdrawn():
		return u.waits() && u.cancel()
	case result != nil && result.Error != "":
		u.fail(result.Error)
	case result != nil && u.inLockstep():
		return false // its host may wait for others; its rollout bounds that
	case result != nil && now.Sub(result.Timestamp) > AckGrace && seen != nil && seen.After(result.Timestamp.Add(AckGrace)):
		if c.Version == u.Target {
			u.done(now)
			return true
		}
		u.presume(fmt.Sprintf("the agent acknowledged the upgrade at %s and still has %s", result.Timestamp.Format(time.RFC3339), cmp.Or(c.Version, "no version")))
	case result == nil && u.waits() && action.Expired(now):
		text := fmt.Sprintf("the action expired at %s before the agent began", action.Expiration.Format(time.RFC3339))
		if d := u.Details; d != nil && retries(d) {
			text = fmt.Sprintf("the action expired at %s while the agent waited to try again: %s", action.Expiration.Format(time.RFC3339), d.Metadata.RetryErrorMsg)
		}
		u.presume(text)
	case action.Expired(now) && seen != nil && now.Sub(*seen) > SilentGrace:
		u.presume(fmt.Sprintf("the action expired at %s, and the host has been silent since %s, when it was in %s", action.Expiration.Format(time.RFC3339), seen.Format(time.RFC3339), u.phase()))
	case result == nil && action.Expired(now) && !c.reports(u.ActionID):
		// It has lost what it knew, and the component would count as being upgraded for ever.
		u.presume(fmt.Sprintf("the action expired at %s, and the agent no longer reports the upgrade", action.Expiration.Format(time.RFC3339)))
	default:
		return false
	}
	return true
}

// ObserveComponentAck handles the acknowledgement of an upgrade of a component; see ObserveAck.
func (a *Agent) ObserveComponentAck(actionID, errText string, retry bool, now time.Time) bool {
	name, u, ok := a.upgradedBy(actionID)
	if !ok || !u.noting(now, func() bool { return u.observeAck(errText, retry, now) }) {
		return false
	}
	a.setUpgrade(name, u)
	return true
}

// ReconcileComponent ends the upgrade of a component that an action has ordered if no message
// will; see ReconcileUpgrade.
func (a *Agent) ReconcileComponent(actionID string, action *Action, result *Result, now time.Time) bool {
	name, u, ok := a.upgradedBy(actionID)
	if !ok {
		return false
	}
	c, _ := a.Component(name)
	if !u.noting(now, func() bool { return u.reconcile(&c, a.Last.At, action, result, now) }) {
		return false
	}
	a.setUpgrade(name, u)
	return true
}

// cancelComponent is CancelUpgrade of the component that the action upgrades.
func (a *Agent) cancelComponent(actionID string, now time.Time) bool {
	name, u, ok := a.upgradedBy(actionID)
	if !ok || !u.noting(now, u.cancel) {
		return false
	}
	a.setUpgrade(name, u)
	return true
}

// ComponentResult derives the result of the last upgrade of a component from the document, as
// UpgradeResult does that of the agent's.
func (a *Agent) ComponentResult(name string, now time.Time) (r Result, ok bool) {
	u, ok := a.ComponentUpgrades[name]
	if !ok || u.Upgrading() {
		return Result{}, false
	}
	r = Result{ActionID: u.ActionID, AgentID: a.ID, Hostname: a.Hostname(), Timestamp: now, Outcome: true, Presumed: u.UpgradePresumed}
	switch {
	case u.Status != UpgradeNone && u.Details != nil:
		r.Error = cmp.Or(cause(u.Details), "the agent gave no reason")
	case u.UpgradedAt != nil:
		r.Message = name + " upgraded to " + u.Target
	default:
		return Result{}, false // cancelled
	}
	return r, true
}

// ComponentEvent returns an event with the state of a component.
func (a *Agent) ComponentEvent(name string) Event {
	c, _ := a.Component(name)
	u := a.ComponentUpgrades[name]
	c.Upgrade = u // also of a component that the agent does not report
	data, err := json.Marshal(map[string]any{
		"component": name, "version": c.Version, "status": c.Status, "action_id": u.ActionID, "target_version": u.Target,
		"upgrade_status": u.Status, "upgrade_details": c.LastDetails(),
	})
	if err != nil {
		panic(err) // our own types always encode
	}
	return Event{Type: EventAgentComponent, Subject: a.ID, Data: data}
}

// ComponentRequest is an operator's request to install or upgrade a component.
type ComponentRequest struct {
	Name string
	UpgradeRequest
}

// Check validates the request without regard to any agent.
func (w ComponentRequest) Check(c Catalog) error {
	if err := manifest.ValidComponentName(w.Name); err != nil {
		return FieldError("path.name", "%w", err)
	}
	return w.check(c, "package of component "+w.Name+" in version "+w.Version)
}

// Data returns what the UPGRADE of an action says of the component. It pins the artifact if
// there is only one: otherwise it depends on the host's platform.
func (w ComponentRequest) Data(actionID string, catalog Catalog) *agentapi.ComponentData {
	d := &agentapi.ComponentData{Name: w.Name, UpgradeID: actionID}
	published := catalog.Of(w.Version)
	if w.SourceURI != "" || len(published) == 0 {
		return d // the runtime is that of the policy on each host
	}
	d.Runtime = published[0].Runtime
	if len(published) == 1 {
		d.Checksum, d.Size = "sha512:"+published[0].SHA512, published[0].Size
	}
	return d
}

// CheckComponentUpgrade returns an error that says why a component of this agent cannot be
// upgraded as requested, or nil. The text is shown to operators as it is.
// catalog has the component's packages.
func (a *Agent) CheckComponentUpgrade(w ComponentRequest, catalog Catalog) error {
	if err := a.checkComponentAble(w.Name); err != nil {
		return err
	}
	host, s := a.Host(), a.Of(w.Name)
	var fitting Catalog // empty if the package comes from elsewhere
	if w.SourceURI == "" {
		fitting = catalog.For(w.Version, host)
	}
	c := &s.component
	switch {
	case w.SourceURI == "" && len(fitting) == 0:
		return Errorf(Invalid, "there is no package of component %s in version %s for %s/%s", w.Name, w.Version, cmp.Or(host.OS.Type, "an unknown system"), host.Host.Architecture).Because(CausePlatform)
	case len(fitting) > 0 && fitting[0].Runtime != "" && fitting[0].Runtime != c.Runtime:
		return Errorf(Invalid, "component %s of agent %s runs with %s by its policy %s, and version %s is for %s", w.Name, a.ID, c.Runtime, a.PolicyID, w.Version, fitting[0].Runtime).Because(CausePlatform)
	case w.SourceURI == "" && s.CheckState(w.Version, catalog) != nil:
		return s.CheckState(w.Version, catalog) // also with force: hosts refuse it
	case w.Force:
		return nil
	case fitting.checkSigned() != nil:
		return fitting.checkSigned()
	case s.Busy():
		return Errorf(Invalid, "component %s of agent %s is being upgraded to %s, as was asked for on its host", w.Name, a.ID, c.UpgradeDetails.TargetVersion).unlessForced(CauseUpgrading)
	case !w.Retry && c.UpgradeDetails != nil && c.UpgradeDetails.Metadata.ReasonCode == agentapi.FailedRollback:
		return Errorf(Invalid, "component %s of agent %s is broken: its upgrade to %s failed and could not be undone. Repair it on the host, or force another version", w.Name, a.ID, c.UpgradeDetails.TargetVersion).unlessForced(CauseBroken)
	}
	if f, failed := s.FailedBefore(w.Version); failed && !w.Retry {
		return Errorf(Invalid, "agent %s: version %s of component %s %w, at %s (%s): upgrade it to a later version, or force this one", a.ID, w.Version, w.Name, ErrFailedBefore, f.At.UTC().Format(time.RFC3339), f.Reason).unlessForced(CauseFailedBefore)
	}
	if c.Version == "" {
		return nil // the first installation
	}
	switch order, err := manifest.CompareVersions(w.Version, c.Version); {
	case err != nil:
		return Errorf(Invalid, "component %s of agent %s has a version that cannot be compared: %w", w.Name, a.ID, err).unlessForced(CauseUnknownVersion)
	case order == 0:
		return Errorf(Invalid, "component %s of agent %s already is %s", w.Name, a.ID, c.Version).unlessForced(CauseRunning)
	case order < 0:
		return Errorf(Invalid, "component %s of agent %s is %s: going down to %s needs force, and a host that does not keep that version refuses it unless its publishers allow it", w.Name, a.ID, c.Version, w.Version).unlessForced(CauseNewer)
	}
	return nil
}

// checkComponentAble returns why a component can be brought to no version now, also with force; nil:
// it can.
func (a *Agent) checkComponentAble(name string) error {
	s := a.Of(name)
	switch {
	case a.checkStays() != nil:
		return a.checkStays()
	case a.checkShared() != nil:
		return a.checkShared()
	case a.Host().Maker == MakerElastic:
		return Errorf(Invalid, "agent %s is an Elastic Agent, which runs no components of Muster", a.ID).Because(CauseNoComponent)
	case !s.Reported:
		return Errorf(Invalid, "agent %s reports no component %s: add it to the components of its policy %s", a.ID, name, a.PolicyID).Because(CauseNoComponent)
	case s.Upgrading():
		// An agent upgrades a component once at a time.
		return Errorf(Invalid, "component %s of agent %s is already being upgraded to %s by action %s: wait, or cancel that", name, a.ID, s.Target, s.ActionID).Because(CauseUpgrading)
	}
	return nil
}

// checkComponentBack returns why a component cannot go back to a version that its host has kept; nil:
// it can.
func (a *Agent) checkComponentBack(name string) error {
	c := a.Of(name).component
	if !slices.ContainsFunc(c.Rollbacks, func(v string) bool { return v != c.Version }) {
		return Errorf(Invalid, "component %s of agent %s has no other version that its host has kept", name, a.ID)
	}
	return nil
}

// CheckState returns an error if a component's state cannot follow it to a version, by the
// migrations of their packages. What is not known of a package its host finds out.
func (s *Subject) CheckState(to string, catalog Catalog) error {
	if s.Component == "" || s.Version == "" {
		return nil
	}
	host := s.Agent.Host()
	_, _, err := manifest.Migrate(catalog.For(s.Version, host).migrations(), catalog.For(to, host).migrations(), s.Version, to)
	if err != nil {
		return Errorf(Invalid, "component %s of agent %s: %w", s.Component, s.Agent.ID, err).Because(CauseState)
	}
	return nil
}

// migrations describes those of the first package.
func (c Catalog) migrations() *manifest.Component {
	var out manifest.Component
	if len(c) == 0 {
		return &out
	}
	for _, m := range c[0].Migrations {
		is := manifest.Migration{Version: m.Version}
		if m.Down {
			is.Down = &manifest.Hook{}
		}
		out.Migrations = append(out.Migrations, is)
	}
	return &out
}

// CheckRendered returns an error if an order that has no rendered configuration files would
// take those away that the host has. Only a rollout brings such files.
func (s *Subject) CheckRendered(w UpgradeRequest) error {
	if s.component.RenderedSHA256 == "" || w.Force {
		return nil
	}
	return Errorf(Invalid, "component %s of agent %s has configuration files that the server has rendered, and an order by itself puts those of the package in their place: make a rollout from an upgrade manifest (`muster rollouts create --component %s --profile PROFILE --upgrade-id ID`), or order it with force",
		s.Component, s.Agent.ID, s.Component).unlessForced(CauseConfig)
}
