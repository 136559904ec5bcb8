package elastic

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

type results struct{ s *Store }

// writeTries bounds how often a write is repeated after a conflict with another writer. An
// agent has few concurrent writers, which do not win ten times in a row.
const writeTries = 10

// conflictWait, times the number of conflicts so far, bounds the wait before a write is
// repeated. A write takes some milliseconds, so writers that wait a random time up to this
// no longer meet each other, and the nine waits of a call sum to less than half a second.
const conflictWait = 10 * time.Millisecond

// waitAfterConflict waits before a write that others have come before the given number of
// times. After the first conflict it does not wait: most writers meet once.
func waitAfterConflict(ctx context.Context, conflicts int) error {
	if conflicts <= 1 {
		return nil
	}
	select {
	case <-ctx.Done():
		return fleet.Errorf(fleet.Unavailable, "wait for other writers: %w", ctx.Err())
	case <-time.After(rand.N(time.Duration(conflicts) * conflictWait)): //nolint:gosec // no secret
		return nil
	}
}

func resultKey(r fleet.Result) key {
	return key{indexResults, fleet.ResultID(r.ActionID, r.AgentID)}
}

func resultSource(r fleet.Result) (map[string]any, error) {
	p, err := pack("result", fleet.ResultID(r.ActionID, r.AgentID), r)
	if err != nil {
		return nil, err
	}
	return withPacked(map[string]any{
		"action_id": r.ActionID, "agent_id": r.AgentID, "@timestamp": when(r.Timestamp), "failed": r.Error != "", "error": text(r.Error),
	}, p), nil
}

func (r results) Put(ctx context.Context, list []fleet.Result) ([]bool, error) {
	const op = "store results"
	changed := make([]bool, len(list))
	// The results of one id become one write.
	byKey := map[key][]int{}
	var open []key
	for i, res := range list {
		k := resultKey(res)
		if len(byKey[k]) == 0 {
			open = append(open, k)
		}
		byKey[k] = append(byKey[k], i)
	}
	// Most results are the first of their agent, so a stored one is read only after a
	// conflict.
	known := make([]getResult, len(open))
	for try := 1; len(open) > 0; try++ {
		if try > writeTries {
			return nil, fleet.Errorf(fleet.Unavailable, "%s: %s was changed by others %d times in a row: repeat the call", op, open[0].id, writeTries)
		}
		if err := waitAfterConflict(ctx, try-1); err != nil {
			return nil, err
		}
		var writes []write
		var writing []key
		for i, k := range open {
			w, err := r.fold(list, byKey[k], known[i], changed)
			if err != nil {
				return nil, err
			}
			if w != nil {
				writes, writing = append(writes, *w), append(writing, k)
			}
		}
		outcomes, err := r.s.c.write(ctx, op, writes...)
		if err != nil {
			return nil, err
		}
		open = open[:0]
		for i, out := range outcomes {
			if out.conflict {
				open = append(open, writing[i])
			}
		}
		if known, err = r.s.c.gets(ctx, op, open); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// fold applies the results of one id, which have the given indices in list, to the stored
// result. It sets changed for each, and returns the write, or nil if none is needed.
func (r results) fold(list []fleet.Result, indices []int, stored getResult, changed []bool) (*write, error) {
	w := &write{verb: create, key: resultKey(list[indices[0]])}
	var now *fleet.Result
	if stored.exists {
		v, err := resultValue(w.key.id, stored.source, stored.guard)
		if err != nil {
			return nil, err
		}
		now, w.verb, w.guard = &v, put, stored.guard
	}
	written := false
	for _, i := range indices {
		changed[i] = now == nil || list[i].Supersedes(*now)
		if changed[i] {
			now, written = &list[i], true
		}
	}
	if !written {
		return nil, nil
	}
	source, err := resultSource(*now)
	if err != nil {
		return nil, err
	}
	marked := withNonce(*w, source)
	return &marked, nil
}

func resultValue(id string, source []byte, g guard) (fleet.Result, error) {
	var (
		p packed
		v fleet.Result
	)
	if err := decodeSource("result", id, source, &p); err != nil {
		return v, err
	}
	if err := unpack(p, "result", id, &v); err != nil {
		return v, err
	}
	v.Revision = g.revision()
	return v, nil
}

func (r results) Get(ctx context.Context, actionID, agentID string) (fleet.Result, error) {
	id := fleet.ResultID(actionID, agentID)
	f, err := r.s.c.get(ctx, "read result", key{indexResults, id}, packedFields...)
	if err == nil && !f.exists {
		err = store.Missing("result", id)
	}
	if err != nil {
		return fleet.Result{}, err
	}
	return resultValue(id, f.source, f.guard)
}

func (r results) Answered(ctx context.Context, actionID string, agentIDs []string) (map[string]bool, error) {
	keys := make([]key, len(agentIDs))
	for i, id := range agentIDs {
		keys[i] = key{indexResults, fleet.ResultID(actionID, id)}
	}
	got, err := r.s.c.gets(ctx, "look for results", keys, "action_id")
	answered := map[string]bool{}
	for i, f := range got {
		if f.exists {
			answered[agentIDs[i]] = true
		}
	}
	return answered, err
}

func (r results) OfAction(ctx context.Context, actionID string, agentIDs []string, f func(fleet.Result)) error {
	filter := []any{body{"term": body{"action_id": actionID}}}
	if agentIDs != nil {
		filter = append(filter, body{"terms": body{"agent_id": agentIDs}})
	}
	return r.each(ctx, "read the results of an action", body{"query": body{"bool": body{"filter": filter}}}, f)
}

func (r results) Errors(ctx context.Context, actionID string, limit int) ([]fleet.Result, error) {
	hits, _, err := r.s.c.page(ctx, "read failed results", indexResults, body{
		"query": body{"bool": body{"filter": []any{body{"term": body{"action_id": actionID}}, body{"term": body{"failed": true}}}}},
		"sort":  []any{body{"@timestamp": "desc"}, body{"agent_id": "asc"}}, "_source": packedFields, "seq_no_primary_term": true,
	}, 0, max(limit, 0), documentsPage)
	if err != nil {
		return nil, err
	}
	return valuesOf(r.s.c, hits, func(h hit) (fleet.Result, error) { return resultValue(h.ID, h.Source, h.guard()) })
}

// resultPage is how many results one request reads. A result has some hundred bytes.
const resultPage = 5_000

func (r results) Each(ctx context.Context, f func(fleet.Result)) error {
	return r.each(ctx, "read results", body{}, f)
}

// each calls f with every result that the search b finds.
func (r results) each(ctx context.Context, op string, b body, f func(fleet.Result)) error {
	b["_source"], b["seq_no_primary_term"] = packedFields, true
	return r.s.c.walk(ctx, op, indexResults, b, resultPage, func(h hit) error {
		v, err := resultValue(h.ID, h.Source, h.guard())
		if err == nil {
			f(v)
		}
		return err
	})
}

// countPage bounds the actions whose results one request counts.
const countPage = 1_000

func (r results) Counts(ctx context.Context, actionIDs []string) (map[string]fleet.ResultCounts, error) {
	out := make(map[string]fleet.ResultCounts, len(actionIDs))
	for ids := range slices.Chunk(actionIDs, countPage) {
		res, err := r.s.c.search(ctx, "count results", indexResults, body{
			"query": body{"bool": body{"filter": []any{body{"terms": body{"action_id": ids}}}}}, "size": 0, "track_total_hits": false,
			"aggs": body{"actions": body{
				"terms": body{"field": "action_id", "size": len(ids)},
				"aggs":  body{"failed": body{"filter": body{"term": body{"failed": true}}}, "last": body{"max": body{"field": "@timestamp"}}},
			}},
		})
		if err != nil {
			return nil, err
		}
		var counted struct {
			Actions struct {
				Buckets []struct {
					Key    string `json:"key"`
					Count  int    `json:"doc_count"`
					Failed struct {
						Count int `json:"doc_count"`
					} `json:"failed"`
					Last struct {
						Value *float64 `json:"value"` // milliseconds
					} `json:"last"`
				} `json:"buckets"`
			} `json:"actions"`
		}
		if err := json.Unmarshal(res.Aggregations, &counted); err != nil {
			return nil, fleet.Errorf(fleet.Internal, "count results: the response cannot be decoded: %w", err)
		}
		for _, b := range counted.Actions.Buckets {
			c := fleet.ResultCounts{Acked: b.Count - b.Failed.Count, Failed: b.Failed.Count}
			if b.Last.Value != nil {
				c.Last = time.UnixMilli(int64(*b.Last.Value)).UTC()
			}
			out[b.Key] = c
		}
	}
	return out, nil
}
