package elastic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	opPing = "ping"
	// pingDocument is the document that Ping writes. Lists do not show it.
	pingDocument = "ping"
	// pingShardTimeout is how long Ping waits for a primary shard. It is short, so that a
	// Ping with a deadline of two seconds reports which index has none.
	pingShardTimeout = 500 * time.Millisecond
)

// Ping makes two requests. One is a bulk request that writes a document and attempts a write
// to every other index. The attempts are guarded by a version that does not exist, so that
// they change nothing and use up no sequence number. But they fail like any write if the index
// has a block, or no primary shard. The other request searches all indices.
func (s *Store) Ping(ctx context.Context) error {
	var reads, writes error
	var both errgroup.Group
	both.Go(func() error { reads = s.c.probeReads(ctx); return nil })
	both.Go(func() error {
		writes = fault(opPing, s.c.probeWrites(ctx, slices.Sorted(maps.Keys(schemas))))
		return nil
	})
	_ = both.Wait() // the functions return nil
	if writes != nil {
		return writes // if both fail, because an index is red, this error says more
	}
	return reads
}

// Probe opens the store as it is, and pings it. It makes no index: a store that has not all of them,
// since no server has started yet, is only asked which it has.
func Probe(ctx context.Context, opts Options) (err error) {
	opts.AsIs, opts.Loading = true, true
	s, err := Open(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if versions, err := s.c.versions(ctx); err != nil || len(versions) < len(schemas) {
		return err
	}
	if err := s.refuseUnfinished(ctx); err != nil {
		return err
	}
	return s.Ping(ctx)
}

// impossible is the guard of a write that must fail: its document does not exist.
var impossible = guard{seq: 0, term: 1}

// probeWrites returns why one of the indices refuses writes. It writes only to
// indexDocuments.
func (c *client) probeWrites(ctx context.Context, indices []string) error {
	items := make([][]byte, len(indices))
	for i, index := range indices {
		w := write{verb: remove, key: key{index, pingDocument}, guard: impossible}
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
