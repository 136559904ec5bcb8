package spec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/muster-fleet/muster/server/fleet"
)

// Hash returns the rollout hash of an object: SHA-256, in hex, over the canonical JSON (RFC 8785)
// of the fields that start a rollout, and of the annotation ForceRolloutAnnotation. Values that
// equal the default, empty values and the order of what is a set do not change it. Nothing that a
// server fills in is part of it, so no update of a server changes it.
func Hash(f *Fleet) string {
	doc := map[string]any{}
	if s := onlyTriggers("", tree(canonical(f.Spec))); s != nil {
		doc["spec"] = s
	}
	if force := f.Metadata.Annotations[ForceRolloutAnnotation]; force != "" {
		doc["annotations"] = map[string]string{ForceRolloutAnnotation: force}
	}
	v := jsontext.Value(encode(doc))
	if err := v.Canonicalize(); err != nil {
		panic(err) // encode returns JSON
	}
	sum := sha256.Sum256(v)
	return hex.EncodeToString(sum[:])
}

// canonical returns the spec with one notation for the same meaning.
func canonical(s Spec) Spec {
	s.Selector = canonicalSelector(s.Selector)
	s.Strategy = withoutDefaults(s.Strategy)
	if d := s.Strategy.Deadline; d != nil {
		utc := d.UTC()
		s.Strategy.Deadline = &utc
	}
	if r := s.Strategy.Rings; r != nil {
		only := *r
		only.Only = set(r.Only)
		s.Strategy.Rings = &only
	}
	variables := map[string]map[string]string{}
	for component, of := range s.Configuration.Variables {
		if len(of) > 0 {
			variables[component] = of
		}
	}
	s.Configuration.Variables = variables
	return s
}

func canonicalSelector(s fleet.Selector) fleet.Selector {
	s.Agents, s.Policies, s.ExcludeAgents = set(s.Agents), set(s.Policies), set(s.ExcludeAgents)
	s.Labels, s.Exclude = sets(s.Labels), sets(s.Exclude)
	return s
}

// set returns the elements in order, each once.
func set[T cmp.Ordered](list []T) []T {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// sets keeps a label without values, which is refused, apart from no label.
func sets(labels map[string][]string) map[string][]string {
	out := make(map[string][]string, len(labels))
	for label, values := range labels {
		out[label] = append([]string{}, set(values)...)
	}
	return out
}

// tree returns a value as JSON has it: objects, lists, strings, numbers and booleans.
func tree(v any) (t any) {
	if err := json.Unmarshal(encode(v), &t); err != nil {
		panic(err) // encode returns JSON
	}
	return t
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // no type has a value that was decoded and cannot be encoded
	}
	return b
}
