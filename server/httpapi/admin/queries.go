package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// selectAgents is fleet.SelectAgents for a query in a field of a request.
func selectAgents(field, kuery string, inactive bool, timeouts map[string]time.Duration, now time.Time) (kql.Filter, error) {
	f, err := fleet.SelectAgents(kuery, inactive, timeouts, now)
	if err != nil {
		return nil, badQuery(field, err)
	}
	return f, nil
}

// badQuery keeps the lines of a query's error, which point at the place.
func badQuery(field string, err error) error { return fleet.FieldError(field, "%w", err) }

// selection reads the agents of an order: ids, or a query. What a query selects is
// what the list shows for it.
func (h *Handlers) selection(ctx context.Context, raw json.RawMessage, inactive *bool) (ids []string, selected bool, err error) {
	if err := json.Unmarshal(raw, &ids); err == nil {
		return ids, false, nil
	}
	var kuery string
	if err := json.Unmarshal(raw, &kuery); err != nil {
		return nil, false, fleet.FieldError("body.agents", "want a list of agent ids, or a query")
	}
	if strings.TrimSpace(kuery) == "" {
		// In Kibana it means all, and has upgraded fleets by accident.
		return nil, false, fleet.FieldError("body.agents", "is the empty query: say \"*\" to mean all agents")
	}
	timeouts, err := h.Policies.Timeouts(ctx)
	if err != nil {
		return nil, false, err
	}
	f, err := selectAgents("body.agents", kuery, isSet(inactive), timeouts, h.Now.UTC())
	if err != nil {
		return nil, false, err
	}
	// Of one moment, unlike a list read page by page.
	err = h.Store.Agents().Facts(ctx, store.AgentFilter{Query: f}, func(id string, _ fleet.StatusFacts) { ids = append(ids, id) })
	slices.Sort(ids)
	return ids, true, err
}

// pageOf is a page of a small collection, of what the query of the request
// matches.
func pageOf[T any](c *gin.Context, all store.Collection[T], schema *kql.Schema, values func(*T, *kql.Field) []any, number, size int, now time.Time) ([]T, int, error) {
	f, err := kql.Compile(c.Query("kuery"), schema, now)
	if err != nil {
		return nil, 0, badQuery("query.kuery", err)
	}
	if _, everything := f.(kql.Everything); everything {
		return all.List(c.Request.Context(), (number-1)*size, size)
	}
	list, _, err := all.List(c.Request.Context(), 0, 0)
	if err != nil {
		return nil, 0, err
	}
	list = slices.DeleteFunc(list, func(v T) bool {
		return !kql.Match(f, func(field *kql.Field) []any { return values(&v, field) })
	})
	from := min((number-1)*size, len(list))
	return list[from:min(from+size, len(list))], len(list), nil
}

// maxTags bounds the list of tags: more are no help to anybody.
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

// suggestedValues is how many values of agents a search bar gets: more are not
// read, but written on.
const suggestedValues = 20

// suggestPatience is how long values are looked for: who is typing has gone on by
// then. Values of most fields are found sooner, those of large fleets' hosts not.
const suggestPatience = 2 * time.Second

func (h *Handlers) suggest(c *gin.Context) error {
	query := c.Query("q")
	if len(query) > kql.MaxBytes {
		return fleet.FieldError("query.q", "has %d bytes, a query has at most %d", len(query), kql.MaxBytes)
	}
	cursor, err := queryInt(c, "cursor", len(query), 0, len(query))
	if err != nil {
		return err
	}
	s := kql.Suggest(query, cursor, fleet.AgentSchema(nil))
	if want := s.Values; want != nil {
		ctx, cancel := context.WithTimeout(c.Request.Context(), suggestPatience)
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
