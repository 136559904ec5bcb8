package plan

import (
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
)

// VerbStep is the verb of the reconciler's own entries in the audit trail, whose
// data is a TrailData. Explain reads from them how a rollout stood at a time.
const VerbStep = "rollout.step"

// TrailData is how a rollout stood after a step of the reconciler.
type TrailData struct {
	State   fleet.RolloutState `json:"state"`
	Stop    *fleet.Stop        `json:"stop,omitempty"`
	Waiting []fleet.Wait       `json:"waiting,omitempty"`
	Batch   int                `json:"batch"` // that is current
}

// TrailOf is how a rollout stands.
func TrailOf(r *fleet.Rollout) TrailData {
	return TrailData{State: r.State, Stop: r.Stop, Waiting: r.Waiting, Batch: CurrentBatch(r)}
}

// Same says whether two steps read alike: they wait for the same, whatever the
// numbers of agents.
func (t TrailData) Same(o TrailData) bool {
	return t.State == o.State && t.Batch == o.Batch && SameStop(t.Stop, o.Stop) &&
		slices.EqualFunc(t.Waiting, o.Waiting, func(a, b fleet.Wait) bool { return a.Code == b.Code })
}

// SameStop says whether two stops are one.
func SameStop(a, b *fleet.Stop) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.At.Equal(b.At)
}

// CurrentBatch is the batch that is under way, or the last.
func CurrentBatch(r *fleet.Rollout) int {
	for i := range r.Batches {
		if r.Batches[i].ClearedAt == nil {
			return i
		}
	}
	return max(0, len(r.Batches)-1)
}

// RollbackID names the rollback of all targets of a rollout. That of the failed
// targets alone, after which the rollout may go on, has another name.
func RollbackID(rolloutID string) string { return rolloutID + "-rollback" }
