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
	// Version of the API that the object is written for: muster.dev/v1alpha2
	APIVersion string `json:"apiVersion" example:"muster.dev/v1alpha2"`
	// Always Fleet
	Kind     string   `json:"kind" example:"Fleet"`
	Metadata Metadata `json:"metadata"`
	Spec     Spec     `json:"spec"`
	Status   Status   `json:"status,omitzero"`
}

// Metadata is a part of Kubernetes' ObjectMeta, with the same meanings. Users write name, labels
// and annotations; the server ignores what they write of the rest, except that a UID or a
// ResourceVersion that is given must be the stored one.
type Metadata struct {
	// Name of the object: at most 63 lower-case letters, digits and dashes, with a letter or digit at
	// both ends. It cannot change.
	Name string `json:"name" example:"web"`
	// Labels by which objects are listed. They start no rollout.
	Labels map[string]string `json:"labels,omitempty"`
	// Notes of tools. Only muster.dev/force-rollout has a meaning: a change of its value starts a
	// rollout although the spec is the same.
	Annotations map[string]string `json:"annotations,omitempty"`

	// Id of this object, which an object that is created later under the same name does not have. If
	// given, it must be that of the stored object.
	UID string `json:"uid,omitempty"`
	// Identifies the stored state: every write changes it. If given, it must be that of the stored
	// object, so that no change of somebody else is lost.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Number of changes of the spec and of the annotation muster.dev/force-rollout
	Generation int64 `json:"generation,omitempty"`
	// When the object was created
	CreationTimestamp *time.Time `json:"creationTimestamp,omitempty"`
}

// Spec is what an operator declares. The types of the rollout's plan are used as they are, with
// the same names of fields, defaults and bounds.
type Spec struct {
	// The agents of the object: those that match every given field. An empty selector is refused: use
	// all. An agent that two objects select for the same thing belongs to the older one. A change
	// starts a rollout.
	Selector fleet.Selector `json:"selector"`
	Agent    *Desired       `json:"agent,omitempty"`
	// Components to upgrade, or to install for the first time, after the agents and one after the
	// other in this order. A change starts a rollout.
	Components    []Component   `json:"components,omitempty"`
	Configuration Configuration `json:"configuration,omitzero"`

	// How the agents are divided into batches. Default: rolling, in batches of 10 percent. A change
	// starts a rollout.
	Strategy fleet.Strategy `json:"strategy,omitzero" schema:"as=FleetStrategy,optional=kind"`
	// How many agents are upgraded at one time. It starts no rollout, and takes effect in the one
	// under way.
	Limits fleet.Limits `json:"limits,omitzero"`
	// When failures pause the rollout: either bound does. It starts no rollout, and takes effect in
	// the one under way.
	Failure fleet.FailureRule `json:"failure,omitzero"`
	// When an upgraded agent counts as healthy. It starts no rollout, and takes effect in the one
	// under way.
	Health fleet.HealthRule `json:"health,omitzero"`
	// When agents are offered the version. It starts no rollout, and takes effect in the one under
	// way.
	Pace fleet.Pace `json:"pace,omitzero"`

	// Hash of a rollout, as in status.requestedRolloutHash. If the rollout under way has it, that
	// rollout goes on without what it waits for: observation of canaries, soak, approval, and a stop
	// by a gate. Windows, freezes and the exposure budget still hold. Any other hash, and a UUID of
	// v1alpha1, which is kept, has no effect. It starts no rollout.
	ForcePromote string `json:"forcePromote,omitempty" example:"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"`
	// Pause the rollout under way, and start none. Default: false. It starts no rollout.
	Paused bool `json:"paused,omitempty"`
}

// Desired is a version, given by exactly one of its fields.
type Desired struct {
	// Full version of a package on the server. It may be published later: the rollout starts then.
	Version         string           `json:"version,omitempty" example:"1.2.0"`
	UpgradeManifest *UpgradeManifest `json:"manifest,omitempty"`
}

// UpgradeManifest names an upgrade manifest on the server.
type UpgradeManifest struct {
	// Profile of the upgrade manifest, the folder that it is in
	Profile string `json:"profile" example:"edge"`
	// Id of the upgrade manifest within its profile
	ID string `json:"id" example:"2026-11"`
}

// Component is the desired version of one component.
type Component struct {
	// Name of the component as in the policies of the agents
	Name string `json:"name" example:"web"`
	Desired
}

// Configuration is what the server renders into the configuration files of components.
type Configuration struct {
	// Variables for the templates of components' configuration files, by component and name. They are
	// over those of the policies, and below those of upgrade manifests.
	Variables map[string]map[string]string `json:"variables,omitempty"`
}

// Status is how far the server is. Only the server writes it.
type Status struct {
	// The generation that the rest of the status is about
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Hash that is being rolled out, or was last. A change of the spec does not change it while the
	// rollout is promoting.
	RequestedRolloutHash string `json:"requestedRolloutHash,omitempty"` // also empty if it was converted from v1alpha1 while promoting
	// Hash of the last rollout that reached its end; absent before the first
	LastCompletedRolloutHash string `json:"lastCompletedRolloutHash,omitempty"`
	// Number of hashes requested so far
	Sequence int64          `json:"sequence,omitempty"`
	Rollout  *RolloutStatus `json:"rollout,omitempty"`
	// Number of agents that belong to the object
	Agents int `json:"agents,omitempty"`
	// How many of the agents run each version, by part (agent, or the name of a component) and
	// version; an empty version means that none is installed
	Versions     map[string]map[string]int `json:"versions,omitempty"`
	ForceRollout *ForceRollout             `json:"forceRollout,omitempty"`
	// Set when an operator's order has taken over agents of the object. The server does nothing for the
	// object until its spec changes or it is resumed.
	Suspended *fleet.Decision `json:"suspended,omitempty"`
	// Ready, Progressing, Promoting, Degraded and Stalled, once the server has observed the object
	Conditions []Condition `json:"conditions,omitempty"`
}

// ForceRollout is a value of the annotation force-rollout, and the sequence with which it was
// requested. The rollouts of that sequence include the agents on which a version failed before.
type ForceRollout struct {
	// The value of the annotation
	Value string `json:"value"`
	// The sequence it was requested with; its rollouts include the agents on which a version failed
	// before
	Sequence int64 `json:"sequence,omitempty"`
}

// RolloutStatus is the rollout of an object.
type RolloutStatus struct {
	// Id of the rollout
	ID string `json:"id"`
	// The rollout hash that it carries out
	Hash string `json:"hash,omitempty"`
	// status.sequence when its hash was requested
	Sequence int64 `json:"sequence,omitempty"`
	// The component that it upgrades; absent: the agents themselves
	Component string `json:"component,omitempty"`
	// The version that it brings
	Version string `json:"version,omitempty"`
	// 0 for the rollout of all agents; further ones bring agents that joined later, or that run
	// something else, to the same versions
	Number int                `json:"number,omitempty"`
	State  fleet.RolloutState `json:"state"`
	// What it waits for, or why it is paused, in a sentence
	Waiting string `json:"waiting,omitempty"`
}

// Condition is one in the sense of Kubernetes.
type Condition struct {
	// Ready: all agents run what the spec says; Progressing: a rollout is under way; Promoting: it is
	// past its canaries and their approval, so that a change of the spec waits for its end; Degraded:
	// agents failed to reach a version, or went back from it; Stalled: nothing happens until somebody
	// does what message says
	Type ConditionType `json:"type"`
	// Whether it holds
	Status ConditionStatus `json:"status"`
	// Why, in one word in CamelCase
	Reason string `json:"reason"`
	// Why, in a sentence
	Message string `json:"message"`
	// When status last changed
	LastTransitionTime time.Time `json:"lastTransitionTime"`
	// The generation that it is about
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
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
