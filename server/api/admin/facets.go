package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/kql"
)

// facetNames are all facets in the order of the answer.
var facetNames = []string{"health", "progress", "version", "policy", "tag", "os", "site"}

const defaultFacetLimit, maxFacetLimit = 20, 200

func (h *Handlers) facets(c *gin.Context) error {
	ctx := c.Request.Context()
	names := facetNames
	if list := c.Query("fields"); list != "" {
		names = strings.Split(list, ",")
		for _, name := range names {
			if !slices.Contains(facetNames, name) {
				return fleet.FieldError("query.fields", "has %q, want some of %s", name, strings.Join(facetNames, ", "))
			}
		}
	}
	limit, err := queryInt(c, "limit", defaultFacetLimit, 1, maxFacetLimit)
	if err != nil {
		return err
	}
	inactive, err := queryBool(c, "showInactive")
	if err != nil {
		return err
	}
	tally, err := h.Inventory.Tally(ctx, inventory.Selection{Kuery: c.Query("kuery"), Inactive: inactive})
	if err != nil {
		return err
	}
	policies, err := h.Policies.ByID(ctx)
	if err != nil {
		return err
	}
	out := adminapi.Facets{Total: tally.Total, Facets: []adminapi.Facet{}}
	for _, name := range facetNames {
		if slices.Contains(names, name) {
			out.Facets = append(out.Facets, renderFacet(name, tally, policies, limit, h.Now.UTC()))
		}
	}
	c.JSON(http.StatusOK, out)
	return nil
}

func renderFacet(name string, tally inventory.Tally, policies map[string]fleet.Policy, limit int, now time.Time) adminapi.Facet {
	out := adminapi.Facet{Field: name, Values: []adminapi.FacetValue{}}
	health := fleet.HealthClasses(nil, now)
	switch name {
	case fleet.FieldHealth:
		out.Values = derivedValues(name, fleet.Healths[:], health.ByValue(tally.Classes[0]))
		return out
	case fleet.FieldProgress:
		counts := fleet.ProgressClasses(now).ByValue(tally.Classes[1])
		out.Values = derivedValues(name, fleet.ProgressStates[:], counts)
		if n := counts[fleet.ProgressNone]; n > 0 {
			out.Values = append(out.Values, adminapi.FacetValue{Count: n, Kuery: facetQuery(name, "")})
		}
		return out
	}
	i := slices.IndexFunc(inventory.FieldFacets, func(f inventory.FieldFacet) bool { return f.Name == name })
	byClass := inventory.FieldFacets[i].Field.ByClass
	for value, n := range tally.Values[i] {
		v := adminapi.FacetValue{Value: value, Count: n.Agents, Kuery: facetQuery(name, value)}
		if name == "policy" && policies[value].Name != value {
			v.Label = ptr(policies[value].Name)
		}
		if byClass {
			by := map[string]int{}
			for value, n := range health.ByValue(n.Classes) {
				by[string(value)] = n
			}
			v.Health = &by
		}
		out.Values = append(out.Values, v)
	}
	slices.SortFunc(out.Values, func(a, b adminapi.FacetValue) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(fleet.VersionKey(b.Value), fleet.VersionKey(a.Value)), cmp.Compare(a.Value, b.Value))
	})
	for _, v := range out.Values[min(limit, len(out.Values)):] {
		out.Other += v.Count
	}
	out.Values = out.Values[:min(limit, len(out.Values))]
	return out
}

// derivedValues returns the values of a derived field that agents have, in their order.
func derivedValues[T ~string](name string, order []T, counts map[T]int) []adminapi.FacetValue {
	out := []adminapi.FacetValue{}
	for _, value := range order {
		if n := counts[value]; n > 0 {
			out = append(out, adminapi.FacetValue{Value: string(value), Count: n, Kuery: name + ": " + string(value)})
		}
	}
	return out
}

// facetQuery returns the query of the agents that have a value, or none.
func facetQuery(field, value string) string {
	is := kql.Is{Field: &kql.Literal{Text: field}, Value: kql.Literal{Kind: kql.Phrase, Text: value}}
	if value == "" {
		is.Value = kql.Literal{Kind: kql.Pattern, Text: "*", Parts: []string{"", ""}}
		return kql.Not{Node: is}.String()
	}
	return is.String()
}
