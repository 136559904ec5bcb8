package elastic

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	opPing = "ping"
	// pingDocument is written by each look; no list shows it.
	pingDocument = "ping"
	// pingShardTimeout is how long a look waits for a primary copy. It is short, so
	// that whoever gives a look two seconds is told which index has none.
	pingShardTimeout = 500 * time.Millisecond
)

// Ping writes a document, tries to write to every index, and searches all of them:
// two requests. What is tried demands a document that does not exist, so nothing is
// written and no number used up; but it comes as far as a write does: an index with
// a block, or without a primary copy, is told.
func (s *Store) Ping(ctx context.Context) error {
	var reads, writes error
	var both errgroup.Group
	both.Go(func() error { reads = s.c.probeReads(ctx); return nil })
	both.Go(func() error {
		writes = fault(opPing, s.c.probeWrites(ctx, slices.Sorted(maps.Keys(schemas))))
		return nil
	})
	_ = both.Wait() // each keeps its own
	if writes != nil {
		return writes // says more: a red index takes neither
	}
	return reads
}

// nowhere guards what must not be done: the document it is for does not exist.
var nowhere = guard{seq: 0, term: 1}

// probeWrites says why one of the indices takes no writes. It writes to indexDocuments
// alone.
func (c *client) probeWrites(ctx context.Context, indices []string) error {
	items := make([][]byte, len(indices))
	for i, index := range indices {
		w := write{verb: remove, key: key{index, pingDocument}, guard: nowhere}
		if index == indexDocuments {
			w = write{verb: put, key: w.key, body: map[string]any{"nonce": newNonce()}}
		}
		var err error
		if items[i], err = c.encode(w); err != nil {
			return err
		}
	}
	outcomes, err := c.sendAs(ctx, bulkCall{shard: pingShardTimeout, repeatable: true}, items)
	if err != nil {
		return err
	}
	var first *refusal
	more := 0
	for _, out := range outcomes {
		switch {
		case out.refused != nil && first == nil:
			first = out.refused
		case out.refused != nil:
			more++
		}
	}
	if first == nil {
		return nil
	}
	if more > 0 {
		first.reason += fmt.Sprintf(" (and %d more of the %d indices)", more, len(indices))
	}
	return first
}

func (c *client) probeReads(ctx context.Context) error {
	var names []string
	for index := range schemas {
		names = append(names, c.name(index))
	}
	_, err := c.searchAll(ctx, opPing, names, body{"size": 0, "track_total_hits": false, "terminate_after": 1})
	return err
}
