package elastic

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// agentPage is how many whole agents one request reads. An agent has some 3 KB.
	agentPage = 1_000
	// factPage is how many agents one request reads the facts of, from doc values.
	factPage = maxResultWindow
)

// sortField returns the field that a sort orders by.
func sortField(by store.AgentSort) (string, error) {
	switch by {
	case "", store.ByEnrolledAt:
		return "enrolled_at", nil
	case store.ByLastCheckin:
		return "last_checkin", nil
	case store.ByHostname:
		return "hostname", nil
	case store.ByVersion:
		return "version_key", nil
	case store.ByPolicy:
		return "policy_id", nil
	}
	if f := by.Field(); f != nil && queryable[f.Name] {
		return propertyName(f.Name), nil
	}
	return "", fleet.FieldError("query.sortField", "agents cannot be sorted by %q", string(by))
}

// searchAfter returns the values of a position as Elasticsearch returns them for a hit.
func searchAfter(p store.AgentPosition, by store.AgentSort) []any {
	switch v := p.Value.(type) {
	case time.Time:
		return []any{millis(v), p.ID}
	case nil:
		if by.Dates() {
			return []any{int64(math.MinInt64), p.ID} // how it sorts a missing date first
		}
	}
	return []any{p.Value, p.ID}
}

// filterQuery returns the query for a filter. It computes no scores.
func filterQuery(f store.AgentFilter) (body, error) {
	filter, not := []any{}, []any{}
	if f.Query != nil {
		query, err := dsl(f.Query)
		if err != nil {
			return nil, err
		}
		filter = append(filter, query)
	}
	if f.PolicyID != "" {
		filter = append(filter, body{"term": body{"policy_id": f.PolicyID}})
	}
	if f.ActiveOnly {
		filter = append(filter, body{"term": body{"active": true}})
	}
	if f.VersionBelow != "" {
		// An invalid version has no key.
		filter = append(filter, body{"range": body{"version_key": body{"lt": fleet.VersionKey(f.VersionBelow)}}})
	}
	// Policies with the same timeout share a clause, so there are few clauses.
	byTime := map[int64][]string{}
	for policy, at := range f.SeenSince {
		byTime[millis(at)] = append(byTime[millis(at)], policy)
	}
	for _, since := range slices.Sorted(maps.Keys(byTime)) {
		not = append(not, body{"bool": body{"filter": []any{
			body{"terms": body{"policy_id": byTime[since]}}, body{"range": body{"last_activity": body{"lt": since}}},
		}}})
	}
	return body{"bool": body{"filter": filter, "must_not": not}}, nil
}

func (g agents) list(ctx context.Context, q store.AgentQuery) ([]fleet.Agent, int, error) {
	field, err := sortField(q.Sort)
	if err != nil {
		return nil, 0, err
	}
	query, err := filterQuery(q.AgentFilter)
	if err != nil {
		return nil, 0, err
	}
	// Agents without a value sort before all others.
	order, absent := "asc", "_first"
	if q.Desc {
		order, absent = "desc", "_last"
	}
	b := body{
		"query": query, "_source": agentFields,
		"sort": []any{body{field: body{"order": order, "missing": absent}}, body{"id": order}},
	}
	if q.After == nil {
		hits, total, err := g.s.c.page(ctx, "list agents", indexAgents, b, q.Offset, max(q.Limit, 0), agentPage)
		if err != nil {
			return nil, 0, err
		}
		out, err := g.of(hits)
		return out, total, err
	}
	var out []fleet.Agent
	for after := searchAfter(*q.After, q.Sort); ; {
		n := min(max(q.Limit, 0)-len(out), agentPage)
		if n > 0 {
			b["search_after"] = after
		}
		hits, total, err := g.s.c.page(ctx, "list agents", indexAgents, b, 0, n, agentPage)
		if err != nil {
			return nil, 0, err
		}
		list, err := g.of(hits)
		out = append(out, list...)
		if err != nil || len(hits) < n || len(out) >= q.Limit {
			return out, total, err
		}
		after = make([]any, 0, 2)
		for _, v := range hits[n-1].Sort {
			after = append(after, v)
		}
	}
}

func (g agents) of(hits []hit) ([]fleet.Agent, error) {
	return valuesOf(g.s.c, hits, func(h hit) (fleet.Agent, error) {
		a, _, err := g.value(h.ID, h.Source)
		return a, err
	})
}

func (g agents) Upgrading(ctx context.Context, after store.UpgradingSince, limit int) ([]fleet.Agent, error) {
	if limit <= 0 {
		return []fleet.Agent{}, nil
	}
	filter := []any{body{"exists": body{"field": "upgrading_since"}}}
	if !after.At.IsZero() {
		at := millis(after.At)
		filter = append(filter, body{"bool": body{"should": []any{
			body{"range": body{"upgrading_since": body{"gt": at}}},
			body{"bool": body{"filter": []any{body{"term": body{"upgrading_since": at}}, body{"range": body{"id": body{"gt": after.ID}}}}}},
		}}})
	}
	hits, _, err := g.s.c.page(ctx, "list agents that are being upgraded", indexAgents, body{
		"query": body{"bool": body{"filter": filter}}, "_source": agentFields,
		"sort": []any{body{"upgrading_since": "asc"}, body{"id": "asc"}},
	}, 0, limit, agentPage)
	if err != nil {
		return nil, err
	}
	return g.of(hits)
}

func (g agents) Leavers(ctx context.Context, afterID string, limit int) ([]fleet.Agent, error) {
	if limit <= 0 {
		return []fleet.Agent{}, nil
	}
	hits, _, err := g.s.c.page(ctx, "list agents that have left", indexAgents, body{
		"query": body{"bool": body{
			"filter":               []any{body{"range": body{"id": body{"gt": afterID}}}},
			"must_not":             []any{body{"exists": body{"field": "orders_ended_at"}}},
			"should":               []any{body{"term": body{"active": false}}, gone},
			"minimum_should_match": 1,
		}},
		"_source": agentFields, "sort": []any{body{"id": "asc"}},
	}, 0, limit, agentPage)
	if err != nil {
		return nil, err
	}
	return g.of(hits)
}

// gone selects the agents that are gone from their hosts.
var gone = body{"terms": body{"audit_unenrolled_reason": fleet.GoneFromHost}}

func (g agents) Each(ctx context.Context, filter store.AgentFilter, f func(fleet.Agent)) error {
	query, err := filterQuery(filter)
	if err != nil {
		return err
	}
	return g.s.c.walk(ctx, "read agents", indexAgents, body{"query": query, "_source": agentFields}, agentPage, func(h hit) error {
		a, _, err := g.value(h.ID, h.Source)
		if err == nil {
			f(a)
		}
		return err
	})
}

// columns returns the names for docvalue_fields.
func columns(names ...string) []any {
	var out []any
	for _, name := range names {
		out = append(out, name)
	}
	return out
}

// dates returns the names for docvalue_fields of dates, in milliseconds.
func dates(names ...string) []any {
	var out []any
	for _, name := range names {
		out = append(out, body{"field": name, "format": "epoch_millis"})
	}
	return out
}

// date returns a value that was requested by dates, or nil if there is none.
func (h hit) date(field string) *time.Time {
	ms, err := strconv.ParseInt(h.text(field), 10, 64)
	if err != nil {
		return nil
	}
	t := time.UnixMilli(ms).UTC()
	return &t
}

func (h hit) flag(field string) bool {
	var b bool
	if v := h.Fields[field]; len(v) > 0 {
		_ = json.Unmarshal(v[0], &b) // false if the value has another type
	}
	return b
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func (g agents) facts(ctx context.Context, filter store.AgentFilter, f func(string, fleet.StatusFacts)) error {
	query, err := filterQuery(filter)
	if err != nil {
		return err
	}
	return g.s.c.walk(ctx, "read the facts of agents", indexAgents, body{
		"query": query, "_source": false,
		"docvalue_fields": append(columns("active", "policy_id", "policy_revision_idx", "last_checkin_status", "audit_unenrolled_reason"),
			dates("enrolled_at", "last_checkin", "upgrading_since", "unenrollment_started_at")...),
	}, factPage, func(h hit) error {
		f(h.ID, fleet.StatusFacts{
			Active: h.flag("active"), PolicyID: h.text("policy_id"), EnrolledAt: orZero(h.date("enrolled_at")), LastCheckin: h.date("last_checkin"),
			LastCheckinStatus: h.text("last_checkin_status"), AuditUnenrolledReason: h.text("audit_unenrolled_reason"),
			UpgradingSince: h.date("upgrading_since"), Unenrolling: h.date("unenrollment_started_at") != nil,
			NoPolicy: len(h.Fields["policy_revision_idx"]) == 0,
		})
		return nil
	})
}

// policyBuckets is how many counts one request of CountPolicies reads. Elasticsearch makes at
// most 65,536.
const policyBuckets = 10_000

func (g agents) CountPolicies(ctx context.Context) (map[fleet.PolicyAt]int, error) {
	const op = "count the agents of policies"
	query, err := filterQuery(store.AgentFilter{ActiveOnly: true})
	if err != nil {
		return nil, err
	}
	by := body{"size": policyBuckets, "sources": []any{
		body{"policy": body{"terms": body{"field": "policy_id"}}},
		body{"revision": body{"terms": body{"field": "policy_revision_idx", "missing_bucket": true}}},
	}}
	out := map[fleet.PolicyAt]int{}
	for {
		res, err := g.s.c.search(ctx, op, indexAgents, body{"query": query, "size": 0, "track_total_hits": false, "aggs": body{"policies": body{"composite": by}}})
		if err != nil {
			return nil, err
		}
		var counted struct {
			Policies struct {
				After   json.RawMessage `json:"after_key"`
				Buckets []struct {
					Key struct {
						Policy   string   `json:"policy"`
						Revision *float64 `json:"revision"`
					} `json:"key"`
					Count int `json:"doc_count"`
				} `json:"buckets"`
			} `json:"policies"`
		}
		if err := decodeSource("counts", "of policies", res.Aggregations, &counted); err != nil {
			return nil, err
		}
		for _, b := range counted.Policies.Buckets {
			at := fleet.PolicyAt{ID: b.Key.Policy}
			if b.Key.Revision != nil {
				at.Revision = int64(*b.Key.Revision)
			}
			out[at] = b.Count
		}
		if len(counted.Policies.Buckets) < policyBuckets {
			return out, nil
		}
		by["after"] = counted.Policies.After
	}
}

func (g agents) Census(ctx context.Context, f func(fleet.Census)) error {
	const op = "read the census"
	var long []string // agents whose labels are too long for doc values
	pending := map[string]fleet.Census{}
	query, err := filterQuery(store.AgentFilter{ActiveOnly: true})
	if err != nil {
		return err
	}
	err = g.s.c.walk(ctx, op, indexAgents, body{
		"query": body{"bool": body{"filter": []any{query}, "must_not": []any{gone}}}, "_source": false,
		"docvalue_fields": append(columns("policy_id", "agent.version", "labels"), dates("version_since", "healthy_since", "last_checkin")...),
	}, factPage, func(h hit) error {
		c := fleet.Census{
			ID: h.ID, PolicyID: h.text("policy_id"), Active: true, Version: h.text("agent.version"), Labels: h.text("labels"),
			VersionSince: orZero(h.date("version_since")), HealthySince: orZero(h.date("healthy_since")), LastCheckin: h.date("last_checkin"),
		}
		if c.Labels == "" {
			long = append(long, h.ID)
			pending[h.ID] = c
			return nil
		}
		f(c)
		return nil
	})
	if err != nil {
		return err
	}
	for ids := range slices.Chunk(long, agentPage) {
		list, err := g.GetMany(ctx, ids)
		if err != nil {
			return err
		}
		for i := range list {
			c := pending[list[i].ID]
			c.Labels = fleet.EncodeLabels(list[i].Labels())
			f(c)
		}
	}
	return nil
}
