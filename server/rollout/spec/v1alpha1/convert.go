package v1alpha1

import (
	"encoding/json"
	"strings"

	strict "github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// The conversions move the few fields that differ, and leave everything else as it is written. So
// they lose no field that they do not know, and metadata stays as Kubernetes wrote it.

// ToV1alpha2 converts an object of v1alpha1, as JSON. Its errors name the field.
func ToV1alpha2(doc []byte) ([]byte, error) {
	o, err := open(doc, APIVersion)
	if err != nil {
		return nil, err
	}
	o.set("apiVersion", spec.APIVersion)
	declared, err := o.object("spec", "")
	if err != nil {
		return nil, err
	}
	requested, err := declared.takeUUID("requestRollout", "spec")
	if err != nil {
		return nil, err
	}
	if err := specToV1alpha2(declared); err != nil {
		return nil, err
	}
	o.replace("spec", declared)
	if !o.has("status") {
		return o.encode()
	}
	status, err := o.object("status", "")
	if err != nil {
		return nil, err
	}
	if err := statusToV1alpha2(status, requested, o); err != nil {
		return nil, err
	}
	o.set("status", status)
	return o.encode()
}

func specToV1alpha2(s object) error {
	delete(s, "inPlaceRollout")
	promoted, err := s.takeUUID("forcePromote", "spec")
	if err != nil {
		return err
	}
	carried, err := s.takeText("forcePromoteHash", "spec")
	if err != nil {
		return err
	}
	switch {
	case carried != "":
		s.set("forcePromote", carried)
	case !isNil(promoted):
		s.set("forcePromote", promoted)
	}
	if err := moveSite(s); err != nil {
		return err
	}
	return moveAgentVersion(s)
}

func moveSite(s object) error {
	site, err := s.takeText("site", "spec")
	if err != nil || site == "" {
		return err
	}
	selector, err := s.object("selector", "spec")
	if err != nil {
		return err
	}
	labels, err := selector.object("labels", "spec.selector")
	if err != nil {
		return err
	}
	if !labels.has("site") {
		labels.set("site", []string{site})
		selector.set("labels", labels)
		s.set("selector", selector)
	}
	return nil
}

func moveAgentVersion(s object) error {
	version, err := s.takeText("agentVersion", "spec")
	if err != nil || version == "" {
		return err
	}
	agent, err := s.object("agent", "spec")
	if err != nil {
		return err
	}
	given, err := agent.text("version", "spec.agent")
	if err != nil {
		return err
	}
	if given == "" && !agent.has("manifest") {
		agent.set("version", version)
		s.set("agent", agent)
	}
	return nil
}

// statusToV1alpha2 sets the hashes of a status, unless it carries them. converted is the object
// with the spec of v1alpha2.
func statusToV1alpha2(status object, requested string, converted object) error {
	completed, err := status.takeUUID("lastCompletedRolloutRequest", "status")
	if err != nil {
		return err
	}
	delete(status, "resourcesHash")
	if status.has("lastCompletedRolloutHash") || status.has("requestedRolloutHash") {
		for _, name := range []string{"lastCompletedRolloutHash", "requestedRolloutHash"} {
			hash, err := status.takeText(name, "status")
			if err != nil {
				return err
			}
			if hash != "" {
				status.set(name, hash)
			}
		}
		return nil
	}
	promoting, err := isPromoting(status)
	if err != nil {
		return err
	}
	underWay := !strings.EqualFold(orNil(completed), orNil(requested))
	if underWay && promoting {
		// The server completes what it finds promoting, whatever its hash. Then it requests the
		// hash of the spec, which starts a rollout this one time.
		return nil
	}
	hash, err := hashOf(converted)
	if err != nil {
		return err
	}
	status.set("requestedRolloutHash", hash)
	if !underWay {
		status.set("lastCompletedRolloutHash", hash)
	}
	return nil
}

func isPromoting(status object) (bool, error) {
	var s struct {
		Conditions []struct {
			Type   spec.ConditionType   `json:"type"`
			Status spec.ConditionStatus `json:"status"`
		} `json:"conditions"`
	}
	if err := json.Unmarshal(orNull(status["conditions"]), &s.Conditions); err != nil {
		return false, fleet.FieldError("status.conditions", "are not a list of conditions: %w", err)
	}
	for _, c := range s.Conditions {
		if c.Type == spec.Promoting {
			return c.Status == spec.True, nil
		}
	}
	return false, nil
}

// hashOf reads names of fields exactly, as the hash of an object that is stored does.
func hashOf(converted object) (string, error) {
	f := spec.Fleet{}
	if err := strict.Unmarshal(orNull(converted["metadata"]), &f.Metadata); err != nil {
		return "", fleet.FieldError("metadata", "cannot be read, so that it has no hash: %w", err)
	}
	if err := strict.Unmarshal(orNull(converted["spec"]), &f.Spec); err != nil {
		return "", fleet.FieldError("spec", "cannot be read, so that it has no hash: %w", err)
	}
	return spec.Hash(&f), nil
}

// FromV1alpha2 converts an object of v1alpha2, as JSON. No server acts on the result: it serves
// clients that still read and write v1alpha1, and ToV1alpha2 makes the same object of it again.
func FromV1alpha2(doc []byte) ([]byte, error) {
	o, err := open(doc, spec.APIVersion)
	if err != nil {
		return nil, err
	}
	o.set("apiVersion", APIVersion)
	declared, err := o.object("spec", "")
	if err != nil {
		return nil, err
	}
	promoted, err := declared.takeText("forcePromote", "spec")
	if err != nil {
		return nil, err
	}
	switch {
	case promoted == "":
	case isUUID(promoted) && !isNil(promoted):
		declared.set("forcePromote", promoted)
	default:
		declared.set("forcePromoteHash", promoted)
	}
	o.replace("spec", declared)
	if !o.has("status") {
		return o.encode()
	}
	status, err := o.object("status", "")
	if err != nil {
		return nil, err
	}
	last, err := status.text("lastCompletedRolloutHash", "status")
	if err != nil {
		return nil, err
	}
	status.set("lastCompletedRolloutHash", last) // also if it is empty: see Status
	o.set("status", status)
	return o.encode()
}

// Warnings returns a sentence for each field of an object of v1alpha1, as JSON, that is deprecated
// or has no effect. It returns none for what is not such an object.
func Warnings(doc []byte) []string {
	o, err := open(doc, APIVersion)
	if err != nil {
		return nil
	}
	declared, err := o.object("spec", "")
	if err != nil {
		return nil
	}
	warnings := []string{"apiVersion " + APIVersion + " is deprecated: use " + spec.APIVersion}
	for _, w := range []struct{ field, text string }{
		{"requestRollout", "has no effect: a change of the spec starts a rollout, and the annotation " + spec.ForceRolloutAnnotation + " starts one without"},
		{"inPlaceRollout", "has no effect"},
		{"forcePromote", "has no effect: in " + spec.APIVersion + " it is the hash in status.requestedRolloutHash"},
		{"site", "is deprecated: use spec.selector.labels.site"},
		{"agentVersion", "is deprecated: use spec.agent.version"},
	} {
		if declared.has(w.field) {
			warnings = append(warnings, "spec."+w.field+" "+w.text)
		}
	}
	return warnings
}

// object is a JSON object whose fields are as they are written.
type object map[string]json.RawMessage

// open reads an object of kind Fleet that has the version.
func open(doc []byte, version string) (object, error) {
	var o object
	if err := json.Unmarshal(doc, &o); err != nil || o == nil {
		return nil, fleet.FieldError("body", "is not a JSON object: %v", err)
	}
	is, err := o.text("apiVersion", "")
	if err == nil && is != version {
		err = fleet.FieldError("apiVersion", "is %q, want %s", is, version)
	}
	if err != nil {
		return nil, err
	}
	kind, err := o.text("kind", "")
	if err == nil && kind != spec.Kind {
		err = fleet.FieldError("kind", "is %q, want %s", kind, spec.Kind)
	}
	return o, err
}

// has reports whether there is a value, other than null.
func (o object) has(name string) bool { return string(orNull(o[name])) != "null" }

// object returns a copy of an object in o, which is empty if there is none. parent is the path of o.
func (o object) object(name, parent string) (object, error) {
	inner := object{}
	if err := json.Unmarshal(orNull(o[name]), &inner); err != nil {
		return nil, fleet.FieldError(path(parent, name), "is %.100s, want an object", o[name])
	}
	if inner == nil {
		inner = object{}
	}
	return inner, nil
}

func (o object) text(name, parent string) (string, error) {
	s := ""
	if err := json.Unmarshal(orNull(o[name]), &s); err != nil {
		return "", fleet.FieldError(path(parent, name), "is %.100s, want a string", o[name])
	}
	return s, nil
}

// takeText removes a string and returns it.
func (o object) takeText(name, parent string) (string, error) {
	s, err := o.text(name, parent)
	delete(o, name)
	return s, err
}

// takeUUID is takeText for a UUID; it may be empty.
func (o object) takeUUID(name, parent string) (string, error) {
	s, err := o.takeText(name, parent)
	if err == nil && s != "" && !isUUID(s) {
		err = fleet.FieldError(path(parent, name), "is %.100q, want a UUID", s)
	}
	return s, err
}

// set sets a value that can be encoded.
func (o object) set(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, lists of them, and what was JSON before
	}
	o[name] = b
}

// replace is set for an object that may be absent, and then stays so.
func (o object) replace(name string, inner object) {
	if o.has(name) || len(inner) > 0 {
		o.set(name, inner)
	}
}

func (o object) encode() ([]byte, error) { return json.Marshal(o) }

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

func path(parent, name string) string { return strings.TrimPrefix(parent+"."+name, ".") }

// isUUID accepts the common form only, which is that of Kubernetes' format uuid.
func isUUID(s string) bool { return len(s) == len(uuid.Nil.String()) && uuid.Validate(s) == nil }

func isNil(s string) bool { return s == "" || s == uuid.Nil.String() }

func orNil(s string) string {
	if s == "" {
		return uuid.Nil.String()
	}
	return s
}
