package checkin

import (
	"math"
	"sync"
	"time"
)

const (
	// wheelTick is how late a poll may be answered after its deadline: what nobody
	// notices in a poll of minutes. A machine with nothing to do wakes four times a
	// second for it.
	wheelTick = 250 * time.Millisecond
	// wheelSize covers the longest usual poll, 8.5 minutes, in one turn: what is later
	// is passed over once a turn.
	wheelSize = 2048
)

// wheel is one clock for what all connections wait for, each for one time. A
// runtime timer each would cost 100 bytes and the runtime's heap of timers at every
// poll.
type wheel struct {
	mu   sync.Mutex
	now  int32
	from [wheelSize]*slot // lists, by the tick modulo wheelSize
}

// hand is a slot's place in the wheel; the wheel's.
type hand struct {
	next, prev *slot
	tick       int32
	set        bool
}

// tick is the first tick that is not before t.
func tick(base, t time.Time) int32 {
	n := (t.Sub(base) + wheelTick - 1) / wheelTick
	return int32(min(max(n, 0), math.MaxInt32/2)) //nolint:gosec // it has just been bounded
}

// set makes the wheel fire s at the tick, or with the next one if that has passed,
// instead of when it was to fire so far.
func (w *wheel) set(s *slot, tick int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(s)
	h := &s.hand
	h.tick, h.set = max(tick, w.now+1), true
	head := &w.from[h.tick%wheelSize]
	if h.next = *head; h.next != nil {
		h.next.hand.prev = s
	}
	*head = s
}

func (w *wheel) remove(s *slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(s)
}

func (w *wheel) unlink(s *slot) {
	h := &s.hand
	if !h.set {
		return
	}
	if h.prev != nil {
		h.prev.hand.next = h.next
	} else {
		w.from[h.tick%wheelSize] = h.next
	}
	if h.next != nil {
		h.next.hand.prev = h.prev
	}
	*h = hand{}
}

// advance goes on to the tick and returns what fires, appended to fired. The caller
// has no lock then, so each may have changed: it looks what the slot waits for.
func (w *wheel) advance(to int32, fired []*slot) []*slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	for turn := 0; w.now < to && turn < wheelSize; turn++ {
		w.now++
		for s := w.from[w.now%wheelSize]; s != nil; {
			next := s.hand.next
			if s.hand.tick <= to {
				w.unlink(s)
				fired = append(fired, s)
			}
			s = next
		}
	}
	w.now = max(w.now, to) // a machine that slept has seen every list
	return fired
}
