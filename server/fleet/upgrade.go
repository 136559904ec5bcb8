package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The states of an upgrade, of an agent or of a component, on its agent's document:
//
//	Begin ──► started ──► the version is there ─► watched ──► details gone: done
//	             │                                   │
//	             ├─ FAILED reported, or acked with   └─ ROLLBACK reported: rolled_back
//	             │  an error: failed
//	             ├─ presumed: reported before, and the host says that it is idle, or reports nothing
//	             │  of it for UnreportedGrace: failed, until a report shows that it continues
//	             └─ reconciled: action gone, expired, or acked but the old version stays: failed
//
// A check-in without upgrade details says nothing: an agent that has just started may know less
// than it will. One that failed and will retry goes back to SCHEDULED; the upgrade does not end. An
// acknowledgement alone never completes an upgrade: it only means that the agent accepted the
// action. Only Begin starts an upgrade, so every path above leaves "updating".
//
// The rules are one set. An agent and a component differ in what shows the outcome:
//
//   - Of an agent, the version that checks in decides, and the watch comes after it. Its watcher
//     reports too (watch.go), it can be rolled back (rollback.go), and an upgrade that was asked for
//     on the host counts as its last one.
//   - A component is observed by its agent, which does not change and reports the upgrade to its
//     end. The installed version alone completes nothing: an upgrade may change only the
//     configuration. A FAILED counts as rolled_back if the host had started the version and has put
//     the earlier one back.

// Upgrade is the last upgrade of an agent or of a component, under way or over.
type Upgrade struct {
	// UpgradeStartedAt is nil once it has ended, UpgradedAt unless it ended well.
	UpgradeStartedAt *time.Time    `json:"upgrade_started_at"`
	UpgradedAt       *time.Time    `json:"upgraded_at"`
	UpgradeStatus    UpgradeStatus `json:"upgrade_status"`
	// UpgradeDetails are the last that the agent has reported; why it failed stays until the next
	// upgrade.
	UpgradeDetails  *agentapi.UpgradeDetails `json:"upgrade_details"`
	UpgradeActionID string                   `json:"upgrade_action_id,omitempty"`
	UpgradeTo       string                   `json:"upgrade_target,omitempty"`
	// UpgradeFrom is the version that ran when it began; empty: none.
	UpgradeFrom string `json:"upgrade_from,omitempty"`
	UpgradeLog
	// UpgradeRollback marks it as a rollback that an operator asked for.
	UpgradeRollback bool `json:"upgrade_rollback,omitempty"`
	// Undoes is the upgrade that was being watched when such a rollback began.
	Undoes *UndoneUpgrade `json:"undoes,omitempty"`
	// FailedVersions are the versions that failed on the host, the latest last.
	FailedVersions []FailedVersion `json:"failed_versions,omitempty"`
	// UpgradeEndReported is set once the agent itself has reported that its upgrade failed or was
	// rolled back. Its report then takes precedence over the watcher's; see Subject.EndReported.
	UpgradeEndReported bool `json:"upgrade_end_told,omitempty"`
}

// ComponentUpgrade is the Upgrade of a component, which has names of its own in the agent's document.
type ComponentUpgrade struct{ Upgrade }

// componentDocument has the names. What it lacks of an Upgrade no component has.
type componentDocument struct {
	ActionID   string                   `json:"action_id"`
	To         string                   `json:"target_version"`
	From       string                   `json:"from_version,omitempty"`
	StartedAt  *time.Time               `json:"upgrade_started_at,omitempty"`
	UpgradedAt *time.Time               `json:"upgraded_at,omitempty"`
	Status     UpgradeStatus            `json:"upgrade_status,omitempty"`
	Details    *agentapi.UpgradeDetails `json:"upgrade_details,omitempty"`
	Failed     []FailedVersion          `json:"failed_versions,omitempty"`
	UpgradeLog
}

// MarshalJSON writes it as documents have it.
func (c ComponentUpgrade) MarshalJSON() ([]byte, error) {
	return jsonv1.Marshal(componentDocument{
		c.UpgradeActionID, c.UpgradeTo, c.UpgradeFrom, c.UpgradeStartedAt, c.UpgradedAt, c.UpgradeStatus, c.UpgradeDetails, c.FailedVersions, c.UpgradeLog,
	})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *ComponentUpgrade) UnmarshalJSON(doc []byte) error {
	var d componentDocument
	err := jsonv1.Unmarshal(doc, &d)
	c.read(&d)
	return err
}

// UnmarshalJSONFrom is UnmarshalJSON that refuses unknown members if the decoder does.
func (c *ComponentUpgrade) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var d componentDocument
	err := jsonv2.UnmarshalDecode(dec, &d)
	c.read(&d)
	return err
}

func (c *ComponentUpgrade) read(d *componentDocument) {
	c.Upgrade = Upgrade{
		UpgradeStartedAt: d.StartedAt, UpgradedAt: d.UpgradedAt, UpgradeStatus: d.Status, UpgradeDetails: d.Details, UpgradeActionID: d.ActionID,
		UpgradeTo: d.To, UpgradeFrom: d.From, UpgradeLog: d.UpgradeLog, FailedVersions: d.Failed,
	}
}

// Document returns a value of the type whose members the document has. Stores keep others, which a
// newer server wrote.
func (ComponentUpgrade) Document() any { return componentDocument{} }

// Upgrading reports whether the upgrade is under way or scheduled, by Kibana's rule.
func (u *Upgrade) Upgrading() bool { return u.UpgradeStartedAt != nil && u.UpgradedAt == nil }

// begin replaces the upgrade by one of an action, from the version that runs, from start on.
func (u *Upgrade) begin(actionID, to, from string, start time.Time) {
	*u = Upgrade{
		UpgradeStartedAt: &start, UpgradeStatus: UpgradeStarted, UpgradeActionID: actionID, UpgradeTo: to, UpgradeFrom: from,
		FailedVersions: u.FailedVersions, UpgradeLog: UpgradeLog{UpgradePhases: []Phase{{State: ProgressSent, At: start}}},
	}
}

// BeginUpgrade marks the agent as being upgraded by an action from start on, which is in
// the future for a scheduled upgrade.
func (a *Agent) BeginUpgrade(actionID, to string, start time.Time) {
	a.BeginOf("", actionID, to, start)
}

// BeginOf is BeginUpgrade of a component, or of the agent itself if the name is empty.
func (a *Agent) BeginOf(component, actionID, to string, start time.Time) {
	s := a.Of(component)
	s.begin(actionID, to, s.Version, start)
	a.setUpgrade(component, *s.Upgrade)
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
	s := a.Of("")
	return s.observeReport(details, now) || changed
}

// arrivedLate revokes a presumed failure, or a withdrawal that came too late, when the
// version of the upgrade begins to run after all.
func (a *Agent) arrivedLate(d *agentapi.UpgradeDetails, now time.Time) {
	denied := d != nil && (d.State.Ended() || d.ActionID != a.UpgradeActionID)
	if w := a.Watch; w != nil && w.Phase == agentapi.BeaconRollbackFailed && w.ActionID == a.UpgradeActionID {
		denied = true // it runs only because its rollback failed
	}
	// The same version may have reached the host in another way, so after a
	// cancellation only the agent's own details show that the upgrade continued.
	wentOn := a.calledOff() && d != nil
	if (a.UpgradeStatus == UpgradeFailed || wentOn) && a.runsUpgradeTo() && !denied {
		a.done(now)
	}
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
		return a.UpgradeTo != d.TargetVersion
	case a.UpgradeActionID != "":
		return !a.Upgrading() // the server's own upgrade continues until it ends
	}
	followed := a.UpgradeDetails != nil && !a.UpgradeDetails.State.Ended() && a.UpgradeTo == d.TargetVersion
	return !followed
}

// silentWatch is how soon after an upgrade a return to the version before it can only be
// a rollback: Elastic's watcher watches 11 minutes, and restarts the agent five times with
// pauses of up to 90 seconds.
const silentWatch = 30 * time.Minute

// rolledBackSilently reports whether an agent that now runs version, and reports no upgrade,
// was rolled back by its watcher. Elastic's agents before 9.2 remove the watcher's report.
func (a *Agent) rolledBackSilently(version string, now time.Time) bool {
	return a.UpgradedAt != nil && now.Sub(*a.UpgradedAt) < silentWatch && a.runsUpgradeTo() && version == a.UpgradeFrom &&
		a.Host().Maker == MakerElastic
}

// endSilentRollback ends an upgrade that the host has undone without a report.
func (a *Agent) endSilentRollback(why string) {
	a.endBadly(UpgradeRolledBack)
	a.UpgradeDetails = &agentapi.UpgradeDetails{
		TargetVersion: a.UpgradeTo, ActionID: a.UpgradeActionID, State: agentapi.UpgradeRollback,
		Metadata: agentapi.UpgradeMetadata{ErrorMsg: why},
	}
}

func (a *Agent) observeNoDetails(now time.Time) bool {
	d := a.UpgradeDetails
	switch {
	case a.Upgrading() && a.runsUpgradeTo():
		a.done(now)
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
	s := a.Of("")
	return s.observeMissing(false, now)
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

func (a *Agent) runsUpgradeTo() bool { return a.UpgradeTo != "" && a.Version == a.UpgradeTo }

func (a *Agent) reached(now time.Time) bool {
	if !a.Upgrading() || !a.runsUpgradeTo() {
		return false
	}
	a.UpgradeStartedAt, a.UpgradedAt, a.UpgradeStatus = nil, &now, UpgradeNone
	return true
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
			e := Errorf(Invalid, "hosts will not install %s: %s", p.File, p.Withheld).unlessForced(CauseWithheld)
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

// UpgradeRequest is an operator's request to upgrade agents, or to install or upgrade a component.
type UpgradeRequest struct {
	Version   string
	SourceURI string
	Force     bool
	// Retry asks for the version although it failed on the host before. It overrides only that; the
	// host, which remembers it as well, gets the upgrade with force.
	Retry bool
}

// Check validates the request for a component, or for the agents themselves if none is named, without
// regard to any agent. c has the packages of what is upgraded.
func (w UpgradeRequest) Check(component string, c Catalog) error {
	if component != "" {
		if err := manifest.ValidComponentName(component); err != nil {
			return FieldError("path.name", "%w", err)
		}
	}
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
	return FieldError("body.version", "no package of %s is published (%s): publish it with `muster package push`, or say where it is (source_uri, --source-uri)", PackageName(component, w.Version), published)
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
		return AlreadyHas("", a.ID, a.Version).Because(CauseRunning)
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
		return AlreadyHas("", a.ID, a.Version).unlessForced(CauseRunning)
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
