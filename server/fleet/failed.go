package fleet

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// FailedVersion is a version that failed on a host: its watcher gave it up. The host
// refuses it from then on, unless the upgrade is forced.
type FailedVersion struct {
	Version string `json:"version"`
	// ActionID is the upgrade in which it failed, empty if that was asked for on the host.
	ActionID string    `json:"action_id,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	At       time.Time `json:"at"`
}

const (
	// maxFailedVersions bounds the list of an agent, as the host bounds its own.
	maxFailedVersions = 50
	// maxFailedReason bounds a reason in bytes, so that the whole list stays small
	// beside the rest of the document: some quote the end of a log.
	maxFailedReason = 300
)

// ErrFailedBefore is wrapped by the refusal of a version that failed on the host.
var ErrFailedBefore = errors.New("failed on its host before")

// FailedBefore returns the failure of a version on the host; ok is false if the version did not fail
// there.
func (u *Upgrade) FailedBefore(version string) (f FailedVersion, ok bool) {
	i := slices.IndexFunc(u.FailedVersions, func(f FailedVersion) bool { return f.Version == version })
	if i < 0 {
		return f, false
	}
	return u.FailedVersions[i], true
}

// CheckFailedBefore returns an error that says when and why the version failed on the
// agent's host, or nil. A snapshot that was pushed since then is another build.
func (a *Agent) CheckFailedBefore(version string, c Catalog) error {
	f, ok := a.FailedBefore(version)
	if !ok {
		return nil
	}
	if _, snapshot := manifest.SplitSnapshot(version); snapshot {
		host := a.Host()
		newer := func(p Package) bool {
			return p.Version == version && p.Fits(host) && p.PushedAt.After(f.At)
		}
		if slices.ContainsFunc(c, newer) {
			return nil
		}
	}
	when := ""
	if !f.At.IsZero() {
		when = ", at " + f.At.UTC().Format(time.RFC3339)
	}
	return Errorf(Invalid, "agent %s: version %s %w%s (%s): upgrade it to a later version, or force this one", a.ID, version, ErrFailedBefore, when, cmp.Or(f.Reason, "no reason is known")).unlessForced(CauseFailedBefore)
}

// lastFailed returns the failure of the last upgrade, by the host's own rule: its watcher
// gave the version up, and not because somebody asked for that or because of the host.
func (a *Agent) lastFailed() (f FailedVersion, ok bool) {
	d := a.UpgradeDetails
	if d == nil || !agentapi.IsFault(d.Metadata.ReasonCode) {
		return f, false
	}
	switch {
	case a.UpgradeStatus == UpgradeRolledBack:
	case a.UpgradeStatus == UpgradeFailed && d.Metadata.FailedState == agentapi.UpgradeRollback:
	case a.UpgradeStatus == UpgradeFailed && strings.Contains(cause(d), agentapi.FailedBefore): // the host remembers more
	default:
		return f, false
	}
	return FailedVersion{Version: a.UpgradeTo, ActionID: a.UpgradeActionID, Reason: cause(d)}, true
}

// rememberFailed adds the version of the last upgrade to the agent's list if it failed.
// It reports whether the list changed.
func (a *Agent) rememberFailed(now time.Time) bool {
	f, ok := a.lastFailed()
	if !ok {
		return false
	}
	f.At, f.Reason = now, Shorten(f.Reason, maxFailedReason)
	i := slices.IndexFunc(a.FailedVersions, func(old FailedVersion) bool { return old.Version == f.Version })
	if i >= 0 {
		// The reason may arrive after the end.
		if old := a.FailedVersions[i]; old.ActionID == f.ActionID {
			f.At, f.Reason = old.At, cmp.Or(f.Reason, old.Reason)
		}
		if a.FailedVersions[i] == f {
			return false
		}
	}
	a.addFailed(f, maxFailedVersions)
	return true
}

// addFailed adds a failure as the latest, in place of an earlier one of the version, and keeps at most
// limit.
func (u *Upgrade) addFailed(f FailedVersion, limit int) {
	list := slices.DeleteFunc(slices.Clone(u.FailedVersions), func(old FailedVersion) bool { return old.Version == f.Version })
	list = append(list, f)
	u.FailedVersions = list[max(0, len(list)-limit):]
}
