package store

import (
	"context"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// ExclusiveTime bounds one call of Exclusively, waiting included: it reads a list and
	// writes a few documents, which takes milliseconds, and a slow Elasticsearch some seconds.
	ExclusiveTime = 15 * time.Second
	// ExclusiveTTL is how long the lock of a process that died is respected. It is more than
	// twice ExclusiveTime, so that no write of its owner is under way any more.
	ExclusiveTTL = 40 * time.Second
)

// Exclusive runs functions of one process one after the other, by name. The zero value is ready.
type Exclusive struct {
	mu    sync.Mutex
	locks map[string]chan struct{}
}

// Do calls f when no other call of the same name is in progress. The context of f ends after
// ExclusiveTime, as that of the wait for other calls does.
func (e *Exclusive) Do(ctx context.Context, name string, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, ExclusiveTime)
	defer cancel()
	lock := e.lock(name)
	select {
	case lock <- struct{}{}:
		defer func() { <-lock }()
	case <-bounded.Done():
		return busy(ctx, name)
	}
	err := f(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil && fleet.KindOf(err) == fleet.Unavailable {
		return busy(ctx, name)
	}
	return err
}

func busy(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return &fleet.Error{Kind: fleet.Unavailable, Message: "the caller stopped waiting for the store", Err: err}
	}
	return fleet.Errorf(fleet.Unavailable, "others are changing the %s, and %s were not enough to wait for them: try again", name, ExclusiveTime)
}

// lock returns the lock of a name. There are few names, all of them in the code.
func (e *Exclusive) lock(name string) chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.locks == nil {
		e.locks = map[string]chan struct{}{}
	}
	if e.locks[name] == nil {
		e.locks[name] = make(chan struct{}, 1)
	}
	return e.locks[name]
}

// Exclusively is Store.Exclusively for a function that returns a value.
func Exclusively[T any](ctx context.Context, s Store, what string, f func(context.Context) (T, error)) (v T, err error) {
	err = s.Exclusively(ctx, what, func(ctx context.Context) (err error) {
		v, err = f(ctx)
		return err
	})
	return v, err
}
