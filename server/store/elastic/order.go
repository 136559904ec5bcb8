package elastic

import (
	"context"
	"sync"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/muster-fleet/muster/server/fleet"
)

// order gives the documents of an index their numbers: one order over all
// processes, in which nothing appears behind what has been seen.
//
// The index has one primary shard, and its documents are written once. The number
// of a document is the sequence number Elasticsearch gave it, plus one. A search
// may show an operation before one with a lower number; what makes an order all
// the same is the shard's global checkpoint, up to which every copy in sync has
// every operation. Only what is below it is shown, after a refresh that follows
// the look at it. What lies above could be lost with the primary, and its numbers
// be given to others.
type order struct {
	c     *client
	index string
	turn  chan struct{} // holds the one token of whoever looks

	mu sync.Mutex
	// visible is the highest number that searches have; it never falls.
	visible int64
	// looked is when the look that found visible began; wrote is the last write of
	// this process.
	looked, wrote time.Time
}

func newOrder(c *client, index string) *order {
	return &order{c: c, index: index, turn: make(chan struct{}, 1)}
}

// orderAge is how old a look may be for a reader that is told later of what is
// newer, by After: some of the intervals in which action.Feed asks that.
const orderAge = time.Second

// number of a document.
func number(seqNo int64) int64 { return seqNo + 1 }

// written tells of a write of this process that has been answered.
func (o *order) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wrote = time.Now()
}

// advance returns the highest number that may be shown now. All that was written
// before the call is up to there, but for what waits for an operation that began
// earlier.
func (o *order) advance(ctx context.Context) (int64, error) { return o.since(ctx, time.Now()) }

// recent is advance for a reader that can do with what is orderAge old, as long as
// it has what this process wrote.
func (o *order) recent(ctx context.Context) (int64, error) {
	o.mu.Lock()
	notBefore := time.Now().Add(-orderAge)
	if o.wrote.After(notBefore) {
		notBefore = o.wrote
	}
	o.mu.Unlock()
	return o.since(ctx, notBefore)
}

// since returns what a look found that began at a time or later. Readers that
// come together share one.
func (o *order) since(ctx context.Context, notBefore time.Time) (int64, error) {
	if n, ok := o.known(notBefore); ok {
		return n, nil
	}
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return 0, fault("look for what is new", ctx.Err())
	}
	if n, ok := o.known(notBefore); ok {
		return n, nil
	}
	began := time.Now()
	complete, err := o.checkpoint(ctx)
	if err != nil {
		return 0, err
	}
	o.mu.Lock()
	grown := complete > o.visible
	o.mu.Unlock()
	if grown {
		if err := o.c.refreshNow(ctx, "look for what is new", o.index); err != nil {
			return 0, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.visible, o.looked = max(o.visible, complete), began
	return o.visible, nil
}

func (o *order) known(notBefore time.Time) (int64, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.visible, !o.looked.IsZero() && !o.looked.Before(notBefore)
}

// checkpoint returns the number up to which every copy in sync has everything.
func (o *order) checkpoint(ctx context.Context) (int64, error) {
	const op = "look for what is new"
	var answer struct {
		Indices map[string]struct {
			Shards map[string][]struct {
				Seq struct {
					Checkpoint *int64 `json:"global_checkpoint"`
				} `json:"seq_no"`
			} `json:"shards"`
		} `json:"indices"`
	}
	err := o.c.do(ctx, call{op: op, timeout: callTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.IndicesStatsRequest{
			Index: []string{o.c.name(o.index)}, Metric: []string{"docs"}, Level: "shards",
			FilterPath: []string{"indices.*.shards.*.seq_no.global_checkpoint"},
		}
	}}, &answer)
	if err != nil {
		return 0, err
	}
	// Copies learn of it one after the other; the furthest is right, as none is ever
	// ahead of what is so.
	best, copies := int64(-1), 0
	for _, index := range answer.Indices {
		for _, shard := range index.Shards {
			for _, one := range shard {
				if at := one.Seq.Checkpoint; at != nil {
					best, copies = max(best, *at), copies+1
				}
			}
		}
	}
	if copies == 0 {
		return 0, fleet.Errorf(fleet.Unavailable, "no copy of the index %s answers: look at the health of the cluster", o.c.name(o.index))
	}
	return number(best), nil
}

// between is the filter of numbers above after and not above upTo.
func between(after, upTo int64) body {
	return body{"range": body{"_seq_no": body{"gte": max(after, 0), "lt": upTo}}}
}

// after returns hits with a number above after, lowest first.
func (o *order) after(ctx context.Context, op string, after int64, limit int, source any) ([]hit, error) {
	upTo, err := o.advance(ctx)
	if err != nil {
		return nil, err
	}
	var out []hit
	for len(out) < limit && after < upTo {
		n := min(limit-len(out), window)
		res, err := o.c.searchNow(ctx, op, o.index, body{
			"query": body{"bool": body{"filter": []any{between(after, upTo)}}}, "sort": []any{body{"_seq_no": "asc"}},
			"size": n, "_source": source, "seq_no_primary_term": true, "track_total_hits": false,
		})
		if err != nil {
			return nil, err
		}
		hits := res.Hits.Hits
		out = append(out, hits...)
		if len(hits) < n {
			break
		}
		after = number(hits[n-1].Seq)
	}
	return out, nil
}

// end returns the lowest or the highest number there is, 0 without documents.
func (o *order) end(ctx context.Context, direction string, upTo int64) (int64, error) {
	res, err := o.c.searchNow(ctx, "read the newest number", o.index, body{
		"query": body{"bool": body{"filter": []any{between(0, upTo)}}}, "sort": []any{body{"_seq_no": direction}},
		"size": 1, "_source": false, "seq_no_primary_term": true, "track_total_hits": false,
	})
	if err != nil || len(res.Hits.Hits) == 0 {
		return 0, err
	}
	return number(res.Hits.Hits[0].Seq), nil
}
