package fleet

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
)

// What rollouts judge agents by, taken from ordinary check-ins: how long the
// version has run, how long it has been well, which one was well last, and how
// long the agent is usually silent. An agent that says the same as before
// changes none of it, so it costs no write.

// MaxUsualGap bounds Agent.UsualGap: who was on holiday for a month is not
// waited for as long.
const MaxUsualGap = 7 * 24 * time.Hour

// runs notes that the agent runs another version.
func (a *Agent) runs(version string, now time.Time) {
	a.Version, a.VersionSince, a.HealthySince = version, &now, nil
}

// Gap is how long the agent was silent before now, as far as it can be known by
// a server that has listened since the time given: what came before may have
// been the server's own absence.
func (l LastSeen) Gap(listening, now time.Time) time.Duration {
	if l.At == nil {
		return 0
	}
	return max(0, now.Sub(latest(*l.At, listening)))
}

// ObserveHealth takes in the status of a check-in that came after gap. It
// belongs behind ObserveUpgrade, and says whether the document changed.
func (a *Agent) ObserveHealth(status string, gap time.Duration, now time.Time) (changed bool) {
	if a.VersionSince == nil && a.Version != "" {
		a.VersionSince, changed = &now, true
		if a.UpgradedAt != nil && a.runsTarget() {
			a.VersionSince = a.UpgradedAt
		}
	}
	if gap > OfflineAfter {
		// The longest gaps count, and are forgotten slowly: who is away every
		// night is not missed at noon.
		a.UsualGap = min(max(Duration(gap), a.UsualGap/4*3), Duration(MaxUsualGap))
		a.HealthySince, changed = nil, true // nobody knows how it was
	}
	well := saysWell(status)
	switch {
	case !well && a.HealthySince != nil:
		a.HealthySince, changed = nil, true
	case well && a.HealthySince == nil:
		a.HealthySince, changed = &now, true
	}
	if well && a.Version != "" && a.Version != a.LastHealthyVersion && !a.judged(now) {
		a.LastHealthyVersion, changed = a.Version, true
	}
	return changed
}

// Settled says that time alone changes nothing about what a check-in without details
// of an upgrade means for the document: an upgrade has not begun on the host, or
// there is none and the version that runs has proved itself. Then an acknowledgement
// of an upgrade without an error changes nothing, either.
func (a *Agent) Settled() bool {
	switch {
	case a.UpgradeDetails != nil:
		return false
	case a.Upgrading():
		return !a.runsTarget()
	}
	return a.Version == a.LastHealthyVersion
}

// CheckinState returns a digest of what the check-ins of a settled agent are compared
// with, its credential included; 0 of an agent that is not settled, or not active. A
// check-in that would change nothing about an agent changes nothing while its
// CheckinState is the same, such as when an order marks it.
func (a *Agent) CheckinState() uint64 {
	if !a.Active || !a.Settled() {
		return 0
	}
	kept, err := json.Marshal(a.Kept)
	if err != nil {
		panic(err) // a list of versions and times
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

// saysWell says whether a check-in's status is that of an agent that lacks
// nothing. Elastic's agents and Muster's call it differently.
func saysWell(status string) bool { return status == "online" || status == "healthy" }

// judged says whether the version that runs is still on trial, or has failed it.
func (a *Agent) judged(now time.Time) bool {
	d, w := a.UpgradeDetails, a.Watch
	switch {
	case a.Upgrading():
		return true
	case d != nil && (!d.State.Ended() || d.TargetVersion == a.Version):
		return true
	}
	return w != nil && w.To == a.Version && (w.Stage == agentapi.BeaconRollbackFailed || !w.Stage.Ended() && w.Fresh(now))
}
