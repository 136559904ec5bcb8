// Package migrate copies all documents of one store to another. Copy works noun by noun, in
// batches, and can be interrupted and repeated: it writes only what differs. Verify reads
// both stores completely and compares them.
//
// The sequence numbers of actions and events stay the same, because agents hold those of
// actions, and readers of the stream and receivers of notifications those of events. The
// order of every list stays the same as well. What belongs to processes is not copied, as
// store.Info.Process says of leases and servers. Nor is the generation: if the source is used again, both
// have a history of their own.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Step reports progress on a noun.
type Step struct {
	Noun string
	// Done is how many documents have been processed, and Total how many there are, or 0 if
	// that is unknown. Concurrent writes make both inexact.
	Done, Total int
	// Ended reports whether the noun is finished.
	Ended bool
}

// Copied counts the documents of a noun that Copy has processed.
type Copied struct {
	Noun    string `json:"noun"`
	Read    int    `json:"read"`
	Written int    `json:"written"` // missing or different in the destination
	Removed int    `json:"removed"`
}

const (
	// loadTries bounds the attempts to load one batch while the store is unavailable. With
	// retryPause, which doubles, they take half a minute. The command can be repeated.
	loadTries  = 6
	retryPause = time.Second
	// sequenceTries bounds how often an index is filled from its beginning because sequence
	// numbers are out of step, which happens when a primary shard fails meanwhile.
	sequenceTries = 3
)

// mover is the state of Copy for one noun.
type mover struct {
	from   store.Store
	to     store.Loader
	report func(Step)
	noun   string
	out    Copied
	total  int // 0 if unknown
}

// Copy makes the documents of to equal to those of from. It calls report after each batch;
// report must return quickly. A document that is written to from meanwhile may be missed;
// the next Copy finds it.
func Copy(ctx context.Context, from store.Store, to store.Loader, report func(Step)) ([]Copied, error) {
	var out []Copied
	for _, n := range nouns {
		m := &mover{from: from, to: to, report: report, noun: n.name, out: Copied{Noun: n.name}}
		var err error
		if m.total, err = n.total(ctx, from); err != nil {
			return out, fmt.Errorf("%s: %w", n.name, err)
		}
		if err := n.copy(ctx, m); err != nil {
			return out, fmt.Errorf("%s: %w", n.name, err)
		}
		m.report(Step{Noun: n.name, Done: m.out.Read, Total: m.out.Read, Ended: true})
		out = append(out, m.out)
	}
	return out, nil
}

// count adds the counts of a batch and reports progress.
func (m *mover) count(read, written, removed int) {
	m.out.Read += read
	m.out.Written += written
	m.out.Removed += removed
	total := m.total
	if m.out.Read > total {
		total = 0 // unknown, or grown meanwhile
	}
	m.report(Step{Noun: m.noun, Done: m.out.Read, Total: total})
}

// retry calls f until it succeeds or fails with an error other than Unavailable, up to
// loadTries times.
func retry(ctx context.Context, f func() error) error {
	pause := retryPause
	for try := 1; ; try++ {
		err := f()
		if err == nil || fleet.KindOf(err) != fleet.Unavailable || try == loadTries || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// load loads a batch of n documents and counts them.
func (m *mover) load(ctx context.Context, n int, f func() (written int, err error)) error {
	var written int
	err := retry(ctx, func() (err error) {
		written, err = f()
		return err
	})
	if err == nil {
		m.count(n, written, 0)
	}
	return err
}

// inBatches passes the values of each to load in batches of size. It reads the next batch
// while load runs.
func inBatches[T any](ctx context.Context, size int, each func(ctx context.Context, f func(T)) error, load func(ctx context.Context, list []T) error) error {
	all, ctx := errgroup.WithContext(ctx)
	full := make(chan []T)
	all.Go(func() error {
		for list := range full {
			if err := load(ctx, list); err != nil {
				return err
			}
		}
		return nil
	})
	all.Go(func() error {
		defer close(full)
		list := make([]T, 0, size)
		send := func() {
			select {
			case full <- list:
			case <-ctx.Done():
			}
			list = make([]T, 0, size)
		}
		err := each(ctx, func(v T) {
			if list = append(list, v); len(list) == size {
				send()
			}
		})
		if err == nil && len(list) > 0 {
			send()
		}
		if err == nil {
			err = ctx.Err() // the last batch may not have been sent
		}
		return err
	})
	return all.Wait()
}

// numbered copies documents with sequence numbers, from the beginning if these are out of
// step.
func (m *mover) numbered(ctx context.Context, load func(context.Context) error, drop func(context.Context) error) error {
	for try := 1; ; try++ {
		m.out.Read, m.out.Written = 0, 0
		err := load(ctx)
		if err == nil || !errors.Is(err, store.ErrOutOfStep) {
			return err
		}
		if try == sequenceTries {
			return fmt.Errorf("%w (%d times): check whether the primary shard of the index moves from node to node, and start over with --restart", err, try)
		}
		if err := drop(ctx); err != nil {
			return err
		}
	}
}

// idSetting is the name of the setting that identifies an installation.
const idSetting = "store-id"

// ID returns the id of a store, which it keeps when it is moved. The first call creates it.
func ID(ctx context.Context, s store.Store) (string, error) {
	v, err := s.Settings().GetOrPut(ctx, idSetting, []byte(fleet.NewID()))
	return string(v), err
}
