package spec

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Differences returns the paths at which two JSON values, as encoding/json decodes them, differ,
// in order: spec.agent.version, spec.components[1].name. Lists of different lengths differ as a
// whole, and what only one of them has is named by its own path.
func Differences(a, b any) []string { return differences(nil, "", a, b) }

func differences(paths []string, at string, a, b any) []string {
	x, isX := a.(map[string]any)
	y, isY := b.(map[string]any)
	if (isX || a == nil) && (isY || b == nil) && (isX || isY) && (at == "" || isX && isY) {
		names := maps.Clone(x)
		if names == nil {
			names = map[string]any{}
		}
		maps.Copy(names, y)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			paths = differences(paths, strings.TrimPrefix(at+"."+name, "."), x[name], y[name])
		}
		return paths
	}
	if isX && len(x) == 0 && b == nil || isY && len(y) == 0 && a == nil {
		return paths
	}
	p, isP := a.([]any)
	q, isQ := b.([]any)
	if isP && isQ && len(p) == len(q) {
		for i := range p {
			paths = differences(paths, fmt.Sprintf("%s[%d]", at, i), p[i], q[i])
		}
		return paths
	}
	if reflect.DeepEqual(a, b) {
		return paths
	}
	return append(paths, at)
}
