package limit

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	// parkedPercent is GOGC of a parked fleet: it is live memory, and twice that much is
	// what the usual 100 would let the heap grow to. At 50, where everything else is as
	// it is here, check-ins cost a sixth more of the processor's time than at 75.
	parkedPercent = 75
	// busyPercent is GOGC while a fleet is given something. A collection goes through
	// all that the fleet has, and at parkedPercent there are seven while 18,000 are given
	// an action and acknowledge it, at this one three. Beyond it little is left to
	// save, and the pages have to be made first.
	busyPercent = 200
	// busyFor is longer than a fleet takes to acknowledge what it was given, and to
	// come back.
	busyFor = 10 * time.Second
)

// Heap is how far this process's heap grows. A nil Heap grows as far as the
// environment says.
type Heap struct {
	mu      sync.Mutex
	percent int
	calm    *time.Timer
}

func newHeap() *Heap {
	h := &Heap{}
	h.calm = time.AfterFunc(busyFor, func() { h.set(parkedPercent) })
	h.set(parkedPercent)
	return h
}

// Busy lets the heap grow for a while: many agents are to be given something, and
// processor time is what they wait for.
func (h *Heap) Busy() {
	if h == nil {
		return
	}
	h.calm.Reset(busyFor)
	h.set(busyPercent)
}

// set changes the percentage. A smaller one begins a collection with the next
// allocation, after which the runtime gives the memory back bit by bit.
func (h *Heap) set(percent int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.percent != percent { // it stops everything for a moment
		h.percent = percent
		debug.SetGCPercent(percent)
	}
}
