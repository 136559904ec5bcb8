package admin

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// checkQuery refuses a query parameter that the specification does not name, and one that
// is repeated but is no list, as Kibana does: a parameter that is ignored gives a wrong
// answer that looks right.
func (h *Handlers) checkQuery(c *gin.Context) {
	if c.Request.Method != http.MethodGet || c.Request.URL.RawQuery == "" {
		return
	}
	known, ok := queryParameters()[pathPattern(c.FullPath())]
	if !ok {
		return // there is no such call
	}
	given := c.Request.URL.Query()
	names := make([]string, 0, len(given))
	for name := range given {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		kind, ok := known[name]
		switch {
		case !ok:
			h.API.Fail(c, fleet.FieldError("query."+name, "definition for this key is missing"))
			return
		case len(given[name]) > 1 && kind != "array":
			h.API.Fail(c, fleet.FieldError("query."+name, "expected value of type [%s] but got [Array]", kind))
			return
		}
	}
}

var pathParameter = regexp.MustCompile(`\{[^}]*\}|:[^/]*`)

// pathPattern returns a path of the specification or of gin without the names of its
// parameters, so that both can be compared.
func pathPattern(path string) string { return pathParameter.ReplaceAllString(path, "*") }

// queryParameters returns the types of the query parameters of each GET, in the words of
// Kibana's messages, by the pattern of its path and by their names.
var queryParameters = sync.OnceValue(func() map[string]map[string]string {
	type parameter struct {
		Ref    string `yaml:"$ref"`
		Name   string
		In     string
		Schema struct{ Type string }
	}
	var spec struct {
		Paths map[string]struct {
			Get *struct{ Parameters []parameter }
		}
		Components struct{ Parameters map[string]parameter }
	}
	if err := yaml.Unmarshal(adminapi.Spec, &spec); err != nil {
		panic("read the specification: " + err.Error()) // it is embedded
	}
	out := map[string]map[string]string{}
	for path, call := range spec.Paths {
		if call.Get == nil {
			continue
		}
		known := map[string]string{}
		for _, p := range call.Get.Parameters {
			if p.Ref != "" {
				p = spec.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
			}
			if p.In != "query" {
				continue
			}
			if known[p.Name] = p.Schema.Type; p.Schema.Type == "integer" {
				known[p.Name] = "number"
			}
		}
		out[pathPattern(path)] = known
	}
	return out
})
