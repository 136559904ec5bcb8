package fleet

import (
	"fmt"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Bounds of rollouts in lockstep.
const (
	// MaxLockstepTargets bounds the targets: all of them are read again before they may begin,
	// and a group of components that must not run mixed versions is not larger.
	MaxLockstepTargets = 5_000
	// MaxLockstepNames bounds the hosts that the document names, since it is written at each step.
	MaxLockstepNames = 50
	// DefaultPatience is how long a phase may take on the slowest host: a hook has five minutes
	// unless its package gives it more, and a host checks in within seconds after it. A plan
	// whose component drains or copies its state for longer gives it more.
	DefaultPatience = 10 * time.Minute
	// MinPatience outlasts the interval at which hosts check in, and MaxPatience is the longest
	// for which a group of components may stand still because of one host.
	MinPatience = time.Minute
	MaxPatience = 2 * time.Hour
	// LockstepOrderFor is how long an order to go on, or to undo, waits for a host that is away.
	// A host that is away for longer needs an operator.
	LockstepOrderFor = DefaultExpiration
)

// AwayMode is what a rollout in lockstep does with targets that are away when it verifies them.
type AwayMode string

// Values of AwayMode.
const (
	AwayRefuse  AwayMode = "refuse"  // it pauses, and names them
	AwayExclude AwayMode = "exclude" // it leaves them out, and names them
)

// LockstepPhase is the phase of a rollout in lockstep. All targets reach a phase before the
// first may begin the next.
//
//	verify ─► drain ─► stop ─► verify_again ─► backup ─► switch ─► start ─► settle
//	             └───────┴──────────┴────────────┴─► undo
type LockstepPhase string

// Values of LockstepPhase.
const (
	LockstepVerify      LockstepPhase = "verify"       // are all targets ready?
	LockstepDrain       LockstepPhase = "drain"        // they finish what they do
	LockstepStop        LockstepPhase = "stop"         // they are stopped
	LockstepVerifyAgain LockstepPhase = "verify_again" // are they still the same, and online?
	LockstepBackup      LockstepPhase = "backup"       // their state is copied
	LockstepSwitch      LockstepPhase = "switch"       // the new version is installed; no way back
	LockstepStart       LockstepPhase = "start"        // the new version is started
	LockstepSettle      LockstepPhase = "settle"       // its health is judged
	LockstepUndo        LockstepPhase = "undo"         // all go back to where they were
)

// Proceeds returns the phase of the hosts that this phase of the rollout lets them reach; ok is
// false if it lets them do nothing new.
func (p LockstepPhase) Proceeds() (until agentapi.LockstepPhase, ok bool) {
	switch p {
	case LockstepStop:
		return agentapi.LockstepStop, true
	case LockstepBackup:
		return agentapi.LockstepBackup, true
	case LockstepSwitch:
		return agentapi.LockstepSwitch, true
	case LockstepStart:
		return agentapi.LockstepStart, true
	}
	return "", false
}

// Lockstep is how far a rollout in lockstep is. CommittedAt and Undo exclude each other, and
// each is written before the first order that follows from it exists.
type Lockstep struct {
	Phase LockstepPhase `json:"phase"`
	Since time.Time     `json:"since"`
	// Targets that go together; absent before the phase drain
	Targets int `json:"targets,omitempty"`
	// When the phase switch began; absent before
	CommittedAt *time.Time `json:"committed_at,omitempty"`
	Undo        *Undo      `json:"undo,omitempty"`
	// Hosts that were left out because they were offline, at most 50 entries
	Missing []string `json:"missing,omitempty"`
	// Hosts that were not ready, or did not go along to the end, at most 50 entries
	Failed []string `json:"failed,omitempty"`
}

// Undo is why a rollout in lockstep goes back.
type Undo struct {
	At  time.Time     `json:"at"`
	In  LockstepPhase `json:"in"`  // the phase that was under way
	Why string        `json:"why"` // a sentence, which hosts report as the reason
}

// Running reports whether targets have been ordered to begin.
func (l *Lockstep) Running() bool { return l != nil && l.Phase != "" && l.Phase != LockstepVerify }

// Committed reports whether it goes through to its end.
func (l *Lockstep) Committed() bool { return l != nil && l.CommittedAt != nil }

// PhaseTime returns how long a phase of a rollout in lockstep may take.
func (s *Strategy) PhaseTime() time.Duration {
	if s.Patience > 0 {
		return s.Patience.D()
	}
	return DefaultPatience
}

// CheckLockstep returns an error if the agent cannot upgrade the component in lockstep.
func (s *Subject) CheckLockstep() error {
	if s.component.Lockstep {
		return nil
	}
	return Errorf(Invalid, "agent %s cannot upgrade component %s in lockstep: its version, or the runtime of the component, does not know how", s.Agent.ID, s.Component)
}

// StartWithheld reports whether the host says that it does not start the component; see
// agentapi.ComponentReport.
func (s *Subject) StartWithheld() bool { return s.component.StartWithheld }

// StartWithheldBy reports whether the host says that it does not start the component, and c, which is the
// component in its policy, keeps it from starting the version that is installed.
func (s *Subject) StartWithheldBy(c agentapi.PolicyComponent) bool {
	f := c.InForce
	return s.StartWithheld() && c.Lockstep && f != nil && (f.Changing || f.Version != s.Version)
}

// HasStaged reports whether the host can install a version without loading it: it has staged
// it, or keeps it from before.
func (s *Subject) HasStaged(version string) bool {
	if s.Agent.HasStaged(s.Component, version) {
		return true
	}
	for _, kept := range s.component.Rollbacks {
		if kept == version {
			return true
		}
	}
	return false
}

// ProceedID returns the id of the order by which the hosts of one UPGRADE of a rollout go on to
// a phase, or undo. It depends on nothing else, so an order exists once. RolloutOf returns
// the rollout.
func ProceedID(rolloutID string, offer int, phase LockstepPhase) string {
	return fmt.Sprintf("%s-gproceed-%d.%s", rolloutID, offer, phase)
}
