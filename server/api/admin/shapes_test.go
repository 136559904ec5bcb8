package admin_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	declared "github.com/muster-fleet/muster/server/rollout/spec"
)

// These types of the domain are encoded, and others are in the specification: their JSON must be
// the same.
func TestDomainTypesEncodeAsInTheSpecification(t *testing.T) {
	t.Parallel()
	for _, pair := range []struct{ domain, wire any }{
		{declared.Fleet{}, adminapi.Fleet{}},
	} {
		domain, wire := reflect.TypeOf(pair.domain), reflect.TypeOf(pair.wire)
		for _, bad := range differ(domain.Name(), domain, wire) {
			t.Error(bad)
		}
	}
}

// differ returns where the JSON of two types differs.
func differ(at string, a, b reflect.Type) []string {
	a, b = bare(a), bare(b)
	var raw json.RawMessage
	switch {
	case a == reflect.TypeOf(raw) && b.Kind() == reflect.Map:
		return nil // any object
	case jsonType(a) != jsonType(b):
		return []string{fmt.Sprintf("%s is %s in the domain, %s in the specification", at, jsonType(a), jsonType(b))}
	case jsonType(a) == "list":
		return differ(at+"[]", a.Elem(), b.Elem())
	case jsonType(a) == "map":
		return differ(at+"{}", a.Elem(), b.Elem())
	case jsonType(a) != "object":
		return nil
	}
	var bad []string
	left, right := fieldsOf(a), fieldsOf(b)
	for name, f := range left {
		g, ok := right[name]
		switch {
		case !ok:
			bad = append(bad, at+"."+name+" is not in the specification")
		case f.optional && !g.optional:
			bad = append(bad, at+"."+name+" may be absent, the specification requires it")
		default:
			bad = append(bad, differ(at+"."+name, f.typ, g.typ)...)
		}
	}
	for name := range right {
		if _, ok := left[name]; !ok {
			bad = append(bad, at+"."+name+" is only in the specification")
		}
	}
	return bad
}

func bare(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

func jsonType(t reflect.Type) string {
	switch {
	case t == reflect.TypeOf(time.Time{}):
		return "time"
	case t == reflect.TypeOf(fleet.Duration(0)):
		return "string"
	}
	switch t.Kind() {
	case reflect.Struct:
		return "object"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Float32, reflect.Float64:
		return "number"
	}
	return t.Kind().String()
}

type jsonField struct {
	typ      reflect.Type
	optional bool
}

func fieldsOf(t reflect.Type) map[string]jsonField {
	out := map[string]jsonField{}
	for _, f := range reflect.VisibleFields(t) {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "-" {
			continue
		}
		out[name] = jsonField{f.Type, strings.Contains(rest, "omit")}
	}
	return out
}
