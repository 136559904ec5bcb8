// Package backoff decides how long an agent waits before it tries its server
// again. The gateway, the ack sender and the downloader use it, so that all
// three spread their retries in the same way and listen to the same
// Retry-After.
package backoff

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	// DefaultBase: the server is usually back within seconds of a restart.
	DefaultBase = time.Second
	// DefaultCap: a fleet of 100,000 that has lost its server then knocks some
	// 3,300 times a second on average, which one server refuses with ease, and
	// a host is back at most a minute after the server.
	DefaultCap = time.Minute
	// MaxRetryAfter bounds what a server may ask for: a mistyped header must
	// not silence a fleet for days.
	MaxRetryAfter = time.Hour

	// floor keeps full jitter from answering "at once" several times in a row.
	floor = 100 * time.Millisecond
)

// Backoff counts failures in a row and says how long to wait: a random time
// between nothing and a limit that doubles ("full jitter", which spreads a
// fleet whose server came back better than any fixed share of the limit). The
// zero value is ready. It is not safe for concurrent use.
type Backoff struct {
	Base time.Duration
	Cap  time.Duration
	// Rand returns a number in [0,1); nil means math/rand.
	Rand func() float64

	failures int
}

// Next counts one failure and returns the wait before the next try.
func (b *Backoff) Next() time.Duration {
	base, limit := b.Base, b.Cap
	if base <= 0 {
		base = DefaultBase
	}
	if limit <= 0 {
		limit = DefaultCap
	}
	// 2^20 × base is far above every cap; the bound keeps the shift defined.
	ceiling := min(base<<min(b.failures, 20), limit)
	b.failures++
	return max(floor, time.Duration(b.random()*float64(ceiling)))
}

// Failures is the number of failures in a row.
func (b *Backoff) Failures() int { return b.failures }

// Reset is called after a success.
func (b *Backoff) Reset() { b.failures = 0 }

func (b *Backoff) random() float64 {
	if b.Rand != nil {
		return b.Rand()
	}
	return rand.Float64()
}

// RetryAfter reads the header of that name, in seconds or as a date, bounded by
// [MaxRetryAfter]. Zero means that there is none.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	var wait time.Duration
	if seconds, err := strconv.Atoi(text); err == nil {
		if seconds > int(MaxRetryAfter/time.Second) {
			return MaxRetryAfter
		}
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), MaxRetryAfter)
}

// Sleep waits, or returns the cause of ctx's end.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
