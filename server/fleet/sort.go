package fleet

import (
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/kql"
)

// severalValues are the fields of which an agent may have more than one value, so that
// they give no order. It may also have several components.
var severalValues = []string{"tags", "local_metadata.host.ip", "local_metadata.host.mac", "namespaces", "packages", "unhealthy_reason", "component_actions", "staged_versions"}

// sortFields are the fields by which lists of agents are sorted, by name.
var sortFields = func() map[string]*kql.Field {
	out := map[string]*kql.Field{}
	for _, f := range agentFields {
		if (f.Type == kql.TypeKeyword || f.Type == kql.TypeDate) && !slices.Contains(severalValues, strings.TrimSuffix(f.Name, KeywordSuffix)) && !strings.HasPrefix(f.Name, ComponentsPrefix) {
			out[f.Name] = f
		}
	}
	return out
}()

// SortField returns the field that a list is sorted by, or nil if agents have no such
// order. A field and its keyword are the same order; keywords are compared by their bytes.
func SortField(name string) *kql.Field {
	for _, n := range []string{name, name + KeywordSuffix, strings.TrimSuffix(name, KeywordSuffix)} {
		if f := sortFields[n]; f != nil {
			return f
		}
	}
	return nil
}
