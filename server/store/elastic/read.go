package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// maxGet bounds the documents that one request gets by id.
	maxGet = 1_000
	// maxResultWindow bounds the sum of from and size. It is Elasticsearch's default. Deeper
	// pages are reached with search_after.
	maxResultWindow = 10_000
	// skipPage is how many hits one request skips on the way to a deep page. They are
	// returned without their documents.
	skipPage = maxResultWindow
	// smallPage is the size of the first search of a walk, which is the only one if there
	// are fewer hits. Longer walks discard it, which costs a tenth of one of their pages.
	smallPage = 1_000
	// pitAlive is how long Elasticsearch keeps a point in time after each page of a walk. A
	// process that needs longer for a page has died.
	pitAlive = "2m"
)

// body is the body of a request.
type body map[string]any

// getResult is the result of getting a document by id.
type getResult struct {
	exists  bool
	guard   guard
	source  json.RawMessage
	refused *refusal // why the document cannot be read
}

// lookup is an item of an _mget request.
type lookup struct {
	Index string `json:"_index"`
	ID    string `json:"_id"`
	// Fields are the fields of the source to return; none means all.
	Fields []string `json:"_source,omitempty"`
}

// gets returns the current documents of the keys at the same indices. fields are the fields of
// the source to return; none means all.
func (c *client) gets(ctx context.Context, op string, keys []key, fields ...string) ([]getResult, error) {
	out := make([]getResult, len(keys))
	valid := make([]int, 0, len(keys))
	for i, k := range keys {
		if k.validID() {
			valid = append(valid, i)
		}
	}
	for part := range slices.Chunk(valid, maxGet) {
		lookups := make([]lookup, len(part))
		for n, i := range part {
			lookups[n] = lookup{c.name(keys[i].index), keys[i].id, fields}
		}
		get := c.getSome
		if len(lookups) <= batchLookups {
			get = c.reads.do
		}
		got, err := get(ctx, lookups)
		if err != nil {
			return nil, fault(op, err)
		}
		for n, i := range part {
			if got[n].refused != nil {
				return nil, fault(op, got[n].refused)
			}
			out[i] = got[n]
		}
	}
	return out, nil
}

// getSome gets documents with one request.
func (c *client) getSome(ctx context.Context, lookups []lookup) ([]getResult, error) {
	encoded, err := json.Marshal(body{"docs": lookups})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Docs []struct {
			Found  bool            `json:"found"`
			Seq    int64           `json:"_seq_no"`
			Term   int64           `json:"_primary_term"`
			Source json.RawMessage `json:"_source"`
			Error  *cause          `json:"error"`
		} `json:"docs"`
	}
	err = c.try(ctx, call{timeout: timeoutFor(len(lookups)), repeatable: true, request: func() esapi.Request {
		return esapi.MgetRequest{Body: bytes.NewReader(encoded)}
	}}, &answer)
	if err != nil {
		return nil, err
	}
	if len(answer.Docs) != len(lookups) {
		return nil, fmt.Errorf("the response has %d of %d documents", len(answer.Docs), len(lookups))
	}
	out := make([]getResult, len(lookups))
	for i, d := range answer.Docs {
		out[i] = getResult{exists: d.Found, guard: guard{d.Seq, d.Term}, source: d.Source}
		if d.Error != nil {
			out[i].refused = d.Error.refusal(statusOf(d.Error.Type))
		}
	}
	return out, nil
}

// statusOf returns an HTTP status for an error of one document, which has none.
func statusOf(kind string) int {
	if kind == "index_not_found_exception" {
		return 404
	}
	return 503 // a shard that cannot be read
}

// get is gets for one document.
func (c *client) get(ctx context.Context, op string, k key, fields ...string) (getResult, error) {
	out, err := c.gets(ctx, op, []key{k}, fields...)
	if err != nil {
		return getResult{}, err
	}
	return out[0], nil
}

// hit is a document that a search found.
type hit struct {
	ID     string                       `json:"_id"`
	Seq    int64                        `json:"_seq_no"`
	Term   int64                        `json:"_primary_term"`
	Source json.RawMessage              `json:"_source"`
	Sort   []json.RawMessage            `json:"sort"`
	Fields map[string][]json.RawMessage `json:"fields"`
}

func (h hit) guard() guard { return guard{h.Seq, h.Term} }

// text returns the doc value of a field, or "" if there is none.
func (h hit) text(field string) string {
	var s string
	if v := h.Fields[field]; len(v) > 0 {
		_ = json.Unmarshal(v[0], &s) // "" if the value has another type
	}
	return s
}

// result is the result of a search.
type result struct {
	PIT  string `json:"pit_id"`
	Hits struct {
		Total struct {
			Value int `json:"value"`
		} `json:"total"`
		Hits []hit `json:"hits"`
	} `json:"hits"`
	Aggregations json.RawMessage `json:"aggregations"`
}

// search searches an index. It refreshes the index first if this process has written to it
// since the last refresh.
func (c *client) search(ctx context.Context, op, index string, b body) (result, error) {
	if err := c.refresh(ctx, op, index); err != nil {
		return result{}, err
	}
	return c.searchNow(ctx, op, index, b)
}

// searchNow searches an index as of its last refresh. If index is empty, the body has a point
// in time.
func (c *client) searchNow(ctx context.Context, op, index string, b body) (result, error) {
	if index == "" {
		return c.searchAll(ctx, op, nil, b)
	}
	return c.searchAll(ctx, op, []string{c.name(index)}, b)
}

// searchAll is searchNow for several indices, by their full names.
func (c *client) searchAll(ctx context.Context, op string, names []string, b body) (result, error) {
	partial := false           // a list without the hits of a failed shard would look complete
	hits, _ := b["size"].(int) // a search without hits is fast
	var out result
	err := c.read(ctx, op, timeoutFor(hits), b, &out, func(r *bytes.Reader) esapi.Request {
		req := esapi.SearchRequest{Index: names, Body: r}
		if names != nil {
			req.AllowPartialSearchResults = &partial
		}
		return req
	})
	return out, err
}

// read sends a request that changes no documents.
func (c *client) read(ctx context.Context, op string, timeout time.Duration, b body, out any, request func(*bytes.Reader) esapi.Request) error {
	encoded, err := json.Marshal(b)
	if err != nil {
		return fleet.Errorf(fleet.Internal, "%s: the request cannot be encoded: %w", op, err)
	}
	return c.do(ctx, call{op: op, timeout: timeout, repeatable: true, request: func() esapi.Request {
		return request(bytes.NewReader(encoded))
	}}, out)
}

// walk calls f for every hit of a search at one point in time. Without a sort the order is
// unspecified.
//
// A document that f cannot read is left out.
func (c *client) walk(ctx context.Context, op, index string, b body, page int, f func(hit) error) error {
	each := func(hits []hit) error {
		for _, h := range hits {
			if err := f(h); err != nil && !c.unreadable.Skip(err) {
				return err
			}
		}
		return nil
	}
	// A result that fits into a small page needs no point in time, which costs two more
	// requests.
	small := min(page, smallPage)
	first := body{"size": small, "track_total_hits": false, "sort": []any{"_doc"}}
	maps.Copy(first, b)
	res, err := c.search(ctx, op, index, first)
	if err != nil {
		return err
	}
	if len(res.Hits.Hits) < small {
		return each(res.Hits.Hits)
	}
	return c.withPointInTime(ctx, op, index, b, func(next func(body) ([]hit, error)) error {
		for {
			hits, err := next(body{"size": page})
			if err == nil {
				err = each(hits)
			}
			if err != nil || len(hits) < page {
				return err
			}
		}
	})
}

// withPointInTime opens a point in time and calls f with a function that returns the next
// page of the search. The argument of next overrides keys of b.
func (c *client) withPointInTime(ctx context.Context, op, index string, b body, f func(next func(body) ([]hit, error)) error) error {
	if err := c.refresh(ctx, op, index); err != nil {
		return err
	}
	var opened struct {
		ID string `json:"id"`
	}
	err := c.do(ctx, call{op: op, timeout: callTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.OpenPointInTimeRequest{Index: []string{c.name(index)}, KeepAlive: pitAlive}
	}}, &opened)
	if err != nil {
		return err
	}
	pit := opened.ID
	defer func() {
		// Best effort, even if the caller's context has ended. Otherwise Elasticsearch keeps
		// the point in time, and with it old segments, for pitAlive.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_ = c.read(ctx, op, callTimeout, body{"id": pit}, nil, func(r *bytes.Reader) esapi.Request { return esapi.ClosePointInTimeRequest{Body: r} })
	}()
	var after []json.RawMessage
	return f(func(page body) ([]hit, error) {
		q := body{"sort": []any{"_shard_doc"}, "track_total_hits": false}
		maps.Copy(q, b)
		maps.Copy(q, page)
		q["pit"] = body{"id": pit, "keep_alive": pitAlive}
		if after != nil {
			q["search_after"] = after
		}
		res, err := c.searchNow(ctx, op, "", q)
		if err != nil {
			return nil, err
		}
		if res.PIT != "" {
			pit = res.PIT
		}
		if n := len(res.Hits.Hits); n > 0 {
			after = res.Hits.Hits[n-1].Sort
		}
		return res.Hits.Hits, nil
	})
}

// all is a limit of page that means no limit.
const all = -1

// page returns a page of a sorted search, and the total number of hits. One request reads at
// most as many documents as most.
func (c *client) page(ctx context.Context, op, index string, b body, offset, limit, most int) ([]hit, int, error) {
	offset = max(offset, 0)
	first := body{"track_total_hits": true, "size": 0}
	simple := limit != all && limit <= most && offset+limit <= maxResultWindow
	if simple {
		first["from"], first["size"] = offset, limit
	}
	for k, v := range b {
		if _, given := first[k]; !given {
			first[k] = v
		}
	}
	if first["size"] == 0 {
		delete(first, "sort")
		delete(first, "from")
	}
	res, err := c.search(ctx, op, index, first)
	if err != nil {
		return nil, 0, err
	}
	total := res.Hits.Total.Value
	if simple || offset >= total {
		return res.Hits.Hits, total, nil
	}
	if limit == all {
		limit = total - offset
	}
	var out []hit
	err = c.withPointInTime(ctx, op, index, b, func(next func(body) ([]hit, error)) error {
		for rest := offset; rest > 0; {
			n := min(rest, skipPage)
			hits, err := next(body{"size": n, "_source": false, "docvalue_fields": []any{}})
			if err != nil || len(hits) < n {
				return err
			}
			rest -= n
		}
		for len(out) < limit {
			n := min(limit-len(out), most)
			hits, err := next(body{"size": n})
			if err != nil {
				return err
			}
			out = append(out, hits...)
			if len(hits) < n {
				return nil
			}
		}
		return nil
	})
	return out, total, err
}

// freshness records whether this process has written to an index since it last refreshed it.
type freshness struct {
	sem       chan struct{} // serializes refreshes
	count     atomic.Int64  // of writes
	refreshed atomic.Int64  // the value of count before the last refresh
}

func newFreshness() *freshness {
	f := &freshness{sem: make(chan struct{}, 1)}
	f.noteWrite() // other processes may have written before this one started
	return f
}

func (f *freshness) noteWrite() { f.count.Add(1) }

// refresh makes all earlier writes of this process visible to searches. Writes of other
// processes become visible within the refresh interval of the index.
func (c *client) refresh(ctx context.Context, op, index string) error {
	f := c.fresh[index]
	want := f.count.Load()
	if f.refreshed.Load() >= want {
		return nil
	}
	select {
	case f.sem <- struct{}{}:
		defer func() { <-f.sem }()
	case <-ctx.Done():
		return fault(op, ctx.Err())
	}
	if f.refreshed.Load() >= want {
		return nil // another caller has refreshed it
	}
	now := f.count.Load()
	if err := c.refreshNow(ctx, op, index); err != nil {
		return err
	}
	f.refreshed.Store(now)
	return nil
}

// refreshTimeout is how long a refresh may take before refreshNow checks the index. A refresh
// takes milliseconds, but on a red index Elasticsearch waits for a minute, which a request
// cannot change.
const refreshTimeout = time.Second

// refreshNow makes all writes visible to searches. After an error some copy of the index may
// not have been refreshed.
func (c *client) refreshNow(ctx context.Context, op, index string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.refreshOnce(ctx, op, index) }()
	select {
	case err := <-done:
		return err
	case <-time.After(refreshTimeout):
	}
	var refused *refusal
	if err := c.probeWrites(ctx, []string{index}); errors.As(err, &refused) && refused.shardUnavailable() {
		return fault(op, refused)
	}
	return <-done
}

func (c *client) refreshOnce(ctx context.Context, op, index string) error {
	var answer struct {
		Shards struct {
			Failed int `json:"failed"`
		} `json:"_shards"`
	}
	err := c.do(ctx, call{op: op, timeout: callTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.IndicesRefreshRequest{Index: []string{c.name(index)}}
	}}, &answer)
	if err == nil && answer.Shards.Failed > 0 {
		err = fleet.Errorf(fleet.Unavailable, "%s: %d copies of the index %s could not be refreshed: look at the health of the cluster", op, answer.Shards.Failed, c.name(index))
	}
	return err
}
