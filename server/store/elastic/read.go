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
	// maxGet bounds the documents one request asks for by id.
	maxGet = 1_000
	// window is how far from and size reach: Elasticsearch's own default. What lies
	// beyond is reached by walking.
	window = 10_000
	// skipPage is how many hits a walk passes over with one request; they come
	// without their documents.
	skipPage = window
	// smallPage is up to where a walk is one search. Longer ones read it in vain, which
	// is a tenth of a page of theirs.
	smallPage = 1_000
	// pitAlive is how long Elasticsearch keeps a point in time after each page of a
	// walk. Whoever takes longer for a page has died.
	pitAlive = "2m"
)

// body of a search.
type body map[string]any

// found is a document that was asked for by id.
type found struct {
	there   bool
	guard   guard
	source  json.RawMessage
	refused *refusal // why it cannot be read
}

// lookup asks for a document by id. It is written as _mget has it.
type lookup struct {
	Index string `json:"_index"`
	ID    string `json:"_id"`
	// Fields are those of the source that are wanted; none: all.
	Fields []string `json:"_source,omitempty"`
}

// gets returns the documents of the keys, each at the index of its key, as they
// are at this moment. fields are those of the source that are wanted, none: all.
func (c *client) gets(ctx context.Context, op string, keys []key, fields ...string) ([]found, error) {
	out := make([]found, len(keys))
	places := make([]int, 0, len(keys))
	for i, k := range keys {
		if k.possible() {
			places = append(places, i)
		}
	}
	for part := range slices.Chunk(places, maxGet) {
		asked := make([]lookup, len(part))
		for n, i := range part {
			asked[n] = lookup{c.name(keys[i].index), keys[i].id, fields}
		}
		get := c.getSome
		if len(asked) <= gatherLookups {
			get = c.reads.do
		}
		got, err := get(ctx, asked)
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

// getSome asks for documents with one request.
func (c *client) getSome(ctx context.Context, asked []lookup) ([]found, error) {
	encoded, err := json.Marshal(body{"docs": asked})
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
	err = c.try(ctx, call{timeout: timeoutFor(len(asked)), repeatable: true, request: func() esapi.Request {
		return esapi.MgetRequest{Body: bytes.NewReader(encoded)}
	}}, &answer)
	if err != nil {
		return nil, err
	}
	if len(answer.Docs) != len(asked) {
		return nil, fmt.Errorf("it answered for %d of %d documents", len(answer.Docs), len(asked))
	}
	out := make([]found, len(asked))
	for i, d := range answer.Docs {
		out[i] = found{there: d.Found, guard: guard{d.Seq, d.Term}, source: d.Source}
		if d.Error != nil {
			out[i].refused = d.Error.refusal(statusOf(d.Error.Type))
		}
	}
	return out, nil
}

// statusOf is the status of an error within an answer, which does not have one.
func statusOf(kind string) int {
	if kind == "index_not_found_exception" {
		return 404
	}
	return 503 // a shard that cannot be read
}

// get is gets for one.
func (c *client) get(ctx context.Context, op string, k key, fields ...string) (found, error) {
	out, err := c.gets(ctx, op, []key{k}, fields...)
	if err != nil {
		return found{}, err
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

// text is the value of a field without its document, empty where there is none.
func (h hit) text(field string) string {
	var s string
	if v := h.Fields[field]; len(v) > 0 {
		_ = json.Unmarshal(v[0], &s) // of another type: none
	}
	return s
}

// result of a search.
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

// search searches an index that has been refreshed since this process last wrote
// to it.
func (c *client) search(ctx context.Context, op, index string, b body) (result, error) {
	if err := c.refresh(ctx, op, index); err != nil {
		return result{}, err
	}
	return c.searchNow(ctx, op, index, b)
}

// searchNow searches an index as it was last refreshed. Without an index the body
// has a point in time.
func (c *client) searchNow(ctx context.Context, op, index string, b body) (result, error) {
	if index == "" {
		return c.searchAll(ctx, op, nil, b)
	}
	return c.searchAll(ctx, op, []string{c.name(index)}, b)
}

// searchAll is searchNow for several indices, by their whole names.
func (c *client) searchAll(ctx context.Context, op string, names []string, b body) (result, error) {
	whole := false             // a list without those of a shard that fails would look complete
	hits, _ := b["size"].(int) // without hits it counts: from columns, quickly
	var out result
	err := c.ask(ctx, op, timeoutFor(hits), b, &out, func(r *bytes.Reader) esapi.Request {
		req := esapi.SearchRequest{Index: names, Body: r}
		if names != nil {
			req.AllowPartialSearchResults = &whole
		}
		return req
	})
	return out, err
}

// ask sends a request that changes nothing.
func (c *client) ask(ctx context.Context, op string, timeout time.Duration, b body, out any, request func(*bytes.Reader) esapi.Request) error {
	encoded, err := json.Marshal(b)
	if err != nil {
		return fleet.Errorf(fleet.Internal, "%s: the request cannot be encoded: %w", op, err)
	}
	return c.do(ctx, call{op: op, timeout: timeout, repeatable: true, request: func() esapi.Request {
		return request(bytes.NewReader(encoded))
	}}, out)
}

// walk calls f for every hit of a search, as they all were at one moment. Without
// a sort they come in no order.
func (c *client) walk(ctx context.Context, op, index string, b body, page int, f func(hit) error) error {
	each := func(hits []hit) error {
		for _, h := range hits {
			if err := f(h); err != nil {
				return err
			}
		}
		return nil
	}
	// What fits into a small page needs no point in time, which is two requests more.
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
	return c.atOneMoment(ctx, op, index, b, func(next func(body) ([]hit, error)) error {
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

// atOneMoment gives f a way to read a search page by page. Each page goes on
// behind the last; what next is given stands in for what the search has.
func (c *client) atOneMoment(ctx context.Context, op, index string, b body, f func(next func(body) ([]hit, error)) error) error {
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
		// Best effort, and also for a caller that has gone: it would be kept, and with
		// it old segments, until pitAlive is over.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_ = c.ask(ctx, op, callTimeout, body{"id": pit}, nil, func(r *bytes.Reader) esapi.Request { return esapi.ClosePointInTimeRequest{Body: r} })
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

// all is a limit that is none.
const all = -1

// page returns a page of a sorted search, and how many hits there are in all.
// Documents come together as many as most at a time.
func (c *client) page(ctx context.Context, op, index string, b body, offset, limit, most int) ([]hit, int, error) {
	offset = max(offset, 0)
	first := body{"track_total_hits": true, "size": 0}
	simple := limit != all && limit <= most && offset+limit <= window
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
	err = c.atOneMoment(ctx, op, index, b, func(next func(body) ([]hit, error)) error {
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

// freshness is what this process knows of an index: whether it has written to it
// since it last had it refreshed.
type freshness struct {
	turn      chan struct{} // holds the one token of whoever refreshes
	count     atomic.Int64  // grows with each write
	refreshed atomic.Int64  // what count was before the last refresh
}

func newFreshness() *freshness {
	f := &freshness{turn: make(chan struct{}, 1)}
	// What others wrote before this process was there.
	f.wrote()
	return f
}

func (f *freshness) wrote() { f.count.Add(1) }

// refresh makes a search see everything that calls of this process have written
// before. What other processes wrote a moment ago may be seen later: within the
// refresh interval of the index.
func (c *client) refresh(ctx context.Context, op, index string) error {
	f := c.fresh[index]
	want := f.count.Load()
	if f.refreshed.Load() >= want {
		return nil
	}
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return fault(op, ctx.Err())
	}
	if f.refreshed.Load() >= want {
		return nil // by whoever had the turn before
	}
	now := f.count.Load()
	if err := c.refreshNow(ctx, op, index); err != nil {
		return err
	}
	f.refreshed.Store(now)
	return nil
}

// refreshPatience is how long a refresh may take before the index is looked at: it
// takes milliseconds, but of a red index Elasticsearch waits a minute, whatever the
// caller says.
const refreshPatience = time.Second

// refreshNow makes searches see all that has been written. An error says that
// some copy of the index may not have been refreshed.
func (c *client) refreshNow(ctx context.Context, op, index string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.refreshOnce(ctx, op, index) }()
	select {
	case err := <-done:
		return err
	case <-time.After(refreshPatience):
	}
	var refused *refusal
	if err := c.probeWrites(ctx, []string{index}); errors.As(err, &refused) && refused.lost() {
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
