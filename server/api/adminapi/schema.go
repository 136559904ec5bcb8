package adminapi

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"
)

// Schema returns a schema of the specification as a JSON schema, in which each reference is replaced
// by the schema that it names. The schema must not refer to itself.
func Schema(name string) (map[string]any, error) {
	var doc struct {
		Components struct {
			Schemas map[string]any `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(Spec, &doc); err != nil {
		return nil, fmt.Errorf("read the specification: %w", err)
	}
	schema, ok := doc.Components.Schemas[name].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the specification has no schema %s", name)
	}
	out, _ := inline(schema, doc.Components.Schemas).(map[string]any)
	return out, nil
}

// inline replaces references, and drops what only generators of Go read.
func inline(v any, schemas map[string]any) any {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			return inline(schemas[strings.TrimPrefix(ref, "#/components/schemas/")], schemas)
		}
		out := make(map[string]any, len(v))
		for key, value := range v {
			if strings.HasPrefix(key, "x-") {
				continue
			}
			if text, ok := value.(string); ok && key == "description" {
				value = strings.TrimSpace(text)
			}
			out[key] = inline(value, schemas)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = inline(item, schemas)
		}
		return out
	}
	return v
}
