package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/conversion"
	"github.com/muster-fleet/muster/server/rollout/spec/v1alpha1"
)

// header says what an operator has to set.
const header = `# Objects of kind Fleet in Kubernetes. "go tool mage fmt" writes this file from the specification of the
# admin API: do not edit it, but change spec.conversion where you install it.
#
# Kubernetes converts between the versions by a call of POST /convert of Muster's admin listener, over TLS and
# without credentials. Say where it is, in one of two ways:
#
#   url: https://muster.example.com:8221/convert        # a server outside of the cluster
#   service: {namespace: muster, name: muster, port: 8221, path: /convert}        # one in it, without url
#
# and what Kubernetes trusts it by, unless that is a public authority:
#
#   caBundle: LS0tLS1CRUdJTi...        # the certificate of the CA (tls/ca.crt in the server's data folder), PEM in Base64
#
# With cert-manager add the annotation cert-manager.io/inject-ca-from: NAMESPACE/CERTIFICATE instead of caBundle.
`

// node is a JSON schema, as YAML.
type node = map[string]any

// definition returns the CustomResourceDefinition.
func definition() ([]byte, error) {
	schema, err := fleetSchema()
	if err != nil {
		return nil, err
	}
	old, err := fleetSchema() // a second one, which is changed
	if err != nil {
		return nil, err
	}
	toV1alpha1(old)
	var b bytes.Buffer
	b.WriteString(header)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err = e.Encode(node{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   node{"name": "fleets." + spec.Group},
		"spec": node{
			"group": spec.Group,
			"names": node{"kind": spec.Kind, "listKind": spec.Kind + "List", "plural": "fleets", "singular": "fleet"},
			// As in Muster itself, where names of objects are unique.
			"scope": "Cluster",
			"conversion": node{"strategy": "Webhook", "webhook": node{
				"conversionReviewVersions": []string{"v1"},
				"clientConfig":             node{"url": "https://muster.example.com:8221/convert"},
			}},
			"versions": []node{
				version(spec.Version, schema),
				with(version(v1alpha1.Version, old), node{"deprecated": true, "deprecationWarning": v1alpha1.APIVersion + " is deprecated: use " + spec.APIVersion}),
			},
		},
	})
	return b.Bytes(), err
}

func version(name string, schema node) node {
	return node{
		"name": name, "served": slices.Contains(conversion.Versions, spec.Group+"/"+name), "storage": name == spec.Version,
		"schema":       node{"openAPIV3Schema": schema},
		"subresources": node{"status": node{}},
		"additionalPrinterColumns": []node{
			{"name": "Version", "type": "string", "jsonPath": ".spec.agent.version", "description": "The version of the agents"},
			{"name": "Agents", "type": "integer", "jsonPath": ".status.agents", "description": "How many agents belong to the object"},
			{"name": "Ready", "type": "string", "jsonPath": `.status.conditions[?(@.type=="Ready")].status`, "description": "Whether they run what the spec says"},
			{"name": "Reason", "type": "string", "jsonPath": `.status.conditions[?(@.type=="Ready")].reason`, "description": "Why, in a word"},
			{"name": "Promoting", "type": "string", "jsonPath": `.status.conditions[?(@.type=="Promoting")].status`, "description": "Whether a change of the spec waits", "priority": 1},
			{"name": "Rollout", "type": "string", "jsonPath": ".status.rollout.id", "description": "The last rollout", "priority": 1},
			{"name": "Hash", "type": "string", "jsonPath": ".status.requestedRolloutHash", "description": "What forcePromote has to be", "priority": 1},
			{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
		},
	}
}

func with(n, more node) node {
	maps.Copy(n, more)
	return n
}

// fleetSchema returns the schema of v1alpha2: that of the specification of the admin API, in the
// structural form that Kubernetes requires.
func fleetSchema() (node, error) {
	var api struct {
		Components struct {
			Schemas map[string]node `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(adminapi.Spec, &api); err != nil {
		return nil, err
	}
	schema, err := structural(api.Components.Schemas, spec.Kind, api.Components.Schemas[spec.Kind])
	if err != nil {
		return nil, err
	}
	properties(schema)["metadata"] = node{"type": "object"} // Kubernetes has its own
	schema["required"] = []any{"spec"}
	return schema, nil
}

// kept are the keywords that mean the same in both. Kubernetes would write a default into the
// object; Muster's specification has none for these objects.
var kept = []string{"type", "format", "description", "enum", "minimum", "maximum", "maxItems", "maxLength", "required"}

// dropped are the keywords without a counterpart.
var dropped = []string{"example"}

func structural(schemas map[string]node, at string, in node) (node, error) {
	if ref, ok := in["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/components/schemas/")
		return structural(schemas, at, schemas[name])
	}
	if all, ok := in["allOf"].([]any); ok && len(all) == 1 { // a reference with a description of its own
		out, err := structural(schemas, at, all[0].(node))
		if err == nil {
			out["description"] = in["description"]
		}
		return out, err
	}
	if _, ok := in["type"].(string); !ok {
		return nil, fmt.Errorf("%s: has no type, which Kubernetes requires", at)
	}
	out := node{}
	for keyword, v := range in {
		var err error
		switch {
		case keyword == "description":
			out[keyword] = strings.TrimSpace(v.(string))
		case slices.Contains(kept, keyword):
			out[keyword] = v
		case slices.Contains(dropped, keyword):
		case keyword == "items", keyword == "additionalProperties":
			inner, ok := v.(node)
			if !ok {
				return nil, fmt.Errorf("%s: %s is %v, want a schema", at, keyword, v)
			}
			out[keyword], err = structural(schemas, at+"[]", inner)
		case keyword == "properties":
			inner := node{}
			for name, p := range v.(node) {
				if inner[name], err = structural(schemas, at+"."+name, p.(node)); err != nil {
					break
				}
			}
			out[keyword] = inner
		default:
			return nil, fmt.Errorf("%s: nothing says what %s becomes in Kubernetes", at, keyword)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func properties(schema node, names ...string) node {
	p := schema["properties"].(node)
	for _, name := range names {
		p = p[name].(node)["properties"].(node)
	}
	return p
}

// toV1alpha1 adds the fields that v1alpha1 has. A test compares the result with the types.
func toV1alpha1(schema node) {
	uuid := func(description string) node {
		return node{"type": "string", "format": "uuid", "description": description}
	}
	text := func(description string) node { return node{"type": "string", "description": description} }
	declared, status := properties(schema, "spec"), properties(schema, "status")
	maps.Copy(declared, node{
		"requestRollout":   uuid("Has no effect: a change of the spec starts a rollout."),
		"inPlaceRollout":   node{"type": "boolean", "description": "Has no effect."},
		"forcePromote":     uuid("Has no effect: in v1alpha2 it is a hash."),
		"forcePromoteHash": text("Carries forcePromote of v1alpha2, so that nothing is lost by the conversion. Do not write it."),
		"site":             text("Deprecated: a value of the label site in selector.labels, which takes precedence."),
		"agentVersion":     text("Deprecated: the version in agent, which takes precedence."),
	})
	maps.Copy(status, node{
		"lastCompletedRolloutRequest": uuid("requestRollout of the last rollout that reached its end."),
		"resourcesHash":               text("Is not used."),
	})
}
