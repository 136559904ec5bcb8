package plan

import (
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Target is a target as Decide sees it. It is small, because a rollout may have a
// million.
type Target struct {
	AgentID string
	State   State
	// Attempts is how often the version was offered.
	Attempts uint8
	// Code is why it is in its state, as far as Decide needs to know.
	Code Code
	// Online: the agent reported recently enough to take an offer.
	Online bool
	// Busy: the agent cannot take an offer now, since something else is under way
	// on it.
	Busy bool
	// Answered: the agent has staged the version, or will not. Only a rollout with Plan.Stage
	// sets it.
	Answered bool
	// Reached is the phase that the host has reached in lockstep, counted from 1; 0: none.
	Reached uint8
	// Verdict is why the target cannot go in lockstep, 0 if it can. It is valid in a round in
	// which World.Lockstep.Verified is set.
	Verdict Code
	// Runs: the agent runs the version. Seen: it is in the latest snapshot of the
	// fleet. Decide reads neither.
	Runs, Seen bool
	Ring       int16
	Batch      int32
	// Groups are the numbers of the agent's values of the labels in Limits.Per, Sites
	// those of the labels in the exposure rule. -1: it does not have the label.
	Groups [fleet.MaxLabelLimits]int32
	Sites  [fleet.MaxLabelLimits]int32
	// Since is when it came into its state, in Unix nanoseconds.
	Since int64
	// Expires is when a held offer expires, in Unix nanoseconds; 0: it is not held.
	Expires int64
}

// State is a fleet.TargetState in one byte: its index in fleet.TargetStates.
type State uint8

// The states.
const (
	Pending State = iota
	Held
	Offered
	Upgrading
	Verifying
	Succeeded
	Failed
	RolledBack
	Withdrawn
	Skipped
	Expired
	Cancelled
)

// Name returns the state as documents have it.
func (s State) Name() fleet.TargetState { return fleet.TargetStates[s] }

// StateOf is the inverse of Name. An unknown name is Cancelled, for which nothing is
// done.
func StateOf(name fleet.TargetState) State {
	for i, n := range fleet.TargetStates {
		if n == name {
			return State(i)
		}
	}
	return Cancelled
}

// InFlight reports whether a target in this state counts against the limits.
func (s State) InFlight() bool { return s == Offered || s == Upgrading || s == Verifying }

// Code is a fleet.ReasonCode in one byte; 0 is none.
type Code uint8

var codeNames = [...]fleet.ReasonCode{
	"", fleet.WhyDraft, fleet.WhyBatch, fleet.WhyParallel, fleet.WhyLabelLimit, fleet.WhySoak, fleet.WhyObservation, fleet.WhyApproval,
	fleet.WhyWindow, fleet.WhyFreeze, fleet.WhyPaused, fleet.WhyThreshold, fleet.WhyCanaryFailed, fleet.WhyExposure, fleet.WhyDeadline,
	fleet.WhyAway, fleet.WhyBusy, fleet.WhyOver, fleet.WhyRollingBack, fleet.WhyNext, fleet.WhyGoingBack,
	fleet.WhySame, fleet.WhyRefused, fleet.WhyOtherSource, fleet.WhyRing, fleet.WhyLocked, fleet.WhyNoWayBack, fleet.WhyReported,
	fleet.WhyCompensated, fleet.WhyStuck, fleet.WhyStale, fleet.WhyStalled, fleet.WhySilent, fleet.WhyCrashLoop, fleet.WhyUnhealthy,
	fleet.WhyGone, fleet.WhyLostTarget, fleet.WhyOperator, fleet.WhyExpired, fleet.WhyHealthy, fleet.WhyUnchecked,
	fleet.WhyFailedBefore, fleet.WhyWatched, fleet.WhyNoComponent, fleet.WhyConfig, fleet.WhyConfigNow,
	fleet.WhyNewerServer, fleet.WhyStaging, fleet.WhyVerify, fleet.WhyLockstep, fleet.WhyNotStaged, fleet.WhyNoLockstep,
	fleet.WhyLeftOut, fleet.WhyUndone, fleet.WhyBehind, fleet.WhyInForce, fleet.WhyNeverSeen, fleet.WhyUnconfirmed, fleet.WhyNoProgress,
}

// Name returns the code as documents have it.
func (c Code) Name() fleet.ReasonCode { return codeNames[c] }

// CodeOf is the inverse of Name; 0 for an unknown name.
func CodeOf(name fleet.ReasonCode) Code {
	for i, n := range codeNames {
		if n == name {
			return Code(i)
		}
	}
	return 0
}

// World is what Decide needs besides the rollout and its targets.
type World struct {
	Freezes []fleet.Freeze
	// Exposure is what the budget leaves, nil without a rule.
	Exposure *Room
	// RollingBack: a rollback of this rollout is under way.
	RollingBack bool
	// RollbackDeadline is until when to wait for a watcher that rolls back to report the
	// result; zero: none does. The rollout does not end before, because a failed
	// rollback opens an incident.
	RollbackDeadline time.Time
	// WatchDeadline is until when to wait for the hosts' own watches of the version to
	// end; zero: none lasts. The rollout does not end before, because a watcher may still
	// roll its host back.
	WatchDeadline time.Time
	// CancelDeadline is until when to wait for hosts whose offer was withdrawn to confirm that, and
	// Unconfirmed how many there are; zero: none. The rollout does not end before, because they
	// may carry the offer out all the same.
	CancelDeadline time.Time
	Unconfirmed    int
	// Lockstep is zero for other strategies.
	Lockstep LockstepWorld
}

// Room is how far the version may spread now. It counts the agents that run the
// version and those that were offered it before this round.
type Room struct {
	fleet.Exposure
	// Sites are the label values of the rule, numbered as in Target.Sites.
	Sites []fleet.ExposureValue
}

// Step is what to do in this round. Targets are given by their index.
type Step struct {
	// Offer are targets to offer the version to, in order.
	Offer []int32
	// Withdraw are offered targets whose offer is withdrawn in the same round.
	Withdraw []int32
	// Moves are all other changes of state.
	Moves []Move
	// Rollout is the rollout after the round: State, Stop, PauseAsked, Batches, Counts,
	// Waiting, Generation and EndedAt may differ from those of the argument.
	Rollout fleet.Rollout
	// Changed reports whether Rollout differs in anything worth writing.
	Changed bool
	// Reasons has, for each target that is pending or held and not offered, why; 0 for
	// the others.
	Reasons []Code
	// Next is when to decide again at the latest; zero: after the next change.
	Next time.Time
}

// Move is one target's change of state.
type Move struct {
	Target int32
	To     State
	Code   Code
}

// GroupNumbers numbers the values of the labels in Limits.Per in the order of their
// occurrence.
type GroupNumbers [fleet.MaxLabelLimits]map[string]int32

// Of returns the numbers of a target's values.
func (n *GroupNumbers) Of(t *fleet.Target, p *fleet.Plan) [fleet.MaxLabelLimits]int32 {
	groups := NoSites
	for k := range min(len(groups), len(t.Values), len(p.Limits.Per)) {
		v := t.Values[k]
		if v == "" {
			continue
		}
		if n[k] == nil {
			n[k] = map[string]int32{}
		}
		group, known := n[k][v]
		if !known {
			group = int32(len(n[k]))
			n[k][v] = group
		}
		groups[k] = group
	}
	return groups
}

// Waits reports whether a target in this state is not offered the version yet.
func (s State) Waits() bool { return s == Pending || s == Held }

// Stopped reports whether a stop of the rollout withdrew the target's offer, and not a
// cancel or an operator's action on that agent alone.
func (s *Target) Stopped() bool { return s.State == Withdrawn && s.Code != codeOperator }

// Refused reports whether the target was skipped because its host could not be given the version
// when its turn came. Nobody wanted it left out, so its rollout has failed.
func (s *Target) Refused() bool { return s.State == Skipped && s.Code.refusal() }

// Refused is Target.Refused of a target's document.
func Refused(t *fleet.Target) bool {
	return t.State == fleet.TargetSkipped && CodeOf(t.Code).refusal()
}

// AddTo counts a target's document.
func AddTo(c *fleet.Counts, t *fleet.Target) {
	c.Add(t.State)
	if Refused(t) {
		c.Refused++
	}
}

// refusal reports whether it is a code of RefusalCode.
func (c Code) refusal() bool {
	switch c.Name() {
	case fleet.WhyRefused, fleet.WhyFailedBefore, fleet.WhyInForce, fleet.WhyConfigNow:
		return true
	}
	return false
}
