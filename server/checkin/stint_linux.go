package checkin

import (
	"sync/atomic"
	"time"
)

// stint is what a goroutine does with a slot's connection and has to end in time. The
// wheel looks after it, which spares each answer two calls to set a deadline and take
// it off.
type stint struct {
	with  atomic.Pointer[slot]
	count atomic.Uint32

	// The wheel's: the count that it has seen, and since when.
	seen  uint32
	since time.Time
}

func (x *stint) begin(s *slot) {
	x.count.Add(1)
	x.with.Store(s)
}

func (x *stint) end() { x.with.Store(nil) }

// overdue returns the slot if the stint has been seen to last for longer than limit,
// nil else.
func (x *stint) overdue(now time.Time, limit time.Duration) *slot {
	s, n := x.with.Load(), x.count.Load()
	switch {
	case s == nil:
	case n != x.seen:
		x.seen, x.since = n, now
	case now.Sub(x.since) > limit:
		return s
	}
	return nil
}
