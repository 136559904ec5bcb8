package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// selectAgents is fleet.SelectAgents with errors that name a field of the request.
func selectAgents(field, kuery string, inactive bool, timeouts map[string]time.Duration, now time.Time) (kql.Filter, error) {
	f, err := fleet.SelectAgents(kuery, inactive, timeouts, now)
	if err != nil {
		return nil, badQuery(field, err)
	}
	return f, nil
}

// badQuery names the field of a query error, and keeps its lines, which show the position.
// It uses Kibana's words for a syntax error, since clients of the API know them.
func badQuery(field string, err error) error {
	var syntax *kql.Error
	if errors.As(err, &syntax) {
		return fleet.FieldError(field, "Kuery is malformed: %s", syntax.Detail())
	}
	return fleet.FieldError(field, "%w", err)
}

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
	timeouts, err := h.Policies.Timeouts(ctx)
	if err != nil {
		return nil, false, err
	}
	f, err := selectAgents("body.agents", kuery, isSet(inactive), timeouts, h.Now.UTC())
	if err != nil {
		return nil, false, err
	}
	// Facts reads at one moment, unlike a list read page by page.
	err = h.Store.Agents().Facts(ctx, store.AgentFilter{Query: f}, func(id string, _ fleet.StatusFacts) { ids = append(ids, id) })
	slices.Sort(ids)
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
		return nil, badQuery("query.kuery", err)
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

// maxTags bounds the list of tags: a longer one is of no use.
const maxTags = 10_000

func (h *Handlers) agentTags(c *gin.Context) error {
	ctx := c.Request.Context()
	inactive, err := queryBool(c, "showInactive")
	if err != nil {
		return err
	}
	timeouts, err := h.Policies.Timeouts(ctx)
	if err != nil {
		return err
	}
	var filter store.AgentFilter
	if filter.Query, err = selectAgents("query.kuery", c.Query("kuery"), inactive, timeouts, h.Now.UTC()); err != nil {
		return err
	}
	tags, err := h.Store.Agents().Values(ctx, filter, fleet.FieldTags, "", maxTags)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.TagList{Items: tags})
	return nil
}

// suggestedValues is how many values are suggested: users continue to type rather than read
// more.
const suggestedValues = 20

// suggestTimeout bounds the search for values: by then the user has typed on. Most fields
// take less; host names of large fleets may take longer.
const suggestTimeout = 2 * time.Second

func (h *Handlers) suggest(c *gin.Context) error {
	query := c.Query("q")
	if len(query) > kql.MaxBytes {
		return fleet.FieldError("query.q", "has %d bytes, want at most %d", len(query), kql.MaxBytes)
	}
	cursor, err := queryInt(c, "cursor", len(query), 0, len(query))
	if err != nil {
		return err
	}
	s := kql.Suggest(query, cursor, fleet.AgentSchema(nil))
	if want := s.Values; want != nil {
		ctx, cancel := context.WithTimeout(c.Request.Context(), suggestTimeout)
		defer cancel()
		values, err := h.Store.Agents().Values(ctx, store.AgentFilter{}, want.Field, want.Prefix, suggestedValues)
		if err != nil && ctx.Err() == nil {
			return err
		}
		for _, v := range values {
			s.Completions = append(s.Completions, want.Complete(v))
		}
	}
	c.JSON(http.StatusOK, adminapi.QuerySuggestions{Items: each(s.Completions, func(s kql.Completion) adminapi.QuerySuggestion {
		return adminapi.QuerySuggestion{Kind: adminapi.QuerySuggestionKind(s.Kind), Text: s.Text, From: s.From, To: s.To, Description: ptr(s.Description)}
	})})
	return nil
}
