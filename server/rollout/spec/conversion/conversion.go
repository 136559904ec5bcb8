// Package conversion converts objects of kind Fleet between the versions of the API. Convert
// answers the ConversionReview that a Kubernetes API server sends for a custom resource, and
// Object is for one object, of an operator or of the store.
package conversion

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/v1alpha1"
)

// Versions are the values of apiVersion that objects may have, the stored one last.
var Versions = []string{v1alpha1.APIVersion, spec.APIVersion}

// Object converts an object, as JSON, to the version of the API. An object that has it is
// returned as it is. Errors name the field.
func Object(doc []byte, apiVersion string) ([]byte, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(doc, &head); err != nil {
		return nil, fleet.FieldError("body", "is not an object with an apiVersion: %w", err)
	}
	for _, v := range []struct{ field, version string }{{"apiVersion", head.APIVersion}, {"query.apiVersion", apiVersion}} {
		if !slices.Contains(Versions, v.version) {
			return nil, fleet.FieldError(v.field, "is %.100q, want %s", v.version, strings.Join(Versions, " or "))
		}
	}
	switch {
	case head.APIVersion == apiVersion:
		return doc, nil
	case apiVersion == spec.APIVersion:
		return v1alpha1.ToV1alpha2(doc)
	}
	return v1alpha1.FromV1alpha2(doc)
}

const (
	reviewVersion = "apiextensions.k8s.io/v1"
	reviewKind    = "ConversionReview"
)

// review is a ConversionReview of Kubernetes.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID     string            `json:"uid"`
	Desired string            `json:"desiredAPIVersion"`
	Objects []json.RawMessage `json:"objects"`
}

type response struct {
	UID       string            `json:"uid"`
	Converted []json.RawMessage `json:"convertedObjects"`
	Result    result            `json:"result"`
}

// result is a Status of Kubernetes.
type result struct {
	Status  string `json:"status"` // Success or Failure
	Message string `json:"message,omitempty"`
}

// Convert answers a ConversionReview. An object that cannot be converted fails the whole review,
// with its name in the answer; only a body that is no review is an error.
func Convert(body []byte) ([]byte, error) {
	var in review
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fleet.FieldError("body", "is not a %s: %w", reviewKind, err)
	}
	switch {
	case in.APIVersion != reviewVersion:
		return nil, fleet.FieldError("body.apiVersion", "is %.100q, want %s", in.APIVersion, reviewVersion)
	case in.Kind != reviewKind:
		return nil, fleet.FieldError("body.kind", "is %.100q, want %s", in.Kind, reviewKind)
	case in.Request == nil:
		return nil, fleet.FieldError("body.request", "is missing")
	case in.Request.UID == "":
		return nil, fleet.FieldError("body.request.uid", "is missing")
	}
	out := response{UID: in.Request.UID, Converted: make([]json.RawMessage, 0, len(in.Request.Objects)), Result: result{Status: "Success"}}
	for _, doc := range in.Request.Objects {
		converted, err := Object(doc, in.Request.Desired)
		if err != nil {
			out.Converted, out.Result = []json.RawMessage{}, result{Status: "Failure", Message: nameOf(doc) + ": " + message(err)}
			break
		}
		out.Converted = append(out.Converted, converted)
	}
	return json.Marshal(review{APIVersion: reviewVersion, Kind: reviewKind, Response: &out})
}

// nameOf names an object in an error, in the form of kubectl.
func nameOf(doc []byte) string {
	var o struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if json.Unmarshal(doc, &o) != nil || o.Metadata.Name == "" {
		return "an object without a name"
	}
	name := o.Metadata.Name
	if o.Metadata.Namespace != "" {
		name = o.Metadata.Namespace + "/" + name
	}
	return strings.ToLower(o.Kind) + " " + name
}

func message(err error) string {
	var e *fleet.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	if e.Field == "query.apiVersion" {
		return "desiredAPIVersion " + e.Message
	}
	return e.Field + " " + e.Message
}
