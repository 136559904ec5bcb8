package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// Hash returns the rollout hash of an object: SHA-256, in hex, over the canonical JSON (RFC 8785)
// of the fields that start a rollout, and of the annotation ForceRolloutAnnotation. Nothing that
// a server fills in is part of it, so no update of a server changes it.
func Hash(f *Fleet) string {
	doc, err := json.Marshal(struct {
		Selector      any           `json:"selector"`
		Agent         any           `json:"agent,omitempty"`
		Components    any           `json:"components,omitempty"`
		Configuration Configuration `json:"configuration,omitzero"`
		Strategy      any           `json:"strategy"`
		Force         string        `json:"force,omitempty"`
	}{f.Spec.Selector, f.Spec.Agent, f.Spec.Components, f.Spec.Configuration, f.Spec.Strategy, f.Metadata.Annotations[ForceRolloutAnnotation]})
	if err != nil {
		panic(err)
	}
	v := jsontext.Value(doc)
	if err := v.Canonicalize(); err != nil {
		panic(err)
	}
	sum := sha256.Sum256(v)
	return hex.EncodeToString(sum[:])
}
