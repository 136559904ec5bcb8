package download

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-fleet/muster/agent/backoff"
)

// burstsPerSecond allows a burst of a tenth of a second's bytes. That exceeds the rate by
// 1 % over ten seconds, and keeps the waits longer than a timer's precision.
const burstsPerSecond = 10

// limiter is a token bucket for a whole fetch, so that a link which breaks often does not
// get a new burst each time. nil means no limit.
type limiter struct{ bucket *rate.Limiter }

func newLimiter(bytesPerSecond int64) *limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	// Rates beyond 10 GiB/s are no limit; the bound keeps a 32-bit int whole.
	burst := min(max(bytesPerSecond/burstsPerSecond, 1), 1<<30)
	return &limiter{rate.NewLimiter(rate.Limit(bytesPerSecond), int(burst))}
}

// chunk returns how much to read at once, at most n: no more than the bucket holds, so
// that no wait is longer than a tenth of a second or the time of one byte.
func (l *limiter) chunk(n int) int {
	if l == nil {
		return n
	}
	return min(n, l.bucket.Burst())
}

// pay waits until the rate allows n bytes, at most a chunk.
func (l *limiter) pay(ctx context.Context, n int) error {
	if l == nil {
		return nil
	}
	now := time.Now()
	wait := l.bucket.ReserveN(now, n).DelayFrom(now)
	if wait <= 0 {
		return nil
	}
	return backoff.Sleep(ctx, wait)
}
