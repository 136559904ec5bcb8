package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// testExclusive tests Store.Exclusively by what it is for: a check of a list, and the write that
// depends on it.
func testExclusive(t *testing.T, cfg Config) {
	ctx := t.Context()

	t.Run("of concurrent calls that check a list, one writes", func(t *testing.T) {
		both := cfg.openTwice(t)
		const callers = 12
		var all sync.WaitGroup
		errs := make([]error, callers)
		for i := range callers {
			all.Go(func() {
				s := both[i%2]
				errs[i] = s.Exclusively(ctx, "policies", func(ctx context.Context) error {
					list, _, err := s.Policies().List(ctx, 0, 0)
					if err != nil {
						return err
					}
					for _, p := range list {
						if p.Name == "Edge" {
							return fleet.Errorf(fleet.Conflict, "%s has the name", p.ID)
						}
					}
					return s.Policies().Create(ctx, fleet.Policy{ID: fmt.Sprint(i), Name: "Edge"})
				})
			})
		}
		all.Wait()
		written := 0
		for _, err := range errs {
			if err == nil {
				written++
			} else if fleet.KindOf(err) != fleet.Conflict {
				t.Errorf("a caller got %v", err)
			}
		}
		if list, _, err := both[0].Policies().List(ctx, 0, 0); err != nil || written != 1 || len(list) != 1 {
			t.Errorf("%d callers have written, and %d policies have the name: %v", written, len(list), err)
		}
	})

	t.Run("calls for different things do not wait for each other", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Exclusively(ctx, "a", func(ctx context.Context) error {
			return s.Exclusively(ctx, "b", func(context.Context) error { return nil })
		}))
	})

	t.Run("a failed call and a panic leave nothing locked", func(t *testing.T) {
		s := cfg.open(t)
		boom := errors.New("boom")
		if err := s.Exclusively(ctx, "a", func(context.Context) error { return boom }); !errors.Is(err, boom) {
			t.Errorf("the error is %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = s.Exclusively(ctx, "a", func(context.Context) error { panic(boom) })
		}()
		must(t, s.Exclusively(ctx, "a", func(context.Context) error { return nil }))
	})

	t.Run("a caller that stops waiting changes nothing", func(t *testing.T) {
		both := cfg.openTwice(t)
		holds, release := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			err := both[0].Exclusively(ctx, "a", func(context.Context) error { close(holds); <-release; return nil })
			if err != nil {
				t.Error(err)
			}
		})
		<-holds
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		called := false
		err := both[1].Exclusively(short, "a", func(context.Context) error { called = true; return nil })
		wantKind(t, err, fleet.Unavailable)
		if called {
			t.Error("it was called")
		}
		close(release)
		all.Wait()
	})
}
