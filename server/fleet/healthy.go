package fleet

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The facts that rollouts judge agents by, taken from ordinary check-ins: how long the
// version has run, how long it has been healthy, the last healthy version, and the
// agent's usual silence. A check-in that reports the same as before changes none of
// them, so it costs no write.

// MaxUsualGap bounds Agent.UsualGap: after a month off, an agent is not waited for as
// long.
const MaxUsualGap = 7 * 24 * time.Hour

// runs records that the agent runs another version.
func (a *Agent) runs(version string, now time.Time) {
	a.Version, a.VersionSince, a.HealthySince = version, &now, nil
}

// Gap returns how long the agent was silent before now, as seen by a server that has
// listened since listening. Any silence before that may have been the server's own
// absence.
func (l LastSeen) Gap(listening, now time.Time) time.Duration {
	if l.At == nil {
		return 0
	}
	return max(0, now.Sub(latest(*l.At, listening)))
}

// ObserveHealth handles the status of a check-in that came after gap. It must follow
// ObserveUpgrade, and reports whether the document changed.
func (a *Agent) ObserveHealth(status string, gap time.Duration, now time.Time) (changed bool) {
	if a.VersionSince == nil && a.Version != "" {
		a.VersionSince, changed = &now, true
		if a.UpgradedAt != nil && a.runsUpgradeTo() {
			a.VersionSince = a.UpgradedAt
		}
	}
	if gap > OfflineAfter {
		// The longest gap counts and decays slowly, so that an agent that is away every
		// night is not missed at noon.
		a.UsualGap = min(max(Duration(gap), a.UsualGap/4*3), Duration(MaxUsualGap))
		a.HealthySince, changed = nil, true // its health meanwhile is unknown
	}
	healthy := healthyStatus(status)
	switch {
	case !healthy && a.HealthySince != nil:
		a.HealthySince, changed = nil, true
	case healthy && a.HealthySince == nil:
		a.HealthySince, changed = &now, true
	}
	if healthy && a.Version != "" && a.Version != a.LastHealthyVersion && !a.judged(now) {
		a.LastHealthyVersion, changed = a.Version, true
	}
	return changed
}

// Stable reports whether the effect of a check-in without upgrade details on the document
// does not depend on the time: an upgrade has not begun on the host, or there is none and
// the running version has proved healthy. Then an acknowledgement of an upgrade without
// an error does not change the document either.
func (a *Agent) Stable() bool {
	switch {
	case a.UpgradeDetails != nil, a.SharedSince != nil, a.NewHostSince != nil: // the next check-in may be that of another host
		return false
	case a.Upgrading():
		return !a.runsUpgradeTo()
	}
	return a.Version == a.LastHealthyVersion
}

// CheckinState returns a digest of everything that the check-ins of a stable agent are
// compared with, its credential included; 0 for an agent that is not stable, or not
// active. A check-in that changes nothing continues to change nothing while
// CheckinState stays the same, even if an order marks the agent.
func (a *Agent) CheckinState() uint64 {
	if !a.Active || !a.Stable() {
		return 0
	}
	kept, err := json.Marshal([]any{a.Kept, a.StagedVersions})
	if err != nil {
		panic(err) // versions and times always encode
	}
	h := sha256.New() // hosts choose most of the parts
	for _, part := range [][]byte{
		[]byte(a.AccessKeyID), []byte(a.AccessKeyHash), []byte(a.Version), []byte(a.LastHealthyVersion), []byte(a.PolicyID),
		strconv.AppendInt(nil, a.PolicyRev, 10), []byte(a.AuditUnenrolledReason), kept, a.LocalMetadata, a.Components,
		strconv.AppendBool(nil, a.HealthySince != nil), strconv.AppendBool(nil, a.VersionSince != nil),
	} {
		_, _ = h.Write(part)
		_, _ = h.Write([]byte{0})
	}
	var sum [sha256.Size]byte
	return binary.BigEndian.Uint64(h.Sum(sum[:0]))
}

// healthyStatus reports whether a check-in's status is that of a healthy agent.
// Elastic's agents and Muster's use different words.
func healthyStatus(status string) bool { return status == "online" || status == "healthy" }

// judged reports whether the version that runs is still being watched, or has failed
// its watch.
func (a *Agent) judged(now time.Time) bool {
	d, w := a.UpgradeDetails, a.Watch
	switch {
	case a.Upgrading():
		return true
	case d != nil && (!d.State.Ended() || d.TargetVersion == a.Version):
		return true
	}
	return w != nil && w.To == a.Version && (w.Phase == agentapi.BeaconRollbackFailed || !w.Phase.Ended() && w.Fresh(now))
}
