package elastic

import (
	"context"
	"sync"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/muster-fleet/muster/server/fleet"
)

// sequence reads the documents of an index in one sequence across all processes, in which no
// document appears before one that has been read already.
//
// The index has one primary shard, and each document is written once. The number of a
// document (its Seq) is the sequence number that Elasticsearch assigned, plus one. A search
// may show an operation before one with a lower number. But every in-sync copy of the shard
// has all operations up to the global checkpoint. So sequence reads the checkpoint, refreshes,
// and then shows only documents up to it. Operations above it could be lost with the primary,
// and their numbers be assigned again.
type sequence struct {
	c     *client
	index string
	sem   chan struct{} // serializes checks of the checkpoint

	mu sync.Mutex
	// visible is the highest number that readers may see. It never decreases.
	visible int64
	// checked is the start of the check that found visible. lastWrite is the end of the last
	// write of this process.
	checked, lastWrite time.Time
}

func newSequence(c *client, index string) *sequence {
	return &sequence{c: c, index: index, sem: make(chan struct{}, 1)}
}

// sequenceAge is how old a check may be for a reader that learns of newer documents from After:
// a few of the intervals at which action.Feed calls it.
const sequenceAge = time.Second

// number returns the number of a document.
func number(seqNo int64) int64 { return seqNo + 1 }

// noteWrite records that a write of this process has returned.
func (o *sequence) noteWrite() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastWrite = time.Now()
}

// advance returns the highest number that readers may see now. It includes all writes that
// returned before the call, except those that are above an unfinished operation.
func (o *sequence) advance(ctx context.Context) (int64, error) { return o.since(ctx, time.Now()) }

// recent is advance for a reader that accepts a result that is sequenceAge old, but needs the
// writes of this process.
func (o *sequence) recent(ctx context.Context) (int64, error) {
	o.mu.Lock()
	notBefore := time.Now().Add(-sequenceAge)
	if o.lastWrite.After(notBefore) {
		notBefore = o.lastWrite
	}
	o.mu.Unlock()
	return o.since(ctx, notBefore)
}

// since returns the result of a check that began at notBefore or later. Concurrent readers
// share one check.
func (o *sequence) since(ctx context.Context, notBefore time.Time) (int64, error) {
	if n, ok := o.cached(notBefore); ok {
		return n, nil
	}
	select {
	case o.sem <- struct{}{}:
		defer func() { <-o.sem }()
	case <-ctx.Done():
		return 0, fault("check for new documents", ctx.Err())
	}
	if n, ok := o.cached(notBefore); ok {
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
		if err := o.c.refreshNow(ctx, "check for new documents", o.index); err != nil {
			return 0, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.visible, o.checked = max(o.visible, complete), began
	return o.visible, nil
}

func (o *sequence) cached(notBefore time.Time) (int64, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.visible, !o.checked.IsZero() && !o.checked.Before(notBefore)
}

// checkpoint returns the number of the global checkpoint.
func (o *sequence) checkpoint(ctx context.Context) (int64, error) {
	const op = "check for new documents"
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
	// Each copy learns of the global checkpoint at another time. The highest is correct,
	// because the checkpoint of a copy never exceeds the true value.
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

// between returns a filter for numbers above after, up to upTo.
func between(after, upTo int64) body {
	return body{"range": body{"_seq_no": body{"gte": max(after, 0), "lt": upTo}}}
}

// after returns hits with a number above after, lowest first.
func (o *sequence) after(ctx context.Context, op string, after int64, limit int, source any) ([]hit, error) {
	upTo, err := o.advance(ctx)
	if err != nil {
		return nil, err
	}
	var out []hit
	for len(out) < limit && after < upTo {
		n := min(limit-len(out), maxResultWindow)
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

// end returns the lowest ("asc") or the highest ("desc") number up to upTo, or 0 if there are
// no documents.
func (o *sequence) end(ctx context.Context, direction string, upTo int64) (int64, error) {
	res, err := o.c.searchNow(ctx, "read the newest number", o.index, body{
		"query": body{"bool": body{"filter": []any{between(0, upTo)}}}, "sort": []any{body{"_seq_no": direction}},
		"size": 1, "_source": false, "seq_no_primary_term": true, "track_total_hits": false,
	})
	if err != nil || len(res.Hits.Hits) == 0 {
		return 0, err
	}
	return number(res.Hits.Hits[0].Seq), nil
}
