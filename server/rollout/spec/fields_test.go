package spec_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/spectest"
)

// leaves calls visit for every field of a struct that has no fields itself, with its path as in
// the table.
func leaves(path string, v reflect.Value, visit func(path string, v reflect.Value)) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct && v.Type().Elem() != reflect.TypeFor[time.Time]():
		if v.IsNil() {
			v = reflect.New(v.Type().Elem())
		}
		leaves(path, v.Elem(), visit)
		return
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		element := reflect.New(v.Type().Elem()).Elem()
		if v.Len() > 0 {
			element = v.Index(0)
		}
		leaves(path+"[]", element, visit)
		return
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			at := path
			if !f.Anonymous {
				at = strings.TrimPrefix(path+"."+name, ".")
			}
			leaves(at, v.Field(i), visit)
		}
		return
	}
	visit(path, v)
}

func TestEveryFieldIsInTheTable(t *testing.T) {
	var all []string
	leaves("", reflect.ValueOf(spec.Spec{}), func(path string, _ reflect.Value) { all = append(all, path) })
	for _, path := range all {
		if _, ok := spec.Triggers[path]; !ok {
			t.Errorf("spec.%s is not in the table in fields.go: say whether a change of it starts a rollout. If it does, an object without it must keep its hash", path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(spec.Triggers)) {
		if !slices.Contains(all, path) {
			t.Errorf("%s is in the table in fields.go, and no field of the spec", path)
		}
	}
}

// A change of a field changes the hash exactly if the table says so.
func TestChangedFieldsChangeTheHashAsTheTableSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := spectest.Full().Draw(t, "object")
		before := spectest.JSON(t, f)
		hash := spec.Hash(&f)
		seen := 0
		leaves("", reflect.ValueOf(&f.Spec).Elem(), func(path string, v reflect.Value) {
			old := reflect.New(v.Type()).Elem()
			old.Set(v)
			change(t, path, v)
			seen++
			if changed := spec.Hash(&f) != hash; changed != spec.Triggers[path] {
				t.Errorf("%s from %v to %v: the hash changes is %v, want %v", path, old, v, changed, spec.Triggers[path])
			}
			v.Set(old)
		})
		if seen != len(spec.Triggers) {
			t.Errorf("%d fields were changed, want %d", seen, len(spec.Triggers))
		}
		if after := spectest.JSON(t, f); string(after) != string(before) {
			t.Fatalf("Hash or this test changed the object from %s to %s", before, after)
		}
	})
}

// change gives a field a value with another meaning. It makes a new map or list, since the old
// value is put back.
func change(t *rapid.T, path string, v reflect.Value) {
	if v.Kind() == reflect.Pointer {
		changed := reflect.New(v.Type().Elem())
		changed.Elem().Set(v.Elem())
		v.Set(changed)
		v = changed.Elem()
	}
	switch old := v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(old.Add(time.Hour)))
	case []string:
		v.Set(reflect.ValueOf(append(slices.Clone(old), "one more")))
	case []int:
		v.Set(reflect.ValueOf(append(slices.Clone(old), 99)))
	case map[string][]string:
		changed := maps.Clone(old)
		for label, values := range old {
			changed[label] = append(slices.Clone(values), "one more")
		}
		v.Set(reflect.ValueOf(changed))
	case map[string]map[string]string:
		changed := map[string]map[string]string{"one more": {"empty": ""}}
		maps.Copy(changed, old)
		v.Set(reflect.ValueOf(changed))
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int() + 1)
		case reflect.Float64:
			v.SetFloat(v.Float() + 1)
		default:
			t.Fatalf("%s: nothing changes a %s", path, v.Type())
		}
	}
}

func TestHashIgnoresNotation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := spectest.Fleet().Draw(t, "object")
		hash := spec.Hash(&f)
		same := func(what string, f spec.Fleet) {
			if got := spec.Hash(&f); got != hash {
				t.Errorf("%s: the hash is %s, want %s as of the object itself: %s", what, got, hash, spectest.JSON(t, f))
			}
		}

		var reordered spec.Fleet
		if err := json.Unmarshal(backwards(t, spectest.JSON(t, f)), &reordered); err != nil {
			t.Fatal(err)
		}
		same("keys in another order", reordered)

		explicit := f
		explicit.Spec.Strategy = f.Plan(spec.Part{}).Strategy
		same("explicit defaults", explicit)

		sets := f
		for _, list := range []*[]string{&sets.Spec.Selector.Agents, &sets.Spec.Selector.Policies, &sets.Spec.Selector.ExcludeAgents} {
			*list = shuffled(*list)
		}
		for _, labels := range []*map[string][]string{&sets.Spec.Selector.Labels, &sets.Spec.Selector.Exclude} {
			*labels = maps.Clone(*labels)
			for name, values := range *labels {
				(*labels)[name] = shuffled(values)
			}
		}
		same("sets in another order", sets)

		empty := f
		fillWithNothing(&empty.Spec)
		same("empty values", empty)

		other := spectest.Fleet().Draw(t, "another object")
		force, forced := f.Metadata.Annotations[spec.ForceRolloutAnnotation]
		other.Spec.Selector, other.Spec.Agent, other.Spec.Components, other.Spec.Configuration, other.Spec.Strategy = f.Spec.Selector, f.Spec.Agent, f.Spec.Components, f.Spec.Configuration, f.Spec.Strategy
		other.Metadata.Annotations = maps.Clone(other.Metadata.Annotations)
		delete(other.Metadata.Annotations, spec.ForceRolloutAnnotation)
		if forced {
			other.Metadata.Annotations = map[string]string{spec.ForceRolloutAnnotation: force, "other": "value"}
		}
		same("other fields of all that starts no rollout", other)
	})
}

// backwards returns the same JSON with the keys of all objects in the opposite order.
func backwards(t *rapid.T, doc []byte) []byte {
	var object map[string]json.RawMessage
	if json.Unmarshal(doc, &object) != nil || object == nil {
		return doc
	}
	names := slices.Sorted(maps.Keys(object))
	slices.Reverse(names)
	out := []byte("{")
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, spectest.JSON(t, name)...), ':'), backwards(t, object[name])...)
	}
	return append(out, '}')
}

// shuffled returns the same set in another notation.
func shuffled(list []string) []string {
	out := slices.Clone(list)
	slices.Reverse(out)
	return append(out, list...)
}

// fillWithNothing sets fields that are nil to empty values.
func fillWithNothing(s *spec.Spec) {
	if s.Selector.Agents == nil {
		s.Selector.Agents = []string{}
	}
	if s.Selector.Labels == nil {
		s.Selector.Labels = map[string][]string{}
	}
	if s.Components == nil {
		s.Components = []spec.Component{}
	}
	s.Configuration.Variables = maps.Clone(s.Configuration.Variables)
	if s.Configuration.Variables == nil {
		s.Configuration.Variables = map[string]map[string]string{}
	}
	s.Configuration.Variables["a component without variables"] = map[string]string{}
	if s.Strategy.Rings == nil {
		s.Strategy.Rings = &fleet.RingRule{Only: []int{}}
	}
}

func TestHashDependsOnTheOrderOfComponents(t *testing.T) {
	web, db := spec.Component{Name: "web", Desired: spec.Desired{Version: "1.0.0"}}, spec.Component{Name: "db", Desired: spec.Desired{Version: "1.0.0"}}
	one, other := spec.Fleet{}, spec.Fleet{}
	one.Spec.Components, other.Spec.Components = []spec.Component{web, db}, []spec.Component{db, web}
	if spec.Hash(&one) == spec.Hash(&other) {
		t.Error("components in another order have the same hash, and are rolled out in another order")
	}
}

// canary: {} means canaries to rings, and is the default of canary.
func TestHashOfAnEmptyCanaryRule(t *testing.T) {
	for kind, same := range map[fleet.StrategyKind]bool{fleet.Canary: true, fleet.Rings: false} {
		none, empty := spec.Fleet{}, spec.Fleet{}
		none.Spec.Strategy.Kind, empty.Spec.Strategy.Kind = kind, kind
		empty.Spec.Strategy.Canary = &fleet.CanaryRule{}
		if (spec.Hash(&none) == spec.Hash(&empty)) != same {
			t.Errorf("%s: the hashes with and without canary: {} are the same is %v, want %v", kind, !same, same)
		}
	}
}
