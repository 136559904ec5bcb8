package runtimes

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Decode decodes the settings of a component into v, a pointer to a struct with JSON names. A
// key that v lacks, or a value of another kind, is an error that names what is allowed. If v
// is a [Settings], Decode fills in the defaults and checks the values.
func Decode(c *manifest.Component, v any) error {
	text, err := json.Marshal(c.Settings)
	if err != nil {
		return fmt.Errorf("settings: want what JSON can hold: %w", err)
	}
	if len(text) > manifest.MaxSettings {
		return fmt.Errorf("settings: have %d bytes of JSON, want at most %d", len(text), manifest.MaxSettings)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	var p problems
	p.compare("", plain, reflect.TypeOf(v).Elem())
	if err := p.join(); err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if s, ok := v.(Settings); ok {
		return s.complete(c)
	}
	return nil
}

// compare adds what keeps a value from being decoded into the type. Package json would name
// neither the allowed keys nor the place in a list. It knows the kinds of types that settings
// have, and leaves others to package json. A value that is null is one that is omitted.
func (p *problems) compare(field string, value any, typ reflect.Type) {
	if value == nil {
		return
	}
	ok, want := true, ""
	switch typ.Kind() { //nolint:exhaustive // see above
	case reflect.Struct:
		var m map[string]any
		if m, ok = value.(map[string]any); ok {
			p.compareKeys(field, m, typ)
		}
		want = "keys with values"
	case reflect.Map:
		var m map[string]any
		m, ok = value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(m)) {
			p.compare(below(field, key), m[key], typ.Elem())
		}
		want = "names with values, such as {NAME: \"value\"}"
	case reflect.Slice:
		var list []any
		list, ok = value.([]any)
		for i, v := range list {
			p.compare(fmt.Sprintf("%s[%d]", field, i), v, typ.Elem())
		}
		want = fmt.Sprintf("a list, such as [%s]", short(value))
	case reflect.String:
		_, ok = value.(string)
		want = "text"
		if text := short(value); !strings.ContainsAny(text, `[{"`) {
			want = fmt.Sprintf("text, such as %q", text)
		}
	case reflect.Bool:
		_, ok = value.(bool)
		want = "true or false"
	case reflect.Uint16:
		var n float64
		n, ok = value.(float64)
		ok = ok && n >= 0 && n <= 1<<16-1 && n == float64(uint16(n))
		want = "a whole number from 0 to 65535"
	case reflect.Float64:
		_, ok = value.(float64)
		want = "a number"
	}
	if !ok {
		p.add(field, "is %s, want %s", short(value), want)
	}
}

func (p *problems) compareKeys(field string, m map[string]any, typ reflect.Type) {
	var keys []string
	types := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(typ) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key != "" && key != "-" {
			keys = append(keys, key)
			types[key] = f.Type
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if types[key] == nil {
			p.add(below(field, key), "is no setting, want one of %s", strings.Join(keys, ", "))
			continue
		}
		p.compare(below(field, key), m[key], types[key])
	}
}

func below(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

// maxShown keeps values short in messages.
const maxShown = 60

func short(value any) string {
	text, err := json.Marshal(value)
	if err != nil { // it comes from JSON
		return "?"
	}
	if len(text) > maxShown {
		return strings.ToValidUTF8(string(text[:maxShown]), "") + "…"
	}
	return string(text)
}
