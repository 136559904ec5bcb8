package spec

import (
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// PartPreview is what the rollout of one part would do to the fleet as it is now.
type PartPreview struct {
	// agent, or the name of a component
	Part string `json:"part"`
	// The version that it would bring
	Version string `json:"version,omitempty"`
	// Number of agents that would be upgraded
	Targets int `json:"targets"`
	// Number of batches
	Batches int `json:"batches"`
	// Number of agents that match and are left out, such as those that run the version
	Skipped int `json:"skipped"`
	// How long it would take, estimated from past upgrades
	Seconds float64 `json:"seconds,omitempty"`
	// The same for people
	DurationText string `json:"durationText,omitempty" example:"2h30m0s"`
	// Why agents are left out, with counts
	LeftOut string `json:"leftOut,omitempty" example:"2 because it runs the version already"`
	// Agents that run a later version go down
	Forced bool `json:"forced,omitempty"`
	// Why no rollout could start now, such as a version that is not published
	Error string `json:"error,omitempty"`
	// What to know before it starts
	Warnings []string `json:"warnings,omitempty"`
}

// DiffResult compares an object with the stored one, and says what applying it would do.
type DiffResult struct {
	// Rollout hash of the stored object; absent if there is none
	HashBefore string `json:"hashBefore,omitempty"`
	// Rollout hash of the object in the body
	HashAfter string `json:"hashAfter"`
	// Paths of the fields that differ, such as spec.agent.version
	Changed []string `json:"changed"`
	// Whether a rollout starts, now or after what waitsFor names
	StartsRollout bool `json:"startsRollout"`
	// Why a rollout starts, or why none does, in a sentence
	Reason string `json:"reason"`
	// What the rollout would wait for: the id of a rollout that is promoting, or that the object is
	// paused; absent: nothing
	WaitsFor string `json:"waitsFor,omitempty"`
	// What the rollout of each part would do, in order; empty if none starts
	Previews []PartPreview `json:"previews"`
}

// Change is one change of an object.
type Change struct {
	// When it was made
	At time.Time `json:"at"`
	// Name of the admin key
	By string `json:"by" example:"gitops"`
	// What was done
	Action ChangeAction `json:"action"`
	// The change in a sentence
	Text string `json:"text"`
	// metadata.uid: another one is of an object that was deleted
	UID string `json:"uid,omitempty"`
	// metadata.generation after the change
	Generation int64 `json:"generation,omitempty"`
	// Rollout hash of the spec after the change
	Hash string `json:"hash,omitempty"`
	// Paths of the fields that were changed
	Changed []string `json:"changed"`
	// The reason that was given
	Why string `json:"why,omitempty"`
	// Rollouts that carried out this hash and still exist, oldest first
	Rollouts []RolloutRef `json:"rollouts"`
}

// ChangeAction is a value of action of Change.
type ChangeAction string

// Values of ChangeAction.
const (
	Applied   ChangeAction = "apply"
	Deleted   ChangeAction = "delete"
	Suspended ChangeAction = "suspend"
	Resumed   ChangeAction = "resume"
)

// RolloutRef names a rollout that a change of an object created.
type RolloutRef struct {
	ID    string             `json:"id"`
	State fleet.RolloutState `json:"state"`
}
