// Package spectest generates objects of kind Fleet for the property tests of package spec and of
// the conversions between versions of the API. It sets all fields that the types have, so a new
// one is tested as soon as it exists.
package spectest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// Fleet generates objects. Each field may be absent. Most objects are not valid: they have
// contradictory values too.
func Fleet() *rapid.Generator[spec.Fleet] { return generator(false) }

// Full generates objects in which every field has a value, and every list and map an element.
func Full() *rapid.Generator[spec.Fleet] { return generator(true) }

func generator(full bool) *rapid.Generator[spec.Fleet] {
	return rapid.Custom(func(t *rapid.T) spec.Fleet {
		f := spec.Fleet{}
		d := drawer{t, full}
		d.set("metadata", reflect.ValueOf(&f.Metadata).Elem())
		d.set("spec", reflect.ValueOf(&f.Spec).Elem())
		if d.present("status") {
			d.set("status", reflect.ValueOf(&f.Status).Elem())
		}
		f.APIVersion, f.Kind = spec.APIVersion, spec.Kind
		return f
	})
}

// JSON returns the encoded form of an object.
func JSON(t rapid.TB, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// words of a type, where other values mean nothing.
var words = map[reflect.Type][]string{
	reflect.TypeFor[fleet.StrategyKind]():   plan.Kinds(),
	reflect.TypeFor[fleet.CanaryPick]():     {"random", "stratified"},
	reflect.TypeFor[fleet.AwayMode]():       {"refuse", "exclude"},
	reflect.TypeFor[fleet.RolloutState]():   {"running", "paused", "completed"},
	reflect.TypeFor[spec.ConditionType]():   {"Ready", "Progressing", "Promoting", "Degraded", "Stalled"},
	reflect.TypeFor[spec.ConditionStatus](): {"True", "False", "Unknown"},
}

// texts are the other strings, with some that a conversion might take for something else.
var texts = []string{
	"a", "b", "1.2.0", "web", "site", "berlin", "<&>", "ü", "ring", "random", "muster.dev/force-rollout",
	"00000000-0000-0000-0000-000000000000", "8f14e45f-ceea-467f-a0e6-3f6b1a2c9d01", "8F14E45F-CEEA-467F-A0E6-3F6B1A2C9D01",
	"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}

type drawer struct {
	t    *rapid.T
	full bool
}

func (d drawer) present(path string) bool {
	return d.full || rapid.Bool().Draw(d.t, path+" is present")
}

// set draws the value at a path.
func (d drawer) set(path string, v reflect.Value) {
	if v.Kind() != reflect.Struct && !d.present(path) {
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(1, 1<<33).Draw(d.t, path), 0).UTC()))
		return
	case fleet.Duration:
		v.SetInt(rapid.Int64Range(1, 40).Draw(d.t, path) * int64(time.Minute))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			d.set(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.set(path, v.Elem())
	case reflect.Slice:
		n := rapid.IntRange(1, 3).Draw(d.t, path+" length")
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			d.set(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(1, 3).Draw(d.t, path+" length") {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.SetString(rapid.SampledFrom(texts).Draw(d.t, path+" key"))
			d.set(path+"[]", value)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		from := texts
		if of, ok := words[v.Type()]; ok {
			from = of
		}
		v.SetString(rapid.SampledFrom(from).Draw(d.t, path))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(1, 12).Draw(d.t, path))
	case reflect.Float64:
		v.SetFloat(rapid.SampledFrom([]float64{0.5, 10, 33.3, 100}).Draw(d.t, path))
	default:
		d.t.Fatalf("%s: nothing draws a %s", path, v.Type())
	}
}
