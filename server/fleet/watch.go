package fleet

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// While a new version is watched, its host reports through both the agent, which may be
// what is broken, and the watcher. The watcher's report ends an upgrade when the agent
// is silent. If both have reported, the agent's report on the end takes precedence, in
// whichever order they arrived.

// Watch is the last stored beacon of a host's watcher.
type Watch struct {
	agentapi.Beacon
	ReceivedAt time.Time `json:"received_at"`
}

const (
	// BeaconWrite is how often a beacon without news is stored: the interval at which a
	// parked agent's last-seen time is written.
	BeaconWrite = 30 * time.Second
	// BeaconFresh is how long a beacon counts as a sign of life: three writes, so that
	// one lost beacon is not silence.
	BeaconFresh = 3 * BeaconWrite
)

// Fresh reports whether the beacon still counts as a sign of life.
func (w *Watch) Fresh(now time.Time) bool { return now.Sub(w.ReceivedAt) <= BeaconFresh }

// CheckBeacon validates a beacon without regard to the agent.
func CheckBeacon(b agentapi.Beacon) error {
	if !b.Phase.Known() {
		return FieldError("body.stage", "is %q, want watching, rolling_back, committed, rolled_back or rollback_failed", b.Phase)
	}
	for _, v := range []struct{ field, version string }{{"body.from", b.From}, {"body.to", b.To}} {
		if _, err := manifest.ParseVersion(v.version); err != nil {
			return FieldError(v.field, "%w", err)
		}
	}
	var reason agentapi.BeaconCause
	if b.Reason != nil {
		reason = *b.Reason
	}
	switch {
	case b.Reason != nil && (reason.Code == "" || reason.Text == ""):
		return FieldError("body.reason", "want a code, such as crash_loop, and a text")
	case b.At.IsZero():
		return FieldError("body.at", "is missing: say when it was sent, such as 2026-01-31T12:00:00Z")
	case b.Agent.Crashes < 0:
		return FieldError("body.agent.crashes", "is %d, want 0 or more", b.Agent.Crashes)
	case b.Reason == nil && endsBadly(b.Phase):
		return FieldError("body.reason", "is missing: say why stage %s came", b.Phase)
	}
	return nil
}

func endsBadly(p agentapi.BeaconPhase) bool {
	return p == agentapi.BeaconRollingBack || p == agentapi.BeaconRolledBack || p == agentapi.BeaconRollbackFailed
}

// BeaconChange is what a beacon changed.
type BeaconChange struct {
	Write   bool // the document changed
	Phase   bool // so did the phase of the watch, or its reason
	Upgrade bool // so did the upgrade
}

// ObserveBeacon handles a beacon that CheckBeacon has accepted. A beacon without news
// changes the document only every BeaconWrite.
func (a *Agent) ObserveBeacon(b agentapi.Beacon, now time.Time) BeaconChange {
	old := a.Watch
	if old != nil && a.overtaken(old, b) {
		return BeaconChange{}
	}
	if old != nil && old.sameUpgrade(b) && old.namesCause(b) {
		b.Reason = old.Reason
	}
	change := BeaconChange{Upgrade: endsBadly(b.Phase) && a.noting(now, func() bool { return a.endByWatch(b, now) })}
	change.Upgrade = change.Upgrade && a.rememberFailed(now) || change.Upgrade
	change.Phase = old == nil || !old.sameUpgrade(b) || old.Phase != b.Phase || !reflect.DeepEqual(old.Reason, b.Reason)
	change.Write = change.Upgrade || change.Phase || !sameAgent(old.Agent, b.Agent) || now.Sub(old.ReceivedAt) >= BeaconWrite
	if change.Write {
		a.Watch = &Watch{Beacon: b, ReceivedAt: now}
	}
	return change
}

func (w *Watch) sameUpgrade(b agentapi.Beacon) bool {
	return w.ActionID == b.ActionID && w.From == b.From && w.To == b.To
}

// namesCause reports whether the reason of the earlier beacon names a cause, and that of b does not.
// A phase that comes again belongs to a new watch, which has its own reasons.
func (w *Watch) namesCause(b agentapi.Beacon) bool {
	return w.Reason != nil && b.Reason != nil && phaseOrder[b.Phase] >= phaseOrder[w.Phase] &&
		!vagueCodes[w.Reason.Code] && vagueCodes[b.Reason.Code]
}

// sameAgent compares without the time of the last check-in, which advances by itself.
func sameAgent(a, b agentapi.BeaconAgent) bool {
	a.LastCheckin, b.LastCheckin = nil, nil
	return a == b
}

// overtaken reports whether a beacon arrived late: w was sent after it. Host clocks
// jump, so times count only where nothing else decides.
func (a *Agent) overtaken(w *Watch, b agentapi.Beacon) bool {
	if w.sameUpgrade(b) {
		retried := b.ActionID == "" && w.Phase.Ended() && b.At.After(w.At) // the host started the same upgrade again
		return !retried && phaseOrder[b.Phase] < phaseOrder[w.Phase]
	}
	if b.ActionID != "" {
		// A beacon of the action under way is newer than any other, one of another
		// action is older.
		if current := a.UpgradeActionID; b.ActionID == current || w.ActionID == current {
			return b.ActionID != current
		}
	}
	return b.At.Before(w.At)
}

// phaseOrder is the order in which the phases of a watch occur. A rollback that failed is retried when
// the host starts.
var phaseOrder = map[agentapi.BeaconPhase]int{
	agentapi.BeaconWatching: 0, agentapi.BeaconRollingBack: 1, agentapi.BeaconRollbackFailed: 2, agentapi.BeaconRolledBack: 3, agentapi.BeaconCommitted: 3,
}

// endByWatch ends an upgrade as its watcher reports. It reports whether it did.
func (a *Agent) endByWatch(b agentapi.Beacon, now time.Time) bool {
	if a.Undoes.is(b.ActionID, b.To) {
		if a.Upgrading() {
			return a.undoneByWatch(b, now)
		}
		a.resumeUndone()
	}
	if !a.concernedBy(b, now) {
		return false
	}
	if a.UpgradeEndReported {
		return a.addReason(b)
	}
	status, details := a.watchEnd(b)
	details = keepReason(a.UpgradeDetails, details)
	if a.UpgradeStatus == status && reflect.DeepEqual(a.UpgradeDetails, details) {
		return false
	}
	a.endBadly(status)
	a.UpgradeDetails = details
	return true
}

// undoneByWatch handles the end of an upgrade whose rollback an operator asked for.
// That the older version is in place does not mean that it runs: it has to answer.
func (a *Agent) undoneByWatch(b agentapi.Beacon, now time.Time) bool {
	changed := a.noteUndone(b.Reason.Text)
	switch {
	case b.Phase == agentapi.BeaconRollbackFailed:
		a.fail(b.Reason.Text, agentapi.UpgradeRollback)
	case b.Phase == agentapi.BeaconRolledBack && b.Agent.Version == a.UpgradeTo:
		a.runs(b.Agent.Version, now)
		a.reached(now)
	default:
		return changed
	}
	return true
}

// concernedBy reports whether the beacon is about the agent's upgrade. An upgrade that
// was started on the host, and that the agent never reported, begins here.
func (a *Agent) concernedBy(b agentapi.Beacon, now time.Time) bool {
	switch {
	case b.ActionID != "":
		return b.ActionID == a.UpgradeActionID
	case a.UpgradeActionID == "" && a.UpgradeTo == b.To:
		return true
	case a.Upgrading():
		return false // the server's own upgrade continues until it ends
	}
	a.BeginUpgrade("", b.To, now)
	a.UpgradeFrom = b.From
	return true
}

func (a *Agent) watchEnd(b agentapi.Beacon) (UpgradeStatus, *agentapi.UpgradeDetails) {
	d := &agentapi.UpgradeDetails{TargetVersion: a.UpgradeTo, ActionID: a.UpgradeActionID}
	d.Metadata.Reason, d.Metadata.ReasonCode = b.Reason.Text, b.Reason.Code
	if b.Phase == agentapi.BeaconRollbackFailed {
		d.State, d.Metadata.FailedState = agentapi.UpgradeFailed, agentapi.UpgradeRollback
		d.Metadata.ErrorMsg = fmt.Sprintf("going back to %s failed: %s", b.From, b.Reason.Text)
		return UpgradeFailed, d
	}
	d.State = agentapi.UpgradeRollback
	return UpgradeRolledBack, d
}

// addReason adds the watcher's reason if it says more than what the agent knew when it reported
// its rollback.
func (a *Agent) addReason(b agentapi.Beacon) bool {
	d := a.UpgradeDetails
	if d == nil || d.State != agentapi.UpgradeRollback {
		return false
	}
	_, details := a.watchEnd(b)
	merged := keepReason(details, d)
	a.UpgradeDetails = merged
	return merged != d
}

// WatchEvent returns an event with the state of the watch of the agent's upgrade.
func (a *Agent) WatchEvent() Event {
	w := a.Watch
	data, err := json.Marshal(map[string]any{"action_id": w.ActionID, "from": w.From, "to": w.To, "stage": w.Phase, "reason": w.Reason})
	if err != nil {
		panic(err) // our own types always encode
	}
	return Event{Type: EventAgentWatch, Subject: a.ID, Data: data}
}

// Diagnosis is why an agent under upgrade is silent. Append only.
type Diagnosis string

const (
	// DiagnosisNone: the agent checks in, or nothing known explains its silence.
	DiagnosisNone           Diagnosis = ""
	DiagnosisAgentDown      Diagnosis = "agent_down"      // the host is up, the agent is not
	DiagnosisAgentCutOff    Diagnosis = "agent_cut_off"   // the agent runs and does not reach the server
	DiagnosisNoSign         Diagnosis = "no_sign"         // neither agent nor watcher is heard from
	DiagnosisRolledBack     Diagnosis = "rolled_back"     // rolled back, and silent since
	DiagnosisRollbackFailed Diagnosis = "rollback_failed" // could not be rolled back
)

// silentAfter is when an agent whose version is being watched counts as silent: three
// of the last-seen writes of a parked agent.
const silentAfter = BeaconFresh

// Diagnose explains the silence of an agent whose upgrade is watched, or has failed or
// been rolled back. The text is a sentence for operators.
func (a *Agent) Diagnose(now time.Time) (Diagnosis, string) {
	w := a.Watch
	seen := a.LastActivity()
	if w == nil || !a.Active || now.Sub(seen) <= silentAfter {
		return DiagnosisNone, ""
	}
	silent := "has not checked in since " + seen.UTC().Format(time.RFC3339)
	switch {
	case w.Phase == agentapi.BeaconCommitted:
		return DiagnosisNone, ""
	case w.Phase.Ended() && seen.After(w.ReceivedAt):
		return DiagnosisNone, "" // the agent has checked in since: a later silence has other causes
	case w.Phase == agentapi.BeaconRollbackFailed:
		return DiagnosisRollbackFailed, fmt.Sprintf("The host could not go back to %s (%s), and the agent %s: it needs manual repair", w.From, w.Reason.Text, silent)
	case w.Phase == agentapi.BeaconRolledBack:
		return DiagnosisRolledBack, fmt.Sprintf("The host was rolled back to %s (%s), and the agent %s", w.From, w.Reason.Text, silent)
	case !w.Fresh(now):
		return DiagnosisNoSign, fmt.Sprintf("No sign from the host since %s, neither from the agent nor from its watcher: network or power", latest(seen, w.ReceivedAt).UTC().Format(time.RFC3339))
	case !w.Agent.Alive:
		return DiagnosisAgentDown, fmt.Sprintf("The host is up, but the agent's process is not running (it ended %d times): its watcher decides whether to roll back", w.Agent.Crashes)
	case w.Agent.State == "":
		return DiagnosisAgentDown, "The host is up and the agent's process runs, but it does not answer its watcher"
	}
	return DiagnosisAgentCutOff, fmt.Sprintf("The agent runs on its host (%s), but %s: something between it and this server", w.Agent.State, silent)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
