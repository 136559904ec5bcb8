// Package spec is the declarative form of rollouts: an object of kind Fleet says which versions a
// part of the fleet runs, and the server brings it there. The package has the object's types, the
// rules that need no store, and the hash that decides alone whether a rollout starts. Package
// spec/declare stores objects for operators, package spec/reconcile carries them out, package
// spec/v1alpha1 converts them from and to the older version of the API.
package spec

import (
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// Group is the API group of all kinds.
	Group = "muster.dev"
	// Version is the version in which objects are stored and decided on.
	Version = "v1alpha2"
	// APIVersion is the apiVersion of objects of this version.
	APIVersion = Group + "/" + Version
	// Kind is the only kind.
	Kind = "Fleet"

	// ForceRolloutAnnotation starts a rollout whenever its value changes, without a change of
	// the spec.
	ForceRolloutAnnotation = Group + "/force-rollout"
)

// Fleet is the object, in the shape of those of Kubernetes. Users write metadata and spec, the
// server writes status.
type Fleet struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
	Status     Status   `json:"status,omitzero"`
}

// Metadata is a part of Kubernetes' ObjectMeta, with the same meanings. Users write name, labels
// and annotations; the server ignores what they write of the rest, except that a UID or a
// ResourceVersion that is given must be the stored one.
type Metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`

	UID string `json:"uid,omitempty"`
	// ResourceVersion identifies the stored document; any write changes it.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Generation counts the changes of the spec.
	Generation        int64      `json:"generation,omitempty"`
	CreationTimestamp *time.Time `json:"creationTimestamp,omitempty"`
}

// Spec is what an operator declares. The types of the rollout's plan are used as they are, with
// the same names of fields, defaults and bounds.
type Spec struct {
	// Selector chooses the agents. An agent that several objects select for the same thing
	// belongs to the oldest of them.
	Selector fleet.Selector `json:"selector"`
	// Agent is the desired version of the agents themselves; nil: the object leaves them alone.
	Agent *Desired `json:"agent,omitempty"`
	// Components are upgraded after the agents, one after the other, in this order.
	Components []Component `json:"components,omitempty"`
	// Configuration is what hosts get besides versions.
	Configuration Configuration `json:"configuration,omitzero"`

	// Strategy divides the hosts into batches; without a kind it is rolling.
	Strategy fleet.Strategy    `json:"strategy,omitzero"`
	Limits   fleet.Limits      `json:"limits,omitzero"`
	Failure  fleet.FailureRule `json:"failure,omitzero"`
	Health   fleet.HealthRule  `json:"health,omitzero"`
	Pace     fleet.Pace        `json:"pace,omitzero"`

	// ForcePromote is a rollout hash. If it is the one of the rollout under way, that rollout
	// goes on without what it waits for: the observation of its canaries, soak, approval, and a
	// stop by a gate. Maintenance windows, freezes and the exposure budget still apply.
	ForcePromote string `json:"forcePromote,omitempty"`
	// Paused pauses the rollout under way, and starts none.
	Paused bool `json:"paused,omitempty"`
}

// Desired is a version, given by exactly one of its fields.
type Desired struct {
	Version  string    `json:"version,omitempty"`
	Manifest *Manifest `json:"manifest,omitempty"`
}

// Manifest names an upgrade manifest on the server.
type Manifest struct {
	Profile string `json:"profile"`
	ID      string `json:"id"`
}

// Component is the desired version of one component.
type Component struct {
	Name string `json:"name"`
	Desired
}

// Configuration is what the server renders into the configuration files of components.
type Configuration struct {
	// Variables are the variables of components, by component and name. They are over those
	// of the policies, and below those of upgrade manifests.
	Variables map[string]map[string]string `json:"variables,omitempty"`
}

// Status is how far the server is. Only the server writes it.
type Status struct {
	// ObservedGeneration is the generation that the rest of the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// RequestedRolloutHash is the hash that is being rolled out, or was last. It is not changed
	// while a rollout is promoting. Empty: nothing has been requested, or the object was
	// converted from v1alpha1 while its rollout was promoting.
	RequestedRolloutHash string `json:"requestedRolloutHash,omitempty"`
	// LastCompletedRolloutHash is the hash of the last rollout that reached its end; empty
	// before the first.
	LastCompletedRolloutHash string `json:"lastCompletedRolloutHash,omitempty"`
	// Sequence counts the requested hashes; the ids of rollouts contain it.
	Sequence int64 `json:"sequence,omitempty"`
	// Rollout is the last rollout that was created for the object; nil: none.
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Agents is how many agents belong to the object, and Versions how many of them run each
	// version, by thing ("agent" or the name of a component) and version; an empty version
	// means that none is installed.
	Agents   int                       `json:"agents,omitempty"`
	Versions map[string]map[string]int `json:"versions,omitempty"`
	// ForceRollout is the last value of the annotation force-rollout that was carried out; nil:
	// none.
	ForceRollout *ForceRollout `json:"forceRollout,omitempty"`
	// Suspended is set when an operator's order on agents of this object has taken them over.
	// The server then does nothing for the object until its spec changes or it is resumed.
	Suspended  *fleet.Decision `json:"suspended,omitempty"`
	Conditions []Condition     `json:"conditions,omitempty"`
}

// ForceRollout is a value of the annotation force-rollout, and the sequence with which it was
// requested. The rollouts of that sequence include the agents on which a version failed before.
type ForceRollout struct {
	Value    string `json:"value"`
	Sequence int64  `json:"sequence,omitempty"`
}

// RolloutStatus is the rollout of an object.
type RolloutStatus struct {
	ID string `json:"id"`
	// Hash is the rollout hash that it carries out, and Sequence the one it was requested with.
	Hash     string `json:"hash,omitempty"`
	Sequence int64  `json:"sequence,omitempty"`
	// Component is what it upgrades; empty: the agents themselves.
	Component string `json:"component,omitempty"`
	Version   string `json:"version,omitempty"`
	// Number is 0 for the rollout of all agents, and counts those that brought later ones to the
	// same versions.
	Number int `json:"number,omitempty"`
	// State is that of the rollout. It is a draft also before the rollout exists, and completed
	// also if there was nothing to do for it.
	State fleet.RolloutState `json:"state"`
	// Waiting is what it waits for, or why it is paused, in a sentence; empty: neither.
	Waiting string `json:"waiting,omitempty"`
}

// Condition is one in the sense of Kubernetes.
type Condition struct {
	Type               ConditionType   `json:"type"`
	Status             ConditionStatus `json:"status"`
	Reason             string          `json:"reason"` // a word in CamelCase
	Message            string          `json:"message"`
	LastTransitionTime time.Time       `json:"lastTransitionTime"` // of Status
	ObservedGeneration int64           `json:"observedGeneration,omitempty"`
}

// ConditionType is what a condition is about.
type ConditionType string

// Values of ConditionType. An object has all of them once the server has observed it.
const (
	// Ready means that the hash of the spec is rolled out, and that all agents run the versions
	// except those that their owner has left out.
	Ready ConditionType = "Ready"
	// Progressing means that a rollout is under way.
	Progressing ConditionType = "Progressing"
	// Promoting means that the rollout is past its canaries and their approval, so that a change
	// of the spec waits for its end.
	Promoting ConditionType = "Promoting"
	// Degraded means that agents failed to reach a version, or went back from it.
	Degraded ConditionType = "Degraded"
	// Stalled means that nothing happens until somebody does something; the message says what.
	Stalled ConditionType = "Stalled"
)

// ConditionTypes lists all types, in the order in which they are shown.
var ConditionTypes = []ConditionType{Ready, Progressing, Promoting, Degraded, Stalled}

// ConditionStatus is True, False or Unknown.
type ConditionStatus string

// Values of ConditionStatus.
const (
	True    ConditionStatus = "True"
	False   ConditionStatus = "False"
	Unknown ConditionStatus = "Unknown"
)

// Condition returns a condition of the status, nil if it has none of that type.
func (s *Status) Condition(t ConditionType) *Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}
