package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
)

// Defaults are values for fields of plans, stated once for a server. A plan that gives a field keeps
// its own value. A field whose zero is a value too cannot have a default, since a plan that says 0
// could not be told from one that leaves the field out; see Check. A default of failure.count does
// not apply to canaries, unlike a count that a plan gives.
type Defaults struct {
	Strategy fleet.Strategy    `json:"strategy,omitzero"`
	Limits   fleet.Limits      `json:"limits,omitzero"`
	Failure  fleet.FailureRule `json:"failure,omitzero"`
	Health   fleet.HealthRule  `json:"health,omitzero"`
	Pace     fleet.Pace        `json:"pace,omitzero"`
}

// Apply returns the plan with the defaults of the fields that it leaves out and its strategy has,
// and with the names of all fields that have the default's value in ServerDefaults. It shares
// nothing that it changes with p.
func (d Defaults) Apply(p fleet.Plan) fleet.Plan {
	given := p
	p.ServerDefaults = nil
	d.Pace.Windows = WithDefaults(fleet.Plan{Pace: fleet.Pace{Windows: d.Pace.Windows}}).Pace.Windows // as in a complete plan
	for _, f := range defaultFields {
		own, value := valueAt(given, f.path), valueAt(d, f.path)
		switch {
		case value == nil:
		case own == nil && fits(&given, f.path):
			setValue(reflect.ValueOf(&p).Elem(), strings.Split(f.path, "."), value)
			p.ServerDefaults = append(p.ServerDefaults, f.path)
		case own != nil && isServerDefault(&given, f.path) && reflect.DeepEqual(own, value): // a copy of such a plan
			p.ServerDefaults = append(p.ServerDefaults, f.path)
		}
	}
	return p
}

// fits reports whether a default of a field belongs into a plan: its strategy has the field, and
// the plan does not give the field's alternative, or what stands for none of both.
func fits(p *fleet.Plan, path string) bool {
	st := &p.Strategy
	if !Known(st.Kind) || !Has(st.Kind, path) {
		return false
	}
	switch path {
	case "strategy.batch_size", "strategy.batch_percent":
		return st.BatchSize == 0 && st.BatchPercent == 0
	case "strategy.canary.size", "strategy.canary.percent": // without them stratified takes the fewest
		if c := st.Canary; c != nil && (c.Size != 0 || c.Percent != 0 || c.Pick == fleet.PickStratified) {
			return false
		}
	case "failure.count", "failure.percent":
		return p.Failure.Count == nil && p.Failure.Percent == nil
	case "pace.windows":
		return !p.Pace.Emergency
	}
	if st.Canary == nil && strings.HasPrefix(path, "strategy.canary.") { // whether there are canaries is the plan's choice
		return WithDefaults(fleet.Plan{Strategy: fleet.Strategy{Kind: st.Kind}}).Strategy.Canary != nil
	}
	return true
}

// Check returns what is wrong with the defaults, by the rules for the plans of each strategy. The
// error names the field.
func (d Defaults) Check() error {
	for _, f := range defaultFields {
		switch {
		case valueAt(d, f.path) == nil:
		case f.path == "strategy.kind" || f.path == "strategy.deadline" || f.path == "strategy.rings.only":
			return fleet.FieldError(f.path, "cannot have a default: each plan says it")
		case f.kind == reflect.Bool || f.zero == "allowed" && f.kind != reflect.Pointer:
			return fleet.FieldError(f.path, "cannot have a default: a plan that says 0 or false could not be told from one that leaves it out")
		}
	}
	for _, kind := range Kinds() {
		p := fleet.Plan{
			Name: "defaults", Version: "1.0.0", Component: "component", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.StrategyKind(kind)},
			Artifacts: []fleet.Artifact{{Runtime: fleet.RuntimeProcess, Checksum: "sha256:" + strings.Repeat("0", hexDigits["sha256:"])}},
		}
		p = WithDefaults(d.Apply(p))
		var refused *fleet.Error
		if err := Check(&p); errors.As(err, &refused) {
			named := *refused
			named.Field = strings.TrimPrefix(refused.Field, field(""))
			return &named
		}
	}
	return nil
}

// DefaultsOf returns the fields of a plan whose values are the server's defaults, with the values,
// such as “limits.max_parallel: 50”.
func DefaultsOf(p *fleet.Plan) []string {
	var out []string
	for _, path := range p.ServerDefaults {
		out = append(out, path+": "+valueText(valueAt(p, path)))
	}
	return out
}

// String lists the defaults as DefaultsOf does.
func (d Defaults) String() string {
	var out []string
	for _, f := range defaultFields {
		if v := valueAt(d, f.path); v != nil {
			out = append(out, f.path+": "+valueText(v))
		}
	}
	return strings.Join(out, ", ")
}

func valueText(v any) string {
	if span, ok := v.(fleet.Duration); ok {
		return Span(span)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.Trim(string(text), `"`)
}

// isServerDefault reports whether the value of a field is the server's default.
func isServerDefault(p *fleet.Plan, path string) bool { return slices.Contains(p.ServerDefaults, path) }

// defaultField is a field that may have a default.
type defaultField struct {
	path string // as in strategy.canary.size
	zero string // what a zero means there; see package strict
	kind reflect.Kind
}

// defaultFields are all fields below Defaults.
var defaultFields = fieldsBelow(reflect.TypeFor[Defaults](), "", "")

func fieldsBelow(t reflect.Type, path, zero string) (out []defaultField) {
	rule := t
	if rule.Kind() == reflect.Pointer {
		rule = rule.Elem()
	}
	if rule.Kind() != reflect.Struct || rule.Implements(reflect.TypeFor[json.Marshaler]()) { // a time is a value
		return []defaultField{{path, zero, t.Kind()}}
	}
	for _, f := range reflect.VisibleFields(rule) {
		out = append(out, fieldsBelow(f.Type, strings.TrimPrefix(path+"."+jsonName(f), "."), f.Tag.Get("zero"))...)
	}
	return out
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// valueAt returns the value of a field of a plan, or of defaults, by its path, and nil if it is
// absent.
func valueAt(v any, path string) any {
	at := reflect.ValueOf(v)
	for name := range strings.SplitSeq(path, ".") {
		if at = reflect.Indirect(at); !at.IsValid() {
			return nil
		}
		at = at.FieldByIndex(fieldNamed(at.Type(), name).Index)
	}
	if at.IsZero() || at.Kind() == reflect.Slice && at.Len() == 0 {
		return nil
	}
	return at.Interface()
}

// setValue sets a field by its path. Rules on the way are copied before they are changed.
func setValue(v reflect.Value, path []string, value any) {
	for i, name := range path {
		v = v.FieldByIndex(fieldNamed(v.Type(), name).Index)
		if v.Kind() == reflect.Pointer && i < len(path)-1 {
			own := reflect.New(v.Type().Elem())
			if !v.IsNil() {
				own.Elem().Set(v.Elem())
			}
			v.Set(own)
			v = own.Elem()
		}
	}
	v.Set(reflect.ValueOf(value))
}

// fieldNamed returns the field with a name in JSON. It panics without one: paths are in this package.
func fieldNamed(t reflect.Type, name string) reflect.StructField {
	for _, f := range reflect.VisibleFields(t) {
		if jsonName(f) == name {
			return f
		}
	}
	panic(fmt.Sprintf("%s has no field %s", t, name))
}
