package admin

import (
	"maps"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// checkQuery refuses a query parameter that the operation does not have, and one that is
// repeated but is no list, as Kibana does: a parameter that is ignored gives a wrong answer that
// looks right.
func (h *Handlers) checkQuery(c *gin.Context, call *adminapi.Call) {
	if c.Request.URL.RawQuery == "" {
		return
	}
	given := c.Request.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(call.Params, func(p adminapi.Param) bool { return p.InQuery() && p.Name == name })
		if i < 0 {
			h.API.Fail(c, fleet.FieldError("query."+name, "definition for this key is missing"))
			return
		}
		if kind := call.Params[i].Kind(); len(given[name]) > 1 && kind != "array" {
			if kind == "integer" {
				kind = "number" // in Kibana's words
			}
			h.API.Fail(c, fleet.FieldError("query."+name, "expected value of type [%s] but got [Array]", kind))
			return
		}
	}
}
