package plan

import (
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
)

// VerbStep is the verb of the reconciler's own audit entries, whose data is a
// TrailData. Package explain derives the state of a rollout at a past time from them.
const VerbStep = "rollout.step"

// TrailData is the state of a rollout after a step of the reconciler.
type TrailData struct {
	State   fleet.RolloutState `json:"state"`
	Stop    *fleet.Stop        `json:"stop,omitempty"`
	Waiting []fleet.Wait       `json:"waiting,omitempty"`
	Batch   int                `json:"batch"` // the current one
	// Lockstep is the phase of a rollout in lockstep.
	Lockstep fleet.LockstepPhase `json:"lockstep,omitempty"`
}

// TrailOf returns the state of a rollout.
func TrailOf(r *fleet.Rollout) TrailData {
	t := TrailData{State: r.State, Stop: r.Stop, Waiting: r.Waiting, Batch: CurrentBatch(r)}
	if r.Lockstep != nil {
		t.Lockstep = r.Lockstep.Phase
	}
	return t
}

// Same reports whether two steps have the same state and wait for the same, whatever
// the numbers of agents.
func (t TrailData) Same(o TrailData) bool {
	return t.State == o.State && t.Batch == o.Batch && t.Lockstep == o.Lockstep && SameStop(t.Stop, o.Stop) &&
		slices.EqualFunc(t.Waiting, o.Waiting, func(a, b fleet.Wait) bool { return a.Code == b.Code })
}

// SameStop reports whether two stops are the same.
func SameStop(a, b *fleet.Stop) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.At.Equal(b.At)
}

// CurrentBatch returns the batch that is under way, or the last.
func CurrentBatch(r *fleet.Rollout) int {
	for i := range r.Batches {
		if r.Batches[i].ClearedAt == nil {
			return i
		}
	}
	return max(0, len(r.Batches)-1)
}

// RollbackID returns the id of the rollback of all targets of a rollout. The rollback
// of the failed targets alone, after which the rollout may continue, has another id.
func RollbackID(rolloutID string) string { return rolloutID + "-rollback" }
