package fleet

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Component is a component that an agent of Muster reports.
type Component struct {
	agentapi.Component
	// Upgrade is the last one that was ordered, zero if there is none.
	Upgrade Upgrade
}

// Desired returns the version that the component is to run, as far as orders tell.
func (c *Component) Desired() string {
	if c.Upgrade.Upgrading() {
		return c.Upgrade.UpgradeTo
	}
	return c.Version
}

// LastDetails returns the details of its last upgrade: those that the agent reports, or what the
// server knows if the agent has forgotten why it failed, or never knew. An agent repeats how an
// earlier upgrade ended until it begins the one that was ordered; that says nothing of the order.
func (c *Component) LastDetails() *agentapi.UpgradeDetails {
	d, u := c.UpgradeDetails, &c.Upgrade
	if d == nil || u.Upgrading() && d.ActionID != u.UpgradeActionID && d.State.Ended() {
		return u.UpgradeDetails
	}
	return d
}

// RunsComponents returns the components that the agent reports and that can be upgraded.
// Elastic's agents have none.
func (a *Agent) RunsComponents() []Component {
	var out []Component
	for _, c := range reportedComponents(a.Components) {
		out = append(out, Component{Component: c, Upgrade: a.ComponentUpgrades[c.Name].Upgrade})
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

// setUpgrade stores the upgrade of a component, or of the agent itself if the name is empty, and what
// queries and reconciliation read of all components.
func (a *Agent) setUpgrade(name string, u Upgrade) {
	if name == "" {
		a.Upgrade = u
		return
	}
	all := maps.Clone(a.ComponentUpgrades)
	if all == nil {
		all = map[string]ComponentUpgrade{}
	}
	all[name] = ComponentUpgrade{u}
	a.ComponentUpgrades, a.ComponentActions, a.ComponentsSince = all, nil, nil
	for _, name := range slices.Sorted(maps.Keys(all)) {
		u := all[name]
		if !u.Upgrading() {
			continue
		}
		a.ComponentActions = append(a.ComponentActions, u.UpgradeActionID)
		if a.ComponentsSince == nil || u.UpgradeStartedAt.Before(*a.ComponentsSince) {
			a.ComponentsSince = u.UpgradeStartedAt
		}
	}
}

// ComponentOf returns the component whose last upgrade an action has ordered, empty if it is
// none of the agent's.
func (a *Agent) ComponentOf(actionID string) string {
	for name, u := range a.ComponentUpgrades {
		if u.UpgradeActionID == actionID && actionID != "" {
			return name
		}
	}
	return ""
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
		_, ordered := a.ComponentUpgrades[c.Name]
		if ordered && a.changing(c.Name, now, func(s *Subject) bool { return s.observeComponent(old.Version, now) }) {
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

// observeComponent handles a report of a component, and reports whether its upgrade changed. was is
// the version of the report before.
func (s *Subject) observeComponent(was string, now time.Time) bool {
	switch d := s.component.UpgradeDetails; {
	case d == nil:
		return s.observeNone(was, now)
	case d.ActionID != s.UpgradeActionID:
		return false // of an earlier upgrade, or of one that was begun on the host
	default:
		return s.observeReport(d, now)
	}
}

func (s *Subject) observeNone(was string, now time.Time) bool {
	there, onlyFiles := s.Version == s.UpgradeTo, s.UpgradeFrom == s.UpgradeTo
	switch {
	case s.Upgrading() && onlyFiles && s.waitsForOthers():
		return false // right after a start an agent reports no details
	case s.Upgrading() && there && (s.UpgradeDetails != nil || !onlyFiles):
	case !s.Upgrading() && there && was != s.Version && s.UpgradedAt == nil: // presumed to have failed, or withdrawn too late
	default:
		// The agent may have just started, and continues.
		return false
	}
	s.done(now)
	return true
}

// reports reports whether the agent reports the upgrade of an action.
func (c *Component) reports(actionID string) bool {
	return c.UpgradeDetails != nil && c.UpgradeDetails.ActionID == actionID
}

// wasStarted reports whether the host had started the version of a component that failed.
func wasStarted(d *agentapi.UpgradeDetails) bool {
	return d.Metadata.FailedState == agentapi.UpgradeRestarting || d.Metadata.FailedState == agentapi.UpgradeWatching
}

// putBack reports whether the host has put the earlier version of a component back.
func putBack(d *agentapi.UpgradeDetails) bool {
	return wasStarted(d) && d.Metadata.ReasonCode != agentapi.FailedRollback && !goesForward(d)
}

// noteFailed adds the version of a component that has just failed to the list, by the host's own rule:
// one that was started is bad, unless only the configuration was to change. It reports whether the list
// changed.
func (u *Upgrade) noteFailed(now time.Time) bool {
	f := FailedVersion{Version: u.UpgradeTo, ActionID: u.UpgradeActionID, Reason: Shorten(cause(u.UpgradeDetails), maxFailedReason), At: now}
	noted := slices.ContainsFunc(u.FailedVersions, func(old FailedVersion) bool { return old.Version == f.Version && old.ActionID == f.ActionID })
	if noted || !wasStarted(u.UpgradeDetails) || u.UpgradeFrom == u.UpgradeTo {
		return false
	}
	u.addFailed(f, maxFailedComponents)
	return true
}

// waitsForOthers reports whether the host may not start the new version yet, as it has reported
// last.
func (u *Upgrade) waitsForOthers() bool {
	return u.inLockstep() && !u.UpgradeDetails.Metadata.Lockstep.Until.Reaches(agentapi.LockstepStart)
}

// inLockstep reports whether the host has reported that it goes along with others.
func (u *Upgrade) inLockstep() bool {
	return u.UpgradeDetails != nil && u.UpgradeDetails.Metadata.Lockstep != nil
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

// ComponentData returns what the UPGRADE of an action says of the component, nil if none is named. It
// pins the artifact if there is only one: otherwise it depends on the host's platform.
func (w UpgradeRequest) ComponentData(name, actionID string, catalog Catalog) *agentapi.ComponentData {
	if name == "" {
		return nil
	}
	d := &agentapi.ComponentData{Name: name, UpgradeID: actionID}
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

// checkComponentUpgrade is CheckUpgrade of a component.
func (s *Subject) checkComponentUpgrade(w UpgradeRequest, catalog Catalog) error {
	a, name := s.Agent, s.Component
	if err := a.checkComponentAble(name); err != nil {
		return err
	}
	host := a.Host()
	var fitting Catalog // empty if the package comes from elsewhere
	if w.SourceURI == "" {
		fitting = catalog.For(w.Version, host)
	}
	c := &s.component
	switch {
	case w.SourceURI == "" && len(fitting) == 0:
		return Errorf(Invalid, "there is no package of %s for %s/%s", PackageName(name, w.Version), cmp.Or(host.OS.Type, "an unknown system"), host.Host.Architecture).Because(CausePlatform)
	case len(fitting) > 0 && fitting[0].Runtime != "" && fitting[0].Runtime != c.Runtime:
		return Errorf(Invalid, "component %s of agent %s runs with %s by its policy %s, and version %s is for %s", name, a.ID, c.Runtime, a.PolicyID, w.Version, fitting[0].Runtime).Because(CausePlatform)
	case w.SourceURI == "" && s.CheckState(w.Version, catalog) != nil:
		return s.CheckState(w.Version, catalog) // also with force: hosts refuse it
	case w.Force:
		return nil
	case fitting.checkSigned() != nil:
		return fitting.checkSigned()
	case s.Busy():
		return Errorf(Invalid, "component %s of agent %s is being upgraded to %s, as was asked for on its host", name, a.ID, c.UpgradeDetails.TargetVersion).unlessForced(CauseUpgrading)
	case !w.Retry && c.UpgradeDetails != nil && c.UpgradeDetails.Metadata.ReasonCode == agentapi.FailedRollback:
		return Errorf(Invalid, "component %s of agent %s is broken: its upgrade to %s failed and could not be undone. Repair it on the host, or force another version", name, a.ID, c.UpgradeDetails.TargetVersion).unlessForced(CauseBroken)
	}
	if f, failed := s.FailedBefore(w.Version); failed && !w.Retry {
		return Errorf(Invalid, "agent %s: version %s of component %s %w, at %s (%s): upgrade it to a later version, or force this one", a.ID, w.Version, name, ErrFailedBefore, f.At.UTC().Format(time.RFC3339), f.Reason).unlessForced(CauseFailedBefore)
	}
	if c.Version == "" {
		return nil // the first installation
	}
	switch order, err := manifest.CompareVersions(w.Version, c.Version); {
	case err != nil:
		return Errorf(Invalid, "component %s of agent %s has a version that cannot be compared: %w", name, a.ID, err).unlessForced(CauseUnknownVersion)
	case order == 0:
		return AlreadyHas(name, a.ID, c.Version).unlessForced(CauseRunning)
	case order < 0:
		return Errorf(Invalid, "component %s of agent %s is %s: going down to %s needs force, and a host that does not keep that version refuses it unless its publishers allow it", name, a.ID, c.Version, w.Version).unlessForced(CauseNewer)
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
		return Errorf(Invalid, "component %s of agent %s is already being upgraded to %s by action %s: wait, or cancel that", name, a.ID, s.UpgradeTo, s.UpgradeActionID).Because(CauseUpgrading)
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
