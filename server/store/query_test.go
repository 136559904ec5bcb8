package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func TestSlowQueryFailsForItsCallerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		slow := func(ctx context.Context) error {
			<-ctx.Done()
			return fleet.Errorf(fleet.Unavailable, "the caller stopped waiting for the store: %w", ctx.Err())
		}
		// Neither kind nor cause is one from which the monitor of the store concludes that it is away.
		err := store.InQueryTime(t.Context(), slow)
		if fleet.KindOf(err) != fleet.TooMany || errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != store.QueryTimeout {
			t.Errorf("after %s the error is %v", time.Since(begun), err)
		}
		// The caller's own end is no fault of the query.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := store.InQueryTime(ctx, slow); fleet.KindOf(err) != fleet.Unavailable {
			t.Errorf("a caller that has left gets %v", err)
		}
		broken := fleet.Errorf(fleet.Unavailable, "the disk is full")
		if err := store.InQueryTime(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("another error becomes %v", err)
		}
	})
}
