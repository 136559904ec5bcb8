package plan

import (
	"reflect"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// changed reports whether two states of a rollout differ in anything worth writing. All fields count,
// so that a new one is written too, except those that change without an event: the hours of a version
// increase in every round, and marks are written with the counts that they belong to.
func changed(was, is *fleet.Rollout) bool {
	return differ(reflect.ValueOf(withoutTime(was)), reflect.ValueOf(withoutTime(is)))
}

func withoutTime(r *fleet.Rollout) fleet.Rollout {
	out := *r
	out.Marks = nil
	if out.Exposure != nil {
		exposure := *out.Exposure
		exposure.HealthyHours = 0
		out.Exposure = &exposure
	}
	return out
}

var timeType = reflect.TypeFor[time.Time]()

// differ compares values of one type of document: times by their instant, and lists without regard to
// whether an empty one is nil, since a store does not keep either. Values that share memory are equal.
func differ(a, b reflect.Value) bool {
	if a.Type() == timeType {
		return !a.Interface().(time.Time).Equal(b.Interface().(time.Time))
	}
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() != b.IsNil()
		}
		return a.Pointer() != b.Pointer() && differ(a.Elem(), b.Elem())
	case reflect.Slice:
		if a.Len() != b.Len() {
			return true
		}
		if a.Len() == 0 || a.Pointer() == b.Pointer() {
			return false
		}
		for i := range a.Len() {
			if differ(a.Index(i), b.Index(i)) {
				return true
			}
		}
		return false
	case reflect.Struct:
		for i := range a.NumField() {
			if differ(a.Field(i), b.Field(i)) {
				return true
			}
		}
		return false
	default:
		return !reflect.DeepEqual(a.Interface(), b.Interface())
	}
}
