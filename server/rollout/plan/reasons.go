package plan

import "github.com/muster-fleet/muster/server/fleet"

// reason is what a code means: to an agent, as a clause that follows its name
// ("web-1: waits because …"), and what changes it.
type reason struct {
	text string
	next string // what will change it, or what to do; empty: nothing has to
}

// reasonWords has every fleet.ReasonCode; a test keeps it so.
var reasonWords = map[fleet.ReasonCode]reason{
	fleet.WhyDraft:        {"the rollout has not been started", "Preview it and start it with the preview's hash."},
	fleet.WhyBatch:        {"an earlier batch is not done yet", "It comes when its batch does."},
	fleet.WhyParallel:     {"as many agents as the plan allows are being upgraded", "It comes when one of them is done."},
	fleet.WhyLabelLimit:   {"as many agents with the same label value as the plan allows are being upgraded", "It comes when one of them is done."},
	fleet.WhySoak:         {"the batch before is left to show its health", "The next batch begins when the soak time is over."},
	fleet.WhyObservation:  {"the canaries are being observed", "The next batch begins when the observation is over."},
	fleet.WhyApproval:     {"an operator must approve what follows the canaries", "Look at the canaries, then approve or cancel the rollout."},
	fleet.WhyWindow:       {"it is outside of the plan's maintenance windows", "It goes on when the next window opens."},
	fleet.WhyFreeze:       {"the freeze calendar allows no rollouts now", "It goes on when the freeze is over."},
	fleet.WhyPaused:       {"the rollout is paused", "Resume the rollout, or cancel it."},
	fleet.WhyThreshold:    {"too many agents have failed", "Look at the failures; then resume with a reason, roll back, or cancel."},
	fleet.WhyCanaryFailed: {"a canary has failed", "Look at the canary; then resume with a reason, roll back, or cancel."},
	fleet.WhyExposure:     {"the fleet-wide exposure budget allows no more agents on this version yet", "It goes on when the version has had enough healthy agent-hours."},
	fleet.WhyDeadline:     {"a deadline has passed", "Resume with a reason where it was that of a wait; otherwise roll the rest out anew."},
	fleet.WhyAway:         {"the agent is not connected", "It takes the offer when it connects, as long as the offer is held."},
	fleet.WhyBusy:         {"the agent has another upgrade under way", "It comes when that one has ended."},
	fleet.WhyOver:         {"the rollout has ended", "Roll out to it anew."},
	fleet.WhyRollingBack:  {"the rollout is being rolled back", "Wait for the rollback, or cancel it."},
	fleet.WhyGoingBack:    {"a watcher is putting the old version back", "The rollout ends when the watcher has said how that went."},
	fleet.WhyNext:         {"it comes in the next round", "Nothing has to be done."},

	fleet.WhySame:        {"it runs the version already", ""},
	fleet.WhyRefused:     {"it cannot take the upgrade", "Mend what is said, then retry it or roll out to it anew."},
	fleet.WhyOtherSource: {"it does not run the plan's source version", "Leave source_version out of the plan to take it in."},
	fleet.WhyRing:        {"its ring is not part of the rollout", "Start a rollout of its ring."},
	fleet.WhyLocked:      {"another rollout has its policy", "Wait for that rollout, or cancel it."},
	fleet.WhyNoWayBack:   {"no version is known that it could go back to", "Roll out a version to it that is published."},
	fleet.WhyReported:    {"the agent reported that the upgrade failed", "Mend what is said, then retry it."},
	fleet.WhyCompensated: {"its watcher put the old version back", "Find out why the new version was unwell before it is retried."},
	fleet.WhyStuck:       {"neither the new version works nor could the old one be put back", "The host needs a visit; the incident has the recovery plan."},
	fleet.WhyStale:       {"it gave no sign for too long while the upgrade was under way", "Look after the host, then retry it."},
	fleet.WhyStalled:     {"it is alive, but has not become healthy in time", "Look at its components, then retry it or roll it back."},
	fleet.WhySilent:      {"it reached the version and then fell silent for longer than it usually does", "Look after the host; roll it back if the version is at fault."},
	fleet.WhyCrashLoop:   {"the new version crashed again and again", "Roll it back; do not retry before the cause is known."},
	fleet.WhyUnhealthy:   {"it runs the version, but says that it is unwell", "Look at its components, then retry it or roll it back."},
	fleet.WhyGone:        {"it was unenrolled", ""},
	fleet.WhyLostTarget:  {"somebody else moved it to another version", "Retry it if it shall have this version all the same."},
	fleet.WhyOperator:    {"an operator took it out", "Retry it, or roll out to it anew."},
	fleet.WhyExpired:     {"it did not come for its offer while that was held", "Retry it when it is back."},
	fleet.WhyHealthy:     {"it runs the version and was healthy as long as the plan asks", ""},
	fleet.WhyUnchecked:   {"it runs the version; the plan asks for no health check", ""},
}

// ReasonText is what a code means, as a clause for people; empty for no code. One
// that is not known, as from a newer server, is shown as it is.
func ReasonText(code fleet.ReasonCode) string {
	if r, ok := reasonWords[code]; ok {
		return r.text
	}
	return string(code)
}

// ReasonNext is what will change it, or what to do; empty when nothing has to be.
func ReasonNext(code fleet.ReasonCode) string { return reasonWords[code].next }

// StopReason is why nothing is offered while a rollout is paused, with its stop.
func StopReason(s *fleet.Stop) fleet.ReasonCode {
	if s == nil {
		return fleet.WhyPaused
	}
	switch s.Kind {
	case fleet.StopThreshold:
		return fleet.WhyThreshold
	case fleet.StopCanary:
		return fleet.WhyCanaryFailed
	case fleet.StopExposure:
		return fleet.WhyExposure
	case fleet.StopDeadline:
		return fleet.WhyDeadline
	case fleet.StopRollback:
		return fleet.WhyRollingBack
	}
	return fleet.WhyPaused
}
