package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/v1alpha1"
)

func TestDefinitionIsCurrent(t *testing.T) {
	want, err := definition()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", "..", "packaging", "release", "kubernetes", "crd.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("packaging/release/kubernetes/crd.yaml differs from the specification of the admin API: run `go tool mage fmt` and commit")
	}
}

// load returns the schemas of the versions, as a client of the file sees them.
func load(t *testing.T) map[string]node {
	t.Helper()
	doc, err := definition()
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name    string
				Served  bool
				Storage bool
				Schema  struct {
					OpenAPI node `yaml:"openAPIV3Schema"`
				}
				Subresources map[string]node
			}
		}
	}
	if err := yaml.Unmarshal(doc, &crd); err != nil {
		t.Fatal(err)
	}
	schemas := map[string]node{}
	for _, v := range crd.Spec.Versions {
		if !v.Served || v.Storage != (v.Name == spec.Version) || v.Subresources["status"] == nil {
			t.Errorf("version %s: served is %v, stored %v, subresources %v", v.Name, v.Served, v.Storage, v.Subresources)
		}
		schemas[v.Name] = v.Schema.OpenAPI
	}
	if len(schemas) != 2 {
		t.Fatalf("there are %d versions, want v1alpha1 and v1alpha2", len(schemas))
	}
	return schemas
}

// Kubernetes drops fields that its schema does not have, without a word.
func TestDefinitionHasTheFieldsOfTheTypes(t *testing.T) {
	for version, object := range map[string]reflect.Type{spec.Version: reflect.TypeFor[spec.Fleet](), v1alpha1.Version: reflect.TypeFor[v1alpha1.Fleet]()} {
		compare(t, version, load(t)[version], object)
	}
}

func compare(t *testing.T, at string, schema node, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	kind := map[reflect.Kind]string{
		reflect.Struct: "object", reflect.Map: "object", reflect.Slice: "array", reflect.String: "string", reflect.Bool: "boolean",
		reflect.Int: "integer", reflect.Int64: "integer", reflect.Float64: "number",
	}[typ.Kind()]
	isTime := typ == reflect.TypeFor[time.Time]()
	if isTime || typ == reflect.TypeFor[fleet.Duration]() {
		kind = "string"
	}
	if schema["type"] != kind {
		t.Errorf("%s: the type is %v, want %s", at, schema["type"], kind)
		return
	}
	if schema["description"] == nil && !strings.HasSuffix(at, "[]") && !strings.HasSuffix(at, ".metadata") {
		t.Errorf("%s: has no description", at)
	}
	switch {
	case strings.HasSuffix(at, ".metadata"), isTime: // Kubernetes' own
	case typ.Kind() == reflect.Struct:
		fields := map[string]reflect.Type{}
		addFields(fields, typ)
		if got, want := slices.Sorted(maps.Keys(schema["properties"].(node))), slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
			t.Errorf("%s: the fields are %s, want those of %s, %s", at, got, typ, want)
			return
		}
		for name, of := range fields {
			compare(t, at+"."+name, schema["properties"].(node)[name].(node), of)
		}
	case typ.Kind() == reflect.Map:
		compare(t, at+"[]", schema["additionalProperties"].(node), typ.Elem())
	case typ.Kind() == reflect.Slice:
		compare(t, at+"[]", schema["items"].(node), typ.Elem())
	}
}

// addFields adds the JSON fields of a struct. One of the struct itself hides that of an embedded
// one, as in package encoding/json.
func addFields(fields map[string]reflect.Type, typ reflect.Type) {
	for f := range typ.Fields() {
		if f.Anonymous {
			addFields(fields, f.Type)
		}
	}
	for f := range typ.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
			fields[name] = f.Type
		}
	}
}

// The rules of structural schemas, without which Kubernetes refuses the definition.
func TestSchemasAreStructural(t *testing.T) {
	for version, schema := range load(t) {
		structuralAt(t, version, schema)
	}
}

func structuralAt(t *testing.T, at string, schema node) {
	t.Helper()
	for keyword := range schema {
		if !slices.Contains(append([]string{"properties", "items", "additionalProperties"}, kept...), keyword) {
			t.Errorf("%s: has %s", at, keyword)
		}
	}
	inner, more := schema["properties"].(node)
	if _, also := schema["additionalProperties"]; more && also {
		t.Errorf("%s: has properties and additionalProperties", at)
	}
	for _, name := range asList(schema["required"]) {
		if inner[name.(string)] == nil {
			t.Errorf("%s: requires %s, which it does not have", at, name)
		}
	}
	for _, value := range asList(schema["enum"]) {
		if _, ok := value.(string); !ok {
			t.Errorf("%s: has the value %v, want a string in quotes", at, value)
		}
	}
	for name, s := range inner {
		structuralAt(t, at+"."+name, s.(node))
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		if s, ok := schema[keyword].(node); ok {
			structuralAt(t, at+"[]", s)
		}
	}
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}
