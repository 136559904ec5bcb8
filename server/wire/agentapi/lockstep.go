package agentapi

import (
	"fmt"
	"slices"
)

// Upgrades in lockstep: components that must not run mixed versions are upgraded as one. The
// server lets all of them go one phase further at a time, and each host waits after a phase until
// it may begin the next.

// LockstepPhase is a phase of a component's upgrade in lockstep. Each includes those before it.
type LockstepPhase string

// Phases in their order.
const (
	// LockstepDrain: the component finishes what it does and takes nothing new.
	LockstepDrain LockstepPhase = "drain"
	// LockstepStop: it is stopped, nothing starts it, and the new version was verified again.
	LockstepStop LockstepPhase = "stop"
	// LockstepBackup: its state is copied. A host that has reached this no longer undoes by
	// itself, whatever happens to it: the others may have gone on.
	LockstepBackup LockstepPhase = "backup"
	// LockstepSwitch: the new version is installed, and its state is migrated. A host that may
	// begin this obeys no undo any more.
	LockstepSwitch LockstepPhase = "switch"
	// LockstepStart: the new version is started and observed.
	LockstepStart LockstepPhase = "start"
)

// LockstepPhases are all phases in their order.
var LockstepPhases = []LockstepPhase{LockstepDrain, LockstepStop, LockstepBackup, LockstepSwitch, LockstepStart}

// Reaches reports whether p is the phase other or a later one. The empty phase comes before all.
func (p LockstepPhase) Reaches(other LockstepPhase) bool {
	return slices.Index(LockstepPhases, p) >= slices.Index(LockstepPhases, other)
}

// Valid returns an error unless p is one of the phases.
func (p LockstepPhase) Valid() error {
	if !slices.Contains(LockstepPhases, p) {
		return fmt.Errorf("is %q, want one of %q", p, LockstepPhases)
	}
	return nil
}

// LockstepData makes the UPGRADE of a component one in lockstep.
type LockstepData struct {
	// Until is the last phase that the host may do before a PROCEED.
	Until LockstepPhase `json:"until"`
}

// ProceedData is that of a PROCEED, which lets an upgrade in lockstep go on, or undoes it. The
// agent acknowledges it once it is stored. It may come twice, and an earlier phase after a later.
type ProceedData struct {
	// Component and UpgradeID are those of the ComponentData.
	Component string `json:"component"`
	UpgradeID string `json:"upgrade_id"`
	// Until is the last phase that the host may do now; empty if it is to undo.
	Until LockstepPhase `json:"until,omitempty"`
	// Undo has the host undo everything, for this reason. It is an error once Until of an
	// earlier PROCEED was LockstepSwitch.
	Undo   bool   `json:"undo,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// LockstepReport is what a host reports of an upgrade in lockstep.
type LockstepReport struct {
	// Until is the last phase that the host knows it may do, Reached the last that it has done;
	// empty: none. Both are durable on the host.
	Until   LockstepPhase `json:"until"`
	Reached LockstepPhase `json:"reached,omitempty"`
}
