package backoff

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestWaitsStayBelowADoublingLimit(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		share := rapid.Float64Range(0, 0.999999)
		b := Backoff{Rand: func() float64 { return share.Draw(r, "share") }}
		ceiling := DefaultBase
		for range rapid.IntRange(1, 100).Draw(r, "failures") {
			if wait := b.Next(); wait < floor || wait > ceiling {
				r.Fatalf("failure %d: wait %s, limit %s", b.Failures(), wait, ceiling)
			}
			ceiling = min(2*ceiling, DefaultCap)
		}
	})
}

func TestResetRestartsAtTheBase(t *testing.T) {
	b := Backoff{Base: time.Second, Cap: time.Hour, Rand: func() float64 { return 0.5 }}
	b.Next()
	if got := b.Next(); got != time.Second {
		t.Errorf("second wait %s", got)
	}
	b.Reset()
	if got := b.Next(); got != 500*time.Millisecond {
		t.Errorf("after a success %s", got)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "-5": 0, "soon": 0,
		"7": 7 * time.Second, "999999999999": MaxRetryAfter, "7200": MaxRetryAfter,
		"Fri, 01 May 2026 12:00:30 GMT": 30 * time.Second,
		"Fri, 01 May 2026 11:00:00 GMT": 0,
		"Sat, 02 May 2026 12:00:00 GMT": MaxRetryAfter,
	} {
		h := http.Header{}
		if text != "" {
			h.Set("Retry-After", text)
		}
		if got := RetryAfter(h, now); got != want {
			t.Errorf("Retry-After %q is %s, want %s", text, got, want)
		}
	}
}

func TestSleepEndsWithTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		begun := time.Now()
		if err := Sleep(ctx, time.Hour); !errors.Is(err, cause) || time.Since(begun) != time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
		if err := Sleep(context.Background(), time.Hour); err != nil {
			t.Error(err)
		}
	})
}
