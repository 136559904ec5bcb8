package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// selection returns the agents that a request is for, given as ids or as a query. A query
// selects the agents that the list shows for it.
func (h *Handlers) selection(ctx context.Context, raw json.RawMessage, inactive *bool) (ids []string, selected bool, err error) {
	if err := json.Unmarshal(raw, &ids); err == nil {
		return ids, false, nil
	}
	var kuery string
	if err := json.Unmarshal(raw, &kuery); err != nil {
		return nil, false, fleet.FieldError("body.agents", "want a list of agent ids, or a query")
	}
	if strings.TrimSpace(kuery) == "" {
		// In Kibana it selects all agents, and has upgraded whole fleets by accident.
		return nil, false, fleet.FieldError("body.agents", "is the empty query: use \"*\" to select all agents")
	}
	ids, err = h.Inventory.IDs(ctx, inventory.Selection{Kuery: kuery, Inactive: isSet(inactive), Field: "body.agents"})
	return ids, true, err
}

// pageOf returns a page of the items of a small collection that match the query of the
// request.
func pageOf[T any](c *gin.Context, all store.Collection[T], schema *kql.Schema, values func(*T, *kql.Field) []any, number, size int, now time.Time) ([]T, int, error) {
	f, err := queryFilter(c, schema, now)
	if err != nil {
		return nil, 0, err
	}
	if _, everything := f.(kql.Everything); everything {
		return all.List(c.Request.Context(), (number-1)*size, size)
	}
	list, err := matching(c.Request.Context(), all, f, values)
	if err != nil {
		return nil, 0, err
	}
	return pageIn(list, number, size), len(list), nil
}

// queryFilter compiles the query of the request.
func queryFilter(c *gin.Context, schema *kql.Schema, now time.Time) (kql.Filter, error) {
	f, err := kql.Compile(c.Query("kuery"), schema, now)
	if err != nil {
		return nil, fleet.QueryError("query.kuery", err)
	}
	return f, nil
}

// matching returns the items of a small collection that match f.
func matching[T any](ctx context.Context, all store.Collection[T], f kql.Filter, values func(*T, *kql.Field) []any) ([]T, error) {
	list, _, err := all.List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(v T) bool {
		return !kql.Match(f, func(field *kql.Field) []any { return values(&v, field) })
	}), nil
}

func (h *Handlers) agentTags(c *gin.Context) error {
	inactive, err := queryBool(c, "showInactive")
	if err != nil {
		return err
	}
	tags, err := h.Inventory.Tags(c.Request.Context(), inventory.Selection{Kuery: c.Query("kuery"), Inactive: inactive})
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.TagList{Items: tags})
	return nil
}

func (h *Handlers) suggest(c *gin.Context) error {
	query := c.Query("q")
	if len(query) > kql.MaxBytes {
		return fleet.FieldError("query.q", "has %d bytes, want at most %d", len(query), kql.MaxBytes)
	}
	cursor, err := queryInt(c, "cursor", len(query), 0, len(query))
	if err != nil {
		return err
	}
	completions, err := h.Inventory.Suggest(c.Request.Context(), query, cursor)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.QuerySuggestions{Items: each(completions, func(s kql.Completion) adminapi.QuerySuggestion {
		return adminapi.QuerySuggestion{Kind: adminapi.QuerySuggestionKind(s.Kind), Text: s.Text, From: s.From, To: s.To, Description: ptr(s.Description)}
	})})
	return nil
}
