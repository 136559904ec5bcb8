package apptest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Shape describes the JSON object of an answer by its keys: "a b{c} d[e]" has a value a, an
// object b with the key c, and a list d whose first item is an object with the key e. It is
// empty for another body.
func Shape(a Answer) string {
	var v map[string]any
	_ = json.Unmarshal(a.Body, &v) // the caller compares
	return shape(v)
}

func shape(v any) string {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			switch inner := v[name].(type) {
			case map[string]any:
				name += "{" + shape(inner) + "}"
			case []any:
				name += "[" + shape(inner) + "]"
			}
			keys = append(keys, name)
		}
		return strings.Join(keys, " ")
	case []any:
		if len(v) > 0 {
			return shape(v[0])
		}
	}
	return ""
}
