package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Adjust returns a plan with other limits and rules, complete and checked like any plan, and what
// that changes: sentences such as “limits.max_parallel from 500 to 10”, without any if nothing
// differs. All of it may change while the rollout is under way. In lockstep that leaves health,
// windows and emergency, of which the last two matter only until the targets begin: everything
// else would divide targets that go together, and is refused as in any such plan.
func Adjust(p fleet.Plan, limits fleet.Limits, failure fleet.FailureRule, health fleet.HealthRule, pace fleet.Pace) (fleet.Plan, []string, error) {
	before := WithDefaults(p)
	p.Limits, p.Failure, p.Health, p.Pace = limits, failure, health, pace
	p.Limits.Per = slices.Clone(limits.Per)
	p = WithDefaults(p)
	for _, check := range []func(*fleet.Plan) error{checkStrategyFields, checkLimits, checkFailure, checkHealth, checkPace} {
		if err := check(&p); err != nil {
			return p, nil, err
		}
	}
	var changes []string
	for _, part := range []struct {
		name     string
		was, now any
	}{{"limits", before.Limits, p.Limits}, {"failure", before.Failure, p.Failure}, {"health", before.Health, p.Health}, {"pace", before.Pace, p.Pace}} {
		changes = append(changes, differences(part.name, part.was, part.now)...)
	}
	p.ServerDefaults = slices.DeleteFunc(slices.Clone(p.ServerDefaults), func(path string) bool {
		return !reflect.DeepEqual(valueAt(before, path), valueAt(p, path))
	})
	return p, changes, nil
}

// SameTargets reports whether an adjusted plan leaves what is in the documents of targets as it
// is: their values of the labels in Limits.Per, and how long offers are held for them.
func SameTargets(before, after *fleet.Plan) bool {
	return OfferFor(before) == OfferFor(after) &&
		slices.EqualFunc(before.Limits.Per, after.Limits.Per, func(a, b fleet.LabelLimit) bool { return a.Label == b.Label })
}

// HeldSince returns since when the offer of a held target has been held. An agent that comes and
// goes does not begin it again. It is zero if the target is not held.
func HeldSince(t *fleet.Target) time.Time {
	var since time.Time
	if t.State != fleet.TargetHeld {
		return since
	}
	for _, h := range slices.Backward(t.History) {
		switch h.State {
		case fleet.TargetHeld:
			since = h.At
		case fleet.TargetOffered:
		default:
			return since
		}
	}
	return since
}

// maxShown bounds a value in a sentence, in bytes. Only windows and limits of labels are longer.
const maxShown = 80

// differences returns what differs between two parts of a plan, by the names of its fields.
func differences(part string, was, now any) []string {
	before, after := fieldsOf(was), fieldsOf(now)
	names := map[string]bool{}
	for _, fields := range []map[string]json.RawMessage{before, after} {
		for name := range fields {
			names[name] = true
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(before[name], after[name]) {
			out = append(out, fmt.Sprintf("%s.%s from %s to %s", part, name, shown(before[name]), shown(after[name])))
		}
	}
	return out
}

// fieldsOf returns the fields of a part of a plan that are set, as JSON, which does not
// distinguish a list that is empty from one that is missing.
func fieldsOf(v any) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic(err) // the parts of a plan that was checked always encode
	}
	return fields
}

func shown(v json.RawMessage) string {
	switch {
	case v == nil:
		return "none"
	case len(v) > maxShown:
		return string(bytes.ToValidUTF8(v[:maxShown], nil)) + "…"
	}
	return string(v)
}
