package plan

import (
	"reflect"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// leaves calls visit with each value of a document that has no parts. It fills pointers and lists with
// one value.
func leaves(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	switch {
	case v.Type() == timeType:
		visit(path, v)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		leaves(v.Elem(), path, visit)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		leaves(v.Index(0), path, visit)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Tag.Get("json") != "-" {
				leaves(v.Field(i), path+"."+f.Name, visit)
			}
		}
	default:
		visit(path, v)
	}
}

// one sets a value that is not zero.
func one(t *testing.T, path string, v reflect.Value) {
	switch {
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(time.Unix(1, 0)))
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	case v.CanFloat():
		v.SetFloat(1)
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Slice:
		v.SetBytes([]byte("x"))
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem())
	default:
		t.Fatalf("%s is a %s, which the test cannot set", path, v.Type())
	}
}

// A change of any field of a rollout is written, also of one that is new.
func TestEveryFieldOfARolloutIsCompared(t *testing.T) {
	t.Parallel()
	byItself := map[string]bool{".Exposure.HealthyHours": true, ".Marks.At": true, ".Marks.Ended": true}
	var was fleet.Rollout
	var all []string
	leaves(reflect.ValueOf(&was).Elem(), "", func(path string, _ reflect.Value) { all = append(all, path) })
	for i, path := range all {
		var is fleet.Rollout
		n := 0
		leaves(reflect.ValueOf(&is).Elem(), "", func(path string, v reflect.Value) {
			if n++; n == i+1 {
				one(t, path, v)
			}
		})
		if changed(&was, &is) == byItself[path] {
			t.Errorf("a change of %s counts: %t", path, !byItself[path])
		}
	}
	if len(all) < 100 {
		t.Errorf("a rollout has only the fields %q", all)
	}
}

// A document that was read has no zones, and no empty lists.
func TestWhatAStoreDoesNotKeepIsNoChange(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	there := at.In(time.FixedZone("", 3600))
	was := fleet.Rollout{StartedAt: &at, Waiting: []fleet.Wait{}, Batches: []fleet.Batch{{StartedAt: &at}}}
	is := fleet.Rollout{StartedAt: &there, Batches: []fleet.Batch{{StartedAt: &there}}}
	if changed(&was, &is) {
		t.Error("the same rollout has changed")
	}
	if is.Batches[0].StartedAt = nil; !changed(&was, &is) {
		t.Error("a start that is gone is no change")
	}
}
