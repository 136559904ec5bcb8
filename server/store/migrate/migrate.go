// Package migrate moves what one store keeps into another: noun by noun, in
// batches, so that it can be cut off anywhere and called again. Copy makes the
// other store be like the first, and writes what differs alone; Verify reads both
// whole and compares them.
//
// Numbers of actions and events stay the same: agents hold those of actions, and
// readers of the stream and receivers of notifications those of events. So does
// the order of every list. Leases are left behind: they are of processes.
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

// Step says how far the work on a noun is.
type Step struct {
	Noun string
	// Done documents have been looked at, of Total, which is 0 where it is not known.
	// What comes and goes meanwhile makes neither exact.
	Done, Total int
	// Ended says that this noun is done.
	Ended bool
}

// Copied is what became of a noun.
type Copied struct {
	Noun    string `json:"noun"`
	Read    int    `json:"read"`
	Written int    `json:"written"` // those that were not there, or not the same
	Removed int    `json:"removed"`
}

const (
	// loadTries bounds how often one batch is loaded when the store does not answer:
	// with tryPause, which doubles, half a minute. Whoever runs the command can do
	// so again.
	loadTries = 6
	tryPause  = time.Second
	// stepTries bounds how often an index is filled from its beginning when numbers
	// get out of step, which takes a primary that dies in the middle of it.
	stepTries = 3
)

// mover is one copy under way.
type mover struct {
	from store.Store
	to   store.Loader
	say  func(Step)
	noun string
	out  Copied
	all  int
}

// Copy makes to be like from. say is told about each batch; it must be quick. What
// is written to from meanwhile may be missed, and is found by the next Copy.
func Copy(ctx context.Context, from store.Store, to store.Loader, say func(Step)) ([]Copied, error) {
	var out []Copied
	for _, n := range nouns {
		m := &mover{from: from, to: to, say: say, noun: n.name, out: Copied{Noun: n.name}}
		var err error
		if m.all, err = n.total(ctx, from); err != nil {
			return out, fmt.Errorf("%s: %w", n.name, err)
		}
		if err := n.copy(ctx, m); err != nil {
			return out, fmt.Errorf("%s: %w", n.name, err)
		}
		m.say(Step{Noun: n.name, Done: m.out.Read, Total: m.out.Read, Ended: true})
		out = append(out, m.out)
	}
	return out, nil
}

// did notes what became of a batch.
func (m *mover) did(read, written, removed int) {
	m.out.Read += read
	m.out.Written += written
	m.out.Removed += removed
	total := m.all
	if m.out.Read > total {
		total = 0 // it was not known, or has grown
	}
	m.say(Step{Noun: m.noun, Done: m.out.Read, Total: total})
}

// again calls f until it does not fail as Unavailable, for a while.
func again(ctx context.Context, f func() error) error {
	pause := tryPause
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

// load loads a batch and notes what became of it.
func (m *mover) load(ctx context.Context, n int, f func() (written int, err error)) error {
	var written int
	err := again(ctx, func() (err error) {
		written, err = f()
		return err
	})
	if err == nil {
		m.did(n, written, 0)
	}
	return err
}

// inBatches hands what each gives to load, while the next batch is being read.
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
		hand := func() {
			select {
			case full <- list:
			case <-ctx.Done():
			}
			list = make([]T, 0, size)
		}
		err := each(ctx, func(v T) {
			if list = append(list, v); len(list) == size {
				hand()
			}
		})
		if err == nil && len(list) > 0 {
			hand()
		}
		if err == nil {
			err = ctx.Err() // then the last batch may not have been taken
		}
		return err
	})
	return all.Wait()
}

// numbered copies what has numbers, from its beginning if they are out of step.
func (m *mover) numbered(ctx context.Context, load func(context.Context) error, drop func(context.Context) error) error {
	for try := 1; ; try++ {
		m.out.Read, m.out.Written = 0, 0
		err := load(ctx)
		if err == nil || !errors.Is(err, store.ErrOutOfStep) {
			return err
		}
		if try == stepTries {
			return fmt.Errorf("%w (%d times): look whether the primary copy of the index moves from node to node, and start over with --restart", err, try)
		}
		if err := drop(ctx); err != nil {
			return err
		}
	}
}

// idSetting is the name of the setting that tells one installation from another.
const idSetting = "store-id"

// ID returns what a store is known by, also after it was moved. It is made when
// it is first asked for.
func ID(ctx context.Context, s store.Store) (string, error) {
	v, err := s.Settings().GetOrPut(ctx, idSetting, []byte(fleet.NewID()))
	return string(v), err
}
