// Package v1alpha1 is the older version of the API of objects of kind Fleet, in which operators
// started rollouts by a new UUID. It has the types, and converts objects to and from v1alpha2,
// the version that servers store and act on. Package spec/conversion calls it for Kubernetes, and
// spec/declare for operators.
package v1alpha1

import "github.com/muster-fleet/muster/server/rollout/spec"

const (
	// Version is the version of the API.
	Version = "v1alpha1"
	// APIVersion is the apiVersion of objects of this version.
	APIVersion = spec.Group + "/" + Version
)

// Fleet is the object. Its metadata is that of v1alpha2.
type Fleet struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Metadata   spec.Metadata `json:"metadata"`
	Spec       Spec          `json:"spec"`
	Status     Status        `json:"status,omitzero"`
}

// Spec has the fields of v1alpha2, with the same meanings, and these. UUIDs may be absent, which
// is the same as the nil UUID.
type Spec struct {
	spec.Spec

	// RequestRollout is a UUID; a new one started a rollout. In v1alpha2 a change of the spec does.
	RequestRollout string `json:"requestRollout,omitempty"`
	// InPlaceRollout has long been ignored.
	InPlaceRollout bool `json:"inPlaceRollout,omitempty"`
	// ForcePromote is a UUID, which promoted the rollout that RequestRollout had started with it.
	// In v1alpha2 it is a hash.
	ForcePromote string `json:"forcePromote,omitempty"`
	// Site is deprecated: the label site in the selector, which takes precedence.
	Site string `json:"site,omitempty"`
	// AgentVersion is deprecated: the version in agent, which takes precedence.
	AgentVersion string `json:"agentVersion,omitempty"`

	// ForcePromoteHash carries a forcePromote of v1alpha2 that is no UUID, so that nothing is
	// lost when an object is converted to this version and back. Nobody writes it otherwise.
	ForcePromoteHash string `json:"forcePromoteHash,omitempty"`
}

// Status has the fields of v1alpha2, and these. Of v1alpha2's, LastCompletedRolloutHash and
// RequestedRolloutHash carry what servers have stored: if either is there, even empty, the object
// comes from v1alpha2.
type Status struct {
	spec.Status

	// LastCompletedRolloutRequest is the RequestRollout of the last rollout that reached its end.
	LastCompletedRolloutRequest string `json:"lastCompletedRolloutRequest,omitempty"`
	// ResourcesHash is a hash of what the server had generated, which nothing uses any more.
	ResourcesHash string `json:"resourcesHash,omitempty"`
}
