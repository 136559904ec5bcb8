package download

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-fleet/muster/agent/backoff"
)

// burstsPerSecond: a tenth of a second's bytes may come at once. That is 1 % too
// much in ten seconds, and keeps the waits long against a timer's precision.
const burstsPerSecond = 10

// limiter is a token bucket over a whole fetch: a link that breaks often must not
// earn a fresh burst each time. nil means no limit.
type limiter struct{ bucket *rate.Limiter }

func newLimiter(bytesPerSecond int64) *limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	// Rates beyond 10 GiB/s are no limit; the bound keeps a 32-bit int whole.
	burst := min(max(bytesPerSecond/burstsPerSecond, 1), 1<<30)
	return &limiter{rate.NewLimiter(rate.Limit(bytesPerSecond), int(burst))}
}

// chunk is how much to read at once, up to n: no more than the bucket holds, so
// that no wait is longer than a tenth of a second, or one byte's time.
func (l *limiter) chunk(n int) int {
	if l == nil {
		return n
	}
	return min(n, l.bucket.Burst())
}

// pay waits until n bytes, at most a chunk, were due.
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
