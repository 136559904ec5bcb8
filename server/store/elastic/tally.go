package elastic

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// literal returns a Lucene regular expression that matches text.
func literal(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf && !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9') {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// firstOf returns the filters of the classes of a list: each document matches one.
func firstOf(list []kql.Filter) ([]any, error) {
	first, before := make([]any, len(list)+1), []any{}
	for i, f := range list {
		match, err := dsl(f)
		if err != nil {
			return nil, err
		}
		first[i] = body{"bool": body{"filter": []any{match}, "must_not": before[:i:i]}}
		before = append(before, match)
	}
	first[len(list)] = body{"bool": body{"must_not": before}}
	return first, nil
}

// classBuckets is the result of an aggregation of firstOf.
type classBuckets struct {
	Buckets []struct {
		Count int `json:"doc_count"`
	} `json:"buckets"`
}

func (b classBuckets) counts() []int {
	out := make([]int, len(b.Buckets))
	for i, c := range b.Buckets {
		out[i] = c.Count
	}
	return out
}

// Tally asks for all aggregations in one search. The index has one shard, so the counts of
// terms are exact.
func (g agents) tally(ctx context.Context, filter store.AgentFilter, q store.TallyQuery) (store.Tally, error) {
	query, err := filterQuery(filter)
	if err != nil {
		return store.Tally{}, err
	}
	aggs := body{}
	var classes []any
	for i, list := range q.Classes {
		filters, err := firstOf(list)
		if err != nil {
			return store.Tally{}, err
		}
		aggs[fmt.Sprint("class", i)] = body{"filters": body{"filters": filters}}
		if i == 0 {
			classes = filters
		}
	}
	for i, f := range q.Fields {
		if !queryable[f.Field.Name] {
			return store.Tally{}, notQueryable(f.Field)
		}
		name := propertyName(f.Field.Name)
		terms := body{"field": name, "size": store.MaxTallyValues + 1}
		without := body{"exists": body{"field": name}}
		if f.Prefix != "" {
			terms["include"] = literal(f.Prefix) + ".@"
			without = body{"regexp": body{name: body{"value": literal(f.Prefix) + ".@"}}}
		}
		by, none := body{"terms": terms}, body{"filter": body{"bool": body{"must_not": []any{without}}}}
		if f.ByClass && classes != nil {
			by["aggs"] = body{"class": body{"filters": body{"filters": classes}}}
			none["aggs"] = by["aggs"]
		}
		aggs[fmt.Sprint("field", i)], aggs[fmt.Sprint("none", i)] = by, none
	}
	b := body{"query": query, "size": 0, "track_total_hits": true}
	if len(aggs) > 0 {
		b["aggs"] = aggs
	}
	res, err := g.s.c.search(ctx, "count agents", indexAgents, b)
	if err != nil {
		return store.Tally{}, err
	}
	counted := map[string]json.RawMessage{}
	if len(aggs) > 0 {
		if err := decodeSource("counts", "of agents", res.Aggregations, &counted); err != nil {
			return store.Tally{}, err
		}
	}
	return readTally(q, res.Hits.Total.Value, counted)
}

// termBuckets is the result of an aggregation of terms.
type termBuckets struct {
	Buckets []struct {
		Key   string       `json:"key"`
		Count int          `json:"doc_count"`
		Class classBuckets `json:"class"`
	} `json:"buckets"`
}

func readTally(q store.TallyQuery, total int, counted map[string]json.RawMessage) (store.Tally, error) {
	out := store.Tally{Total: total, Classes: make([][]int, len(q.Classes)), Values: make([]map[string]store.TallyCount, len(q.Fields))}
	for i, list := range q.Classes {
		var b classBuckets
		if err := decodeSource("counts", "of agents", counted[fmt.Sprint("class", i)], &b); err != nil {
			return out, err
		}
		if out.Classes[i] = b.counts(); len(out.Classes[i]) != len(list)+1 {
			return out, fleet.Errorf(fleet.Internal, "count agents: Elasticsearch returned %d counts, want %d", len(out.Classes[i]), len(list)+1)
		}
	}
	for i, f := range q.Fields {
		var (
			b    termBuckets
			none struct {
				Count int          `json:"doc_count"`
				Class classBuckets `json:"class"`
			}
		)
		if err := decodeSource("counts", "of agents", counted[fmt.Sprint("field", i)], &b); err != nil {
			return out, err
		}
		if err := decodeSource("counts", "of agents", counted[fmt.Sprint("none", i)], &none); err != nil {
			return out, err
		}
		if len(b.Buckets) > store.MaxTallyValues {
			return out, fleet.Errorf(fleet.Invalid, "%s has more than %d values, which cannot be counted", f.Field.Name, store.MaxTallyValues)
		}
		byClass := func(b classBuckets) []int {
			if f.ByClass && len(q.Classes) > 0 {
				return b.counts()
			}
			return nil
		}
		values := map[string]store.TallyCount{}
		for _, bucket := range b.Buckets {
			values[strings.TrimPrefix(bucket.Key, f.Prefix)] = store.TallyCount{Agents: bucket.Count, Classes: byClass(bucket.Class)}
		}
		if none.Count > 0 {
			values[""] = store.TallyCount{Agents: none.Count, Classes: byClass(none.Class)}
		}
		out.Values[i] = values
	}
	return out, nil
}
