package elastic

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type history struct{ s *Store }

// historyPage is how many records one request reads. A record has some KB at most.
const historyPage = 2_000

func historyWrites(records []fleet.HistoryRecord) ([]write, error) {
	writes := make([]write, len(records))
	for i, r := range records {
		p, err := pack("history record", r.ID, r)
		if err != nil {
			return nil, err
		}
		writes[i] = write{verb: put, key: key{indexHistory, r.ID}, body: withPacked(map[string]any{
			"record_id": text(r.ID), "agent_id": text(r.AgentID), "component": r.Component, "action_id": text(r.ActionID), "state": string(r.State), "code": r.Code,
			"at": nanoseconds(r.At), "ended": nanoseconds(r.Ended()),
		}, p)}
	}
	return writes, nil
}

func (h history) Put(ctx context.Context, records []fleet.HistoryRecord) error {
	writes, err := historyWrites(records)
	if err != nil || len(writes) == 0 {
		return err
	}
	_, err = h.s.c.write(ctx, "write the history of agents", writes...)
	return err
}

// nanoseconds returns the nanoseconds since 1970, and the lowest number for a time that is out of
// their range, as the zero time is.
func nanoseconds(t time.Time) int64 {
	if t.Year() < 1700 {
		return math.MinInt64
	}
	return t.UnixNano()
}

func (h history) List(ctx context.Context, q store.HistoryQuery) ([]fleet.HistoryRecord, error) {
	filter := []any{body{"term": body{"agent_id": q.AgentID}}}
	if q.Component != nil {
		filter = append(filter, body{"term": body{"component": *q.Component}})
	}
	if q.Before != (store.HistoryPosition{}) {
		at := nanoseconds(q.Before.At)
		filter = append(filter, body{"bool": body{"should": []any{
			body{"range": body{"at": body{"lt": at}}},
			body{"bool": body{"filter": []any{body{"term": body{"at": at}}, body{"range": body{"record_id": body{"lt": q.Before.ID}}}}}},
		}}})
	}
	hits, _, err := h.s.c.page(ctx, "list the history of an agent", indexHistory, body{
		"query": body{"bool": body{"filter": filter}}, "_source": packedFields, "sort": []any{body{"at": "desc"}, body{"record_id": "desc"}},
	}, 0, max(q.Limit, 0), historyPage)
	if err != nil {
		return nil, err
	}
	return valuesOf(h.s.c, hits, historyOf)
}

func historyOf(h hit) (r fleet.HistoryRecord, err error) {
	var p packed
	if err := decodeSource("history record", h.ID, h.Source, &p); err != nil {
		return r, err
	}
	return r, unpack(p, "history record", h.ID, &r)
}

// maxStates and maxCodes bound the states of one action, and the codes of one state. Hosts report
// a dozen codes; more of them would be counted without one.
const maxStates, maxCodes = 16, 100

func (h history) CountEnds(ctx context.Context, actionIDs []string) (map[string]map[fleet.End]int, error) {
	const op = "count the history of actions"
	out := map[string]map[fleet.End]int{}
	for ids := range slices.Chunk(actionIDs, countPage) {
		res, err := h.s.c.search(ctx, op, indexHistory, body{
			"query": body{"bool": body{"filter": []any{body{"terms": body{"action_id": ids}}}}}, "size": 0, "track_total_hits": false,
			"aggs": body{"actions": body{
				"terms": body{"field": "action_id", "size": len(ids)},
				"aggs": body{"states": body{
					"terms": body{"field": "state", "size": maxStates},
					"aggs":  body{"codes": body{"terms": body{"field": "code", "size": maxCodes}}},
				}},
			}},
		})
		if err != nil {
			return nil, err
		}
		var counted struct {
			Actions struct {
				Buckets []struct {
					Key    string `json:"key"`
					States struct {
						Buckets []struct {
							Key   fleet.ProgressState `json:"key"`
							Count int                 `json:"doc_count"`
							Codes struct {
								Buckets []struct {
									Key   string `json:"key"`
									Count int    `json:"doc_count"`
								} `json:"buckets"`
							} `json:"codes"`
						} `json:"buckets"`
					} `json:"states"`
				} `json:"buckets"`
			} `json:"actions"`
		}
		if err := json.Unmarshal(res.Aggregations, &counted); err != nil {
			return nil, fleet.Errorf(fleet.Internal, "%s: the response cannot be decoded: %w", op, err)
		}
		for _, a := range counted.Actions.Buckets {
			ends := map[fleet.End]int{}
			for _, s := range a.States.Buckets {
				left := s.Count
				for _, c := range s.Codes.Buckets {
					ends[fleet.End{State: s.Key, Code: c.Key}] += c.Count
					left -= c.Count
				}
				if left > 0 {
					ends[fleet.End{State: s.Key}] += left
				}
			}
			out[a.Key] = ends
		}
	}
	return out, nil
}

func (h history) OfAction(ctx context.Context, q store.ActionHistory, f func(fleet.HistoryRecord)) error {
	filter := []any{body{"term": body{"action_id": q.ActionID}}}
	if q.AgentIDs != nil {
		filter = append(filter, body{"terms": body{"agent_id": q.AgentIDs}})
	}
	if q.States != nil {
		filter = append(filter, body{"terms": body{"state": q.States}})
	}
	return h.s.c.walk(ctx, "read the history of an action", indexHistory, body{"query": body{"bool": body{"filter": filter}}, "_source": packedFields}, historyPage, func(h hit) error {
		r, err := historyOf(h)
		if err == nil {
			f(r)
		}
		return err
	})
}

func (h history) Count(ctx context.Context) (int, error) {
	_, total, err := h.s.c.page(ctx, "count the history of agents", indexHistory, body{"query": body{"match_all": body{}}, "_source": false}, 0, 0, historyPage)
	return total, err
}

func (h history) Each(ctx context.Context, f func(fleet.HistoryRecord)) error {
	return h.s.c.walk(ctx, "read the history of agents", indexHistory, body{"_source": packedFields}, historyPage, func(h hit) error {
		r, err := historyOf(h)
		if err == nil {
			f(r)
		}
		return err
	})
}

func (h history) Trim(ctx context.Context, t store.HistoryTrim) (int, error) {
	limit := min(t.Limit, store.MaxHistoryTrim)
	removed, err := h.trim(ctx, body{"range": body{"ended": body{"lt": nanoseconds(t.Before)}}}, limit)
	if err != nil || removed >= limit {
		return removed, err
	}
	h.s.c.fresh[indexHistory].noteWrite() // count what is left
	total, err := h.Count(ctx)
	if err != nil || total <= t.Keep {
		return removed, err
	}
	more, err := h.trim(ctx, body{"match_all": body{}}, min(limit-removed, total-t.Keep))
	return removed + more, err
}

func (h history) trim(ctx context.Context, query body, limit int) (int, error) {
	const op = "trim the history of agents"
	if limit <= 0 {
		return 0, nil
	}
	res, err := h.s.c.search(ctx, op, indexHistory, body{
		"query": query, "sort": []any{body{"ended": "asc"}, body{"record_id": "asc"}}, "size": limit, "_source": false, "track_total_hits": false,
	})
	if err != nil || len(res.Hits.Hits) == 0 {
		return 0, err
	}
	return len(res.Hits.Hits), h.s.c.remove(ctx, op, indexHistory, res.Hits.Hits)
}
