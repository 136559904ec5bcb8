package plan

import (
	"errors"

	"github.com/muster-fleet/muster/server/fleet"
)

// reason describes a code: a clause that follows the name of an agent ("web-1: waits
// because …"), and what changes it.
type reason struct {
	text string
	next string // what will change it, or what to do; empty: nothing
}

// reasonWords has every fleet.ReasonCode; a test checks that.
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
	fleet.WhyDeadline:     {"a deadline has passed", "Resume with a reason where it was that of a wait; otherwise start another rollout for the rest."},
	fleet.WhyAway:         {"the agent is not connected", "It takes the offer when it connects, as long as the offer is held."},
	fleet.WhyBusy:         {"the agent has another upgrade under way", "It comes when that one has ended."},
	fleet.WhyOver:         {"the rollout has ended", "Start another rollout for it."},
	fleet.WhyRollingBack:  {"the rollout is being rolled back", "Wait for the rollback, or cancel it."},
	fleet.WhyGoingBack:    {"a watcher is restoring the previous version", "The rollout ends when the watcher has reported the result."},
	fleet.WhyWatched:      {"its host still watches the new version", "The rollout ends when the watch has."},
	fleet.WhyUnconfirmed:  {"its host has not confirmed that the offer was withdrawn, and may still carry it out", "The rollout ends when the host has, half an hour after the withdrawal at the latest; if the host carries it out all the same, the target ends as its host does."},
	fleet.WhyNewerServer:  {"only a newer server knows how the rollout proceeds", "It goes on when a server of the version that started it runs: start one, or upgrade this one."},
	fleet.WhyStaging:      {"the targets stage the version before the first is upgraded", "The first batch begins when they have, or failed to."},
	fleet.WhyVerify:       {"not all targets are ready to go in lockstep", "Mend what the list names, or leave those targets out, then resume the rollout: it verifies again."},
	fleet.WhyLockstep:     {"all targets go together, phase by phase", "It goes on when all targets have reached the phase. Before the phase switch, cancelling the rollout undoes everything."},
	fleet.WhyNotStaged:    {"its host has not staged the version", "Stage it there, or say stage: ahead in the plan."},
	fleet.WhyNoLockstep:   {"its agent cannot upgrade the component in lockstep", "Upgrade the agent first."},
	fleet.WhyNext:         {"it comes in the next round", "Nothing has to be done."},

	fleet.WhySame:         {"it runs the version already", ""},
	fleet.WhyRefused:      {"it cannot be upgraded", "Fix the reported cause, then retry it or start another rollout for it."},
	fleet.WhyFailedBefore: {"the version failed on its host before, and the host refuses it", "Find out why it failed, then roll out a later version."},
	fleet.WhyOtherSource:  {"it does not run the plan's source version", "Leave source_version out of the plan to include it."},
	fleet.WhyRing:         {"its ring is not part of the rollout", "Start a rollout of its ring."},
	fleet.WhyLocked:       {"another rollout has its policy", "Wait for that rollout, or cancel it."},
	fleet.WhyNoWayBack:    {"no version is known that it could go back to", "Roll out a version to it that is published."},
	fleet.WhyReported:     {"the agent reported that the upgrade failed", "Fix the reported cause, then retry it."},
	fleet.WhyCompensated:  {"its host restored the previous version", "Find out why the new version was unhealthy; unless forced, the host refuses it from now on."},
	fleet.WhyStuck:        {"the new version does not work, and the previous one could not be restored", "The host needs manual repair; the incident has the recovery plan."},
	fleet.WhyStale:        {"it sent nothing for too long during the upgrade", "Check the host, then retry it."},
	fleet.WhyNoProgress:   {"its host is online, and its upgrade has not moved for too long", "Look at the agent's log and at its source of packages on the host, restart the agent, then retry it. If the host goes on after all, that counts."},
	fleet.WhyStalled:      {"it is alive, but has not become healthy in time", "Look at its components, then retry it or roll it back."},
	fleet.WhySilent:       {"it reached the version and has been silent for longer than usual since", "Check the host; roll it back if the version is at fault."},
	fleet.WhyCrashLoop:    {"the new version crashed again and again", "Roll it back; do not retry before the cause is known."},
	fleet.WhyUnhealthy:    {"it runs the version, but reports that it is unhealthy", "Look at its components, then retry it or roll it back."},
	fleet.WhyGone:         {"it was unenrolled, or is gone from its host", "Enrol the host again if it should have the version."},
	fleet.WhyLostTarget:   {"somebody else moved it to another version", "Retry it if it should have this version anyway."},
	fleet.WhyOperator:     {"it was taken out by hand, or its rollout was cancelled", "Retry it, or start another rollout for it."},
	fleet.WhyExpired:      {"it did not connect while its offer was valid", "Retry it when it is back."},
	fleet.WhyHealthy:      {"it runs the version and was healthy as long as the plan asks", ""},
	fleet.WhyUnchecked:    {"it runs the version, and its health was not judged", ""},
	fleet.WhyNoComponent:  {"its policy lists no such component, or it does not report it yet", "Add the component to its policy, then start another rollout for it."},
	fleet.WhyConfig:       {"the configuration for its host cannot be rendered", "Fix the reported cause, then start another rollout for it."},
	fleet.WhyConfigNow:    {"the configuration for its host is not what was previewed", "Start another rollout for it, and look at what it would write."},
	fleet.WhyLeftOut:      {"it was away when the targets were verified, and the plan leaves such targets out", "Bring it to the version of the others before its component runs beside them."},
	fleet.WhyUndone:       {"everything was undone, and it runs its earlier version", "Mend what the rollout names, then start another one."},
	fleet.WhyNeverSeen:    {"it has never checked in since it was enrolled", "Start the agent on its host, or revoke it if the host was enrolled again since."},
	fleet.WhyInForce:      {"another version is in force for its policy, which only a rollout in lockstep changes (strategy: {kind: lockstep})", "Make a rollout in lockstep for all hosts of the policy."},
	fleet.WhyBehind:       {"it did not go along in time, and its component stays stopped until it does", "Check the host: it goes on by itself when it is back, within 30 days."},
}

// ReasonText returns the meaning of a code as a clause for people; empty for no code.
// An unknown code, as of a newer server, is returned unchanged.
func ReasonText(code fleet.ReasonCode) string {
	if r, ok := reasonWords[code]; ok {
		return r.text
	}
	return string(code)
}

// ReasonNext returns what will change it, or what to do; empty if nothing has to be
// done.
func ReasonNext(code fleet.ReasonCode) string { return reasonWords[code].next }

// Refusals of offers of components.
var (
	ErrNoArtifact    = errors.New("the plan has no artifact")
	ErrConfigChanged = errors.New("the configuration that would be written is not what was previewed: a template, the policy or a label has changed since")
)

// RefusalCode returns the code of an error of CheckUpgrade, or of a refused offer.
func RefusalCode(err error) fleet.ReasonCode {
	switch {
	case errors.Is(err, fleet.ErrFailedBefore):
		return fleet.WhyFailedBefore
	case errors.Is(err, fleet.ErrInForce):
		return fleet.WhyInForce
	case errors.Is(err, ErrConfigChanged):
		return fleet.WhyConfigNow
	}
	return fleet.WhyRefused
}

// StopReason returns why nothing is offered while a rollout has this stop.
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
	case fleet.StopVerify:
		return fleet.WhyVerify
	}
	return fleet.WhyPaused
}
