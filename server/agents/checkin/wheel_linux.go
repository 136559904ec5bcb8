package checkin

import (
	"math"
	"sync"
	"time"
)

const (
	// wheelTick is how late a poll may be answered after its deadline, which does not
	// matter for polls of minutes. An idle server wakes four times a second for it.
	wheelTick = 250 * time.Millisecond
	// wheelSize covers the longest usual poll, 8.5 minutes, in one revolution. A later
	// entry is skipped once in each revolution.
	wheelSize = 2048
)

// timerWheel has one timer for each connection. A runtime timer for each would cost 100
// bytes, and an operation on the runtime's heap of timers at every poll.
type timerWheel struct {
	mu    sync.Mutex
	now   int32
	lists [wheelSize]*parkedConn // by the tick modulo wheelSize
}

// timerEntry is a connection's entry in the timer wheel, whose lock guards it.
type timerEntry struct {
	next, prev *parkedConn
	tick       int32
	set        bool
}

// tick returns the first tick that is not before t.
func tick(base, t time.Time) int32 {
	n := (t.Sub(base) + wheelTick - 1) / wheelTick
	return int32(min(max(n, 0), math.MaxInt32/2)) //nolint:gosec // bounded in the same expression
}

// set makes c fire at the tick, or at the next one if that has passed. It replaces the
// tick set before.
func (w *timerWheel) set(c *parkedConn, tick int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(c)
	e := &c.timer
	e.tick, e.set = max(tick, w.now+1), true
	head := &w.lists[e.tick%wheelSize]
	if e.next = *head; e.next != nil {
		e.next.timer.prev = c
	}
	*head = c
}

func (w *timerWheel) remove(c *parkedConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(c)
}

func (w *timerWheel) unlink(c *parkedConn) {
	e := &c.timer
	if !e.set {
		return
	}
	if e.prev != nil {
		e.prev.timer.next = e.next
	} else {
		w.lists[e.tick%wheelSize] = e.next
	}
	if e.next != nil {
		e.next.timer.prev = e.prev
	}
	*e = timerEntry{}
}

// advance moves to the tick and returns the connections that fire. The caller holds no
// lock of a connection, so it must check what each of them waits for.
func (w *timerWheel) advance(to int32) (fired []*parkedConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for steps := 0; w.now < to && steps < wheelSize; steps++ {
		w.now++
		for c := w.lists[w.now%wheelSize]; c != nil; {
			next := c.timer.next
			if c.timer.tick <= to {
				w.unlink(c)
				fired = append(fired, c)
			}
			c = next
		}
	}
	w.now = max(w.now, to) // if the machine slept, every list has been read
	return fired
}
