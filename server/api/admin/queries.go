package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/kql"
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

// queryFilter compiles the query of the request.
func queryFilter(c *gin.Context, schema *kql.Schema, now time.Time) (kql.Filter, error) {
	f, err := kql.Compile(c.Query("kuery"), schema, now)
	if err != nil {
		return nil, fleet.QueryError("query.kuery", err)
	}
	return f, nil
}

func (h *Handlers) agentTags(c *gin.Context) error {
	inactive, err := queryBool(c, "showInactive")
	if err != nil {
		return err
	}
	tags, err := h.Inventory.Tags(c.Request.Context(), inventory.Selection{Kuery: c.Query("kuery"), Inactive: inactive})
	return send(c, adminapi.TagList{Items: tags}, err)
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
