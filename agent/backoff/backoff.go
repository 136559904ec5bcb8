// Package backoff computes the waits between an agent's retries. The gateway, the ack
// sender and the downloader use it.
package backoff

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	// DefaultBase suits a server that is back within seconds of a restart.
	DefaultBase = time.Second
	// DefaultCap: 100,000 agents without a server then make some 3,300 requests a
	// second, which one server can refuse, and an agent is back at most a minute
	// after the server.
	DefaultCap = time.Minute
	// MaxRetryAfter bounds a server's Retry-After: a mistyped header must not
	// silence a fleet for days.
	MaxRetryAfter = time.Hour

	// floor is the shortest wait, since full jitter may return almost zero several
	// times in a row.
	floor = 100 * time.Millisecond
)

// Backoff counts failures in a row and computes the wait after each: a random time up to
// a limit that doubles ("full jitter", which spreads a fleet better than any fixed share
// of the limit). The zero value is ready to use. It is not safe for concurrent use.
type Backoff struct {
	Base time.Duration
	Cap  time.Duration
	// Half makes every wait at least half of the limit ("equal jitter").
	Half bool
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
	if b.Half {
		return ceiling/2 + time.Duration(b.random()*float64(ceiling-ceiling/2))
	}
	return max(floor, time.Duration(b.random()*float64(ceiling)))
}

// Failures returns the number of failures in a row.
func (b *Backoff) Failures() int { return b.failures }

// Reset resets the count after a success.
func (b *Backoff) Reset() { b.failures = 0 }

func (b *Backoff) random() float64 {
	if b.Rand != nil {
		return b.Rand()
	}
	return rand.Float64()
}

// RetryAfter parses the header Retry-After, in seconds or as a date, and bounds it by
// [MaxRetryAfter]. It returns zero if there is none.
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

// Sleep waits for d, or returns the cause of ctx when it ends.
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
