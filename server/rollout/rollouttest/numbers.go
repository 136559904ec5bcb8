package rollouttest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
)

// PlanNumber is a number or a duration of a plan.
type PlanNumber struct {
	// Path is as in errors: strategy.canary.size or limits.per[0].max.
	Path string
	// Zero is what a zero means there, the field's tag: refused, allowed or required.
	Zero string
	// JSON is a plan that has only this field, as zero.
	JSON string
}

// PlanNumbers returns all numbers and durations of a plan, found by reflection, so that a test of
// all that decodes plans covers a new field as soon as it exists. It panics if one does not say
// what its zero means.
func PlanNumbers() []PlanNumber {
	return planNumbers(reflect.TypeFor[fleet.Plan](), "", "", func(json string) string { return json })
}

func planNumbers(t reflect.Type, at, zero string, within func(string) string) []PlanNumber {
	text := "0"
	switch {
	case t == reflect.TypeFor[fleet.Duration]():
		text = `"0s"`
	case t.Kind() == reflect.Pointer:
		return planNumbers(t.Elem(), at, zero, within)
	case t.Kind() == reflect.Slice:
		return planNumbers(t.Elem(), at+"[0]", zero, func(json string) string { return within("[" + json + "]") })
	case t.Kind() == reflect.Struct && !t.Implements(reflect.TypeFor[json.Marshaler]()):
		var all []PlanNumber
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			all = append(all, planNumbers(f.Type, strings.TrimPrefix(at+"."+name, "."), f.Tag.Get("zero"), func(json string) string {
				return within(fmt.Sprintf(`{%q:%s}`, name, json))
			})...)
		}
		return all
	case !reflect.Zero(t).CanInt() && !reflect.Zero(t).CanFloat() && !reflect.Zero(t).CanUint():
		return nil
	}
	if zero != "refused" && zero != "allowed" && zero != "required" {
		panic(fmt.Sprintf("the field %s of fleet.Plan has no tag zero: say refused, allowed or required", at))
	}
	return []PlanNumber{{at, zero, within(text)}}
}
