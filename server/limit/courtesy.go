package limit

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// VisitLimit is how long bulk work minds one request of the admin API. Nearly all
	// are over in a tenth of it; an order for a whole fleet, a stream of events or a
	// download is bulk work itself from then on.
	VisitLimit = 250 * time.Millisecond
	// AsideTime and openTime take turns while somebody is inside: so bulk work goes on
	// with a quarter of its speed under an operator's program that asks without end.
	// A request is through in one AsideTime, once what was under way has run dry.
	AsideTime = 15 * time.Millisecond
	openTime  = 5 * time.Millisecond
	// visitGap is how soon the next visit is taken for a part of the same: who asks
	// again at once gets no AsideTime of its own each time.
	visitGap = 5 * (AsideTime + openTime)
	// asideLook is how often who has stepped aside looks whether it can go on.
	asideLook = time.Millisecond
)

// Courtesy lets bulk work step aside while somebody waits for the admin API. A
// request there needs the processor ten times for a moment, and each time it stands
// in line behind all that can run: with a fleet at work these are hundreds of
// goroutines. So who makes that line long asks before each step. With nobody inside
// that is one atomic load. The zero value is ready, nil is nobody's.
type Courtesy struct {
	inside atomic.Int64 // visits

	mu    sync.Mutex
	began time.Time // the first AsideTime of visits without a gap
	last  time.Time // the end of the last visit
}

// Visit is one request of the admin API.
type Visit struct {
	of    *Courtesy
	over  atomic.Bool
	limit *time.Timer
}

// Enter begins a visit, which ends with Leave, or after VisitLimit.
func (c *Courtesy) Enter() *Visit {
	v := &Visit{of: c}
	if c == nil {
		return v
	}
	c.mu.Lock()
	if now := time.Now(); c.inside.Add(1) == 1 && now.Sub(c.last) > visitGap {
		c.began = now
	}
	c.mu.Unlock()
	v.limit = time.AfterFunc(VisitLimit, v.leave)
	return v
}

// Leave ends the visit. Later calls do nothing.
func (v *Visit) Leave() {
	if v.limit != nil {
		v.limit.Stop()
	}
	v.leave()
}

func (v *Visit) leave() {
	if v.over.Swap(true) || v.of == nil {
		return
	}
	c := v.of
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside.Add(-1)
	c.last = time.Now()
}

// Waits says that the visit goes on: somebody waits for what is done in it.
func (v *Visit) Waits() bool { return !v.over.Load() }

// Aside says for how long bulk work should step aside now, at most; 0: it need not.
func (c *Courtesy) Aside() time.Duration {
	if c == nil || c.inside.Load() == 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inside.Load() == 0 {
		return 0
	}
	return max(0, AsideTime-time.Since(c.began)%(AsideTime+openTime))
}

// StepAside waits while bulk work should, at most AsideTime: one step can follow.
func (c *Courtesy) StepAside() {
	for left := c.Aside(); left > 0; {
		time.Sleep(min(left, asideLook))
		next := c.Aside()
		if next >= left { // the next AsideTime has begun meanwhile
			return
		}
		left = next
	}
}
