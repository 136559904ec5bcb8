package fleet

import (
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// A rollback is an UPGRADE to a version that the host has kept. It ends as upgrades do:
// it succeeds when the older version checks in.
//
// An operator may ask for it while an upgrade is still being watched. The agent then
// has nothing to switch: its watcher undoes the upgrade, and the agent reports ROLLBACK
// of that upgrade. So the rollback records which upgrade it undoes.

// An Elastic Agent reports each rollback as ROLLBACK, also the one that was ordered: with
// the rollback's own action, and the version that is left as target_version. It does not
// watch the version that it goes back to. See goingBack.

// UndoneUpgrade is an upgrade that was being watched when its rollback was asked for,
// with what is needed to resume it should the rollback fail.
type UndoneUpgrade struct {
	ActionID   string     `json:"action_id,omitempty"` // empty for one asked for on the host
	From       string     `json:"from,omitempty"`
	To         string     `json:"to"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	UpgradedAt *time.Time `json:"upgraded_at,omitempty"`
	Rollback   bool       `json:"rollback,omitempty"`
	// Details are those of the watch, nil if only the watcher reported it.
	Details *agentapi.UpgradeDetails `json:"details,omitempty"`
	// Reason is why it ended, as the host reported it.
	Reason string `json:"reason,omitempty"`
	UpgradeLog
}

func (u *UndoneUpgrade) is(actionID, to string) bool {
	return u != nil && u.ActionID == actionID && u.To == to
}

// RollbackWindow is how long agents keep the previous version by default: a week
// includes every weekly load.
const RollbackWindow = 7 * 24 * time.Hour

// Kibana's error texts, which its clients may search for.
const (
	errNoRollback      = "upgrade rollback not available for agent"
	errRollbackExpired = "upgrade rollback window has expired"
)

// CheckRollback returns the version to which the agent would be rolled back, or an
// error that says why it cannot be. ValidUntil is zero while an upgrade is watched: the
// rollback is then possible during the watch, and after it for as long as the agent
// reports. The error text is shown to operators as it is.
func (a *Agent) CheckRollback(now time.Time) (agentapi.Rollback, error) {
	var none agentapi.Rollback
	switch {
	case a.checkStays() != nil:
		return none, a.checkStays()
	case a.checkShared() != nil:
		return none, a.checkShared()
	case a.Upgrading() && a.UpgradeRollback && a.UpgradeDetails == nil:
		return none, Errorf(Invalid, "agent %s is already being rolled back to %s", a.ID, a.UpgradeTo).Because(CauseUpgrading)
	}
	if from, ok := a.watchedFrom(now); ok {
		return agentapi.Rollback{Version: from}, nil
	}
	if a.Upgrading() {
		return none, Errorf(Invalid, "agent %s is already being upgraded to %s: cancel that, or wait until it is watched", a.ID, a.UpgradeTo).Because(CauseUpgrading)
	}
	var latest agentapi.Rollback
	for _, r := range a.Kept.Rollbacks {
		if r.Version != a.Version && r.ValidUntil.After(latest.ValidUntil) {
			latest = r
		}
	}
	switch {
	case latest.Version == "":
		return none, Errorf(Invalid, errNoRollback+": agent %s keeps no earlier version", a.ID).Because(CauseNoWayBack)
	case !now.Before(latest.ValidUntil):
		return none, Errorf(Invalid, errRollbackExpired+": agent %s kept %s until %s", a.ID, latest.Version, latest.ValidUntil.Format(time.RFC3339)).Because(CauseBackExpired)
	}
	return latest, nil
}

// CheckForward returns an error if the version to which the agent would be rolled back is later than the
// one that runs: an agent that was rolled back keeps the version that was left.
func (a *Agent) CheckForward(to string) error {
	if sign, err := manifest.CompareVersions(to, a.Version); err != nil || sign <= 0 {
		return nil
	}
	return Errorf(Invalid, "agent %s runs %s, and a rollback would go forward to %s, which is the other version that its host keeps: send forward (--forward) if that is meant", a.ID, a.Version, to).Because(CauseForward)
}

// watchedFrom returns the version that ran before the upgrade being watched; ok is
// false if none is being watched.
func (a *Agent) watchedFrom(now time.Time) (from string, ok bool) {
	d, w := a.UpgradeDetails, a.Watch
	of := w != nil && w.ActionID == a.UpgradeActionID && w.To == a.UpgradeTo
	switch {
	case d != nil && d.State == agentapi.UpgradeWatching:
	case of && a.Upgrading() && w.Phase == agentapi.BeaconWatching && w.Fresh(now):
		// The new version has not yet reported the watch itself.
	default:
		return "", false
	}
	from = a.UpgradeFrom
	if of {
		from = w.From
	}
	return from, from != "" && from != a.UpgradeTo
}

// BeginRollback marks the agent as being rolled back by an action.
func (a *Agent) BeginRollback(actionID, to string, now time.Time) {
	var undoes *UndoneUpgrade
	if from, ok := a.watchedFrom(now); ok {
		undoes = &UndoneUpgrade{
			ActionID: a.UpgradeActionID, From: from, To: a.UpgradeTo,
			StartedAt: a.UpgradeStartedAt, UpgradedAt: a.UpgradedAt, Rollback: a.UpgradeRollback, Details: a.UpgradeDetails,
			UpgradeLog: a.UpgradeLog,
		}
	}
	a.BeginUpgrade(actionID, to, now)
	a.UpgradeRollback, a.Undoes = true, undoes
}

// observeUndone handles the agent's report that the upgrade its rollback undoes has
// failed or was rolled back, which is what the rollback is for. It reports whether the
// document changed.
func (a *Agent) observeUndone(d *agentapi.UpgradeDetails, now time.Time) bool {
	if !d.State.Ended() || !a.Undoes.is(d.ActionID, d.TargetVersion) {
		return false
	}
	if !a.Upgrading() {
		return a.resumeUndone()
	}
	noted := a.noteUndone(cause(d))
	return a.reached(now) || noted
}

// goingBack returns what an Elastic Agent means by the details of the rollback that was
// ordered; there is true if it has succeeded. The version that runs decides: the agent
// reports ROLLBACK before it has gone back, and again when it is there.
func (a *Agent) goingBack(d *agentapi.UpgradeDetails) (meant *agentapi.UpgradeDetails, there bool) {
	if !a.UpgradeRollback || d.ActionID == "" || d.ActionID != a.UpgradeActionID || a.Host().Maker != MakerElastic {
		return d, false
	}
	if d.State.Ended() && a.runsUpgradeTo() {
		return nil, true
	}
	going := *d
	going.TargetVersion = a.UpgradeTo
	if going.State == agentapi.UpgradeRollback {
		going.State = agentapi.UpgradeRestarting
	}
	return &going, false
}

// wentBack ends the rollback that was ordered as done. It replaces a bad end that was recorded
// before, with the version that counted as failed by it. It reports whether the document changed.
func (a *Agent) wentBack(now time.Time) bool {
	if a.UpgradedAt != nil && a.UpgradeDetails == nil {
		return false
	}
	if a.UpgradedAt != nil {
		now = *a.UpgradedAt
	}
	a.done(now)
	a.FailedVersions = slices.DeleteFunc(slices.Clone(a.FailedVersions), func(f FailedVersion) bool { return f.ActionID == a.UpgradeActionID })
	return true
}

func (a *Agent) noteUndone(reason string) bool {
	if reason == "" || a.Undoes.Reason != "" {
		return false
	}
	a.Undoes.Reason = reason
	return true
}

// resumeUndone resumes the undone upgrade if its rollback had failed, because the host
// has undone it after all.
func (a *Agent) resumeUndone() bool {
	if a.UpgradedAt != nil {
		return false
	}
	a.resume()
	return true
}

// resume restores the upgrade whose rollback was called off or failed.
func (u *Upgrade) resume() {
	was := u.Undoes
	if was == nil {
		return
	}
	u.UpgradeActionID, u.UpgradeTo, u.UpgradeFrom, u.UpgradeRollback = was.ActionID, was.To, was.From, was.Rollback
	u.UpgradeStartedAt, u.UpgradedAt, u.UpgradeStatus, u.UpgradeDetails = was.StartedAt, was.UpgradedAt, UpgradeNone, was.Details
	if u.Upgrading() {
		u.UpgradeStatus = UpgradeStarted
	}
	u.Undoes, u.UpgradeEndReported, u.UpgradeLog = nil, false, was.UpgradeLog
}

// rolledBackUnseen reports whether the watcher has undone an upgrade as asked, and the
// older version has not checked in since.
func (s *Subject) rolledBackUnseen(now time.Time) bool {
	w := s.Watch
	return s.Upgrading() && w != nil && s.Undoes.is(w.ActionID, w.To) && w.Phase == agentapi.BeaconRolledBack &&
		now.Sub(w.ReceivedAt) > AckGrace
}

// UpgradeResults returns UpgradeResult and, after a rollback of the agent, the result of the upgrade
// that it undid.
func (a *Agent) UpgradeResults(component string, now time.Time) []Result {
	r, ok := a.UpgradeResult(component, now)
	if !ok {
		return nil
	}
	results := []Result{r}
	if u := a.Undoes; component == "" && u != nil && u.ActionID != "" && a.UpgradedAt != nil {
		undone := Result{ActionID: u.ActionID, AgentID: a.ID, Hostname: r.Hostname, Timestamp: now, Error: u.Reason, Outcome: true}
		if undone.Error == "" {
			undone.Error = "an operator rolled it back to " + a.UpgradeTo
		}
		results = append(results, undone)
	}
	return results
}
