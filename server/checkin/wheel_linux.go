package checkin

import (
	"math"
	"sync"
	"time"
)

const (
	// wheelTick is how late a poll may be answered after its deadline: nobody notices
	// it in a poll of minutes. An idle machine wakes four times a second for it.
	wheelTick = 250 * time.Millisecond
	// wheelSize covers the longest usual poll, 8.5 minutes, in one turn: a later entry
	// is passed over once a turn.
	wheelSize = 2048
)

// timerWheel is one clock for the times that all connections wait for, one each. A
// runtime timer each would cost 100 bytes, and an operation on the runtime's heap of
// timers at every poll.
type timerWheel struct {
	mu    sync.Mutex
	now   int32
	lists [wheelSize]*parkedConn // by the tick modulo wheelSize
}

// timerEntry is a connection's place in the timer wheel, which guards it.
type timerEntry struct {
	next, prev *parkedConn
	tick       int32
	set        bool
}

// tick is the first tick that is not before t.
func tick(base, t time.Time) int32 {
	n := (t.Sub(base) + wheelTick - 1) / wheelTick
	return int32(min(max(n, 0), math.MaxInt32/2)) //nolint:gosec // it has just been bounded
}

// set makes c fire at the tick, or at the next one if that has passed, in place of the
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

// advance goes on to the tick and returns what fires. The caller holds no lock, so
// that each connection may have changed since: it checks what that waits for.
func (w *timerWheel) advance(to int32) (fired []*parkedConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for turn := 0; w.now < to && turn < wheelSize; turn++ {
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
	w.now = max(w.now, to) // after a sleep of the machine every list has been read
	return fired
}
