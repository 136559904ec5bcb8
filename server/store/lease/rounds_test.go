package lease_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/store/lease"
)

func TestRoundsComeInIntervalsAndWhenTheyAreWoken(t *testing.T) {
	for _, c := range []struct {
		atOnce bool
		want   []time.Duration
	}{
		{false, []time.Duration{10 * time.Second, 13 * time.Second, 20 * time.Second, 30 * time.Second}},
		{true, []time.Duration{0, 10 * time.Second, 13 * time.Second, 20 * time.Second, 30 * time.Second}},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, log := time.Now(), &bytes.Buffer{}
			leases, wake := &memory{}, make(chan struct{}, 1)
			h := &lease.Owner{Leases: leases, Name: "a"}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var got []time.Duration
			go func() {
				defer cancel()
				lease.Rounds{Work: "repairs", Lease: h, Interval: 10 * time.Second, Wake: wake, AtOnce: c.atOnce, Log: slog.New(slog.NewTextHandler(log, nil))}.Run(ctx, func(ctx context.Context) error {
					if _, err := h.Take(ctx, thing); err != nil {
						return err
					}
					if got = append(got, time.Since(began)); len(got) == len(c.want) {
						cancel()
					}
					return errors.New("not all of it")
				})
			}()
			time.Sleep(13 * time.Second)
			wake <- struct{}{}
			time.Sleep(time.Minute)
			synctest.Wait()
			if !slices.Equal(got, c.want) {
				t.Errorf("rounds at %v, want %v", got, c.want)
			}
			if l, err := leases.Get(t.Context(), thing); err != nil || l.Owner != "" {
				t.Errorf("at the end the lease is %+v, %v: want it released", l, err)
			}
			if n := strings.Count(log.String(), "work=repairs"); n != len(c.want)-1 { // the last was ended
				t.Errorf("%d rounds that failed are logged:\n%s", n, log)
			}
		})
	}
}
