package spec

import (
	"regexp"
	"strings"
)

// triggers says of every field of the spec whether a change of it starts a rollout. A path has
// the names of JSON, and [] for the elements of a list; a map is one field. A test compares the
// table with the types.
//
// A field that starts a rollout changes what hosts run, or who gets it in which order. The other
// fields only control a rollout, and take effect in the one under way.
var triggers = map[string]bool{
	"selector.all":            true,
	"selector.kuery":          true,
	"selector.agents":         true,
	"selector.policies":       true,
	"selector.labels":         true,
	"selector.exclude":        true,
	"selector.exclude_agents": true,

	"agent.version":          true,
	"agent.manifest.profile": true,
	"agent.manifest.id":      true,

	"components[].name":             true,
	"components[].version":          true,
	"components[].manifest.profile": true,
	"components[].manifest.id":      true,

	"configuration.variables": true,

	"strategy.kind":            true,
	"strategy.batch_size":      true,
	"strategy.batch_percent":   true,
	"strategy.canary.size":     true,
	"strategy.canary.percent":  true,
	"strategy.canary.pick":     true,
	"strategy.canary.over":     true,
	"strategy.canary.approval": true,
	"strategy.rings.by":        true,
	"strategy.rings.default":   true,
	"strategy.rings.only":      true,
	"strategy.rings.force":     true,
	"strategy.force_continue":  true,
	"strategy.skip_validation": true,
	"strategy.deadline":        true,
	"strategy.away":            true,
	"strategy.patience":        true,

	"limits.max_parallel": false,
	"limits.per[].label":  false,
	"limits.per[].max":    false,

	"failure.count":   false,
	"failure.percent": false,
	"failure.retries": false,

	"health.wait":         false,
	"health.stale_after":  false,
	"health.silent_after": false,
	"health.max_crashes":  false,

	"pace.soak":             false,
	"pace.pause_on_success": false,
	"pace.windows[].days":   false,
	"pace.windows[].from":   false,
	"pace.windows[].to":     false,
	"pace.windows[].zone":   false,
	"pace.offer_for":        false,
	"pace.wait_for":         false,
	"pace.emergency":        false,

	"forcePromote": false,
	"paused":       false,
}

// onlyTriggers returns the part of a value at a path that starts rollouts, nil if there is none.
// Empty values are left out, also in objects, so that they are the same as absent ones. The
// elements of a list keep their places.
func onlyTriggers(path string, v any) any {
	if starts, leaf := triggers[path]; leaf {
		if !starts || isEmpty(v) {
			return nil
		}
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, field := range v {
			at := name
			if path != "" {
				at = path + "." + name
			}
			if field = onlyTriggers(at, field); field != nil {
				kept[name] = field
			}
		}
		if len(kept) > 0 {
			return kept
		}
	case []any:
		kept, any := make([]any, len(v)), false
		for i, element := range v {
			kept[i] = onlyTriggers(path+"[]", element)
			any = any || kept[i] != nil
		}
		if any {
			return kept
		}
	}
	return nil
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return v == nil
}

// Triggering returns those of the paths, as of Differences, at which a change starts a rollout.
func Triggering(paths []string) []string {
	var starting []string
	for _, path := range paths {
		name, inSpec := strings.CutPrefix(path, "spec.")
		name = index.ReplaceAllString(name, "[]")
		for field, starts := range triggers {
			// A path can also name an object that has the field, or an entry of a map.
			below := strings.HasPrefix(field, name+".") || strings.HasPrefix(field, name+"[]") || strings.HasPrefix(name, field+".") || strings.HasPrefix(name, field+"[]")
			if inSpec && starts && (field == name || below) {
				starting = append(starting, path)
				break
			}
		}
		if path == "metadata.annotations."+ForceRolloutAnnotation {
			starting = append(starting, path)
		}
	}
	return starting
}

var index = regexp.MustCompile(`\[\d+\]`)
