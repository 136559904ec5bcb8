package limit

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// patience is how long a request waits for its turn. All agents of a server
	// answering one action are through in less, and agents wait longer than this.
	patience = 5 * time.Second
	// standing is how long there may be a queue before it counts as overload
	// instead of a burst. Then nobody waits longer than shortPatience: a queue that
	// does not get shorter only makes every answer late.
	standing      = 2 * patience
	shortPatience = 250 * time.Millisecond

	// minSpread is over how long refused requests are told to come back at the
	// least, since agents of a fleet ask at the same moment.
	minSpread = 8 * time.Second
	// maxSpread bounds what a slow second can make of the backlog.
	maxSpread = 5 * time.Minute
	// slack is how much slower than it was measured the backlog is called back:
	// there are requests besides.
	slack = 2
)

// gate lets a number of requests in at once. Those that find it full wait in
// order; those that would wait too long are told when to come again.
type gate struct {
	places, seats int
	now           func() time.Time

	mu      sync.Mutex
	inside  int
	waiting list.List // of chan struct{}, closed when the place is theirs
	queued  time.Time // since when somebody has been waiting all the time
	limited uint64

	// How fast the gate works when it is full: what left it in a second during
	// which there was a queue.
	perSecond  float64
	measured   bool // else it is a guess
	left       int
	leftSince  time.Time
	calledBack time.Time // when the last of those that were refused is expected
}

// newGate makes a gate of places with seats for those that wait. perSecond is a
// first guess of how many pass in a second.
func newGate(places, seats int, perSecond float64, now func() time.Time) *gate {
	return &gate{places: places, seats: seats, perSecond: perSecond, now: now}
}

// enter waits for a place, which leave gives back. Where there will be none in
// time, it returns how long to stay away.
func (g *gate) enter(ctx context.Context) (retryAfter time.Duration, ok bool) {
	g.mu.Lock()
	if g.inside < g.places && g.waiting.Len() == 0 {
		g.inside++
		g.mu.Unlock()
		return 0, true
	}
	if g.waiting.Len() >= g.seats {
		defer g.mu.Unlock()
		return g.refuse(), false
	}
	now := g.now()
	if g.waiting.Len() == 0 {
		g.queued, g.left, g.leftSince = now, 0, now
	}
	wait := patience
	if now.Sub(g.queued) > standing {
		wait = shortPatience
	}
	turn := make(chan struct{})
	place := g.waiting.PushBack(turn)
	g.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	hungUp := false
	select {
	case <-turn:
		return 0, true
	case <-timer.C:
	case <-ctx.Done():
		hungUp = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-turn: // just now
		return 0, true
	default:
	}
	g.waiting.Remove(place)
	if hungUp {
		return 0, false // nobody to call back
	}
	return g.refuse(), false
}

// leave gives the place to who waits longest.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := g.waiting.Front()
	if first == nil {
		g.inside--
		return
	}
	g.waiting.Remove(first)
	close(first.Value.(chan struct{}))
	g.left++
	now := g.now()
	if took := now.Sub(g.leftSince); took >= time.Second {
		rate := float64(g.left) / took.Seconds()
		if g.measured {
			rate = (g.perSecond + rate) / 2 // one second may be odd
		}
		g.perSecond, g.measured, g.left, g.leftSince = rate, true, 0, now
	}
}

// refuse is for who holds mu. Each that is refused is expected back a step later
// than the one before, so that together they come no faster than they are served.
func (g *gate) refuse() time.Duration {
	g.limited++
	now := g.now()
	if g.calledBack.Before(now) {
		g.calledBack = now
	}
	step := time.Duration(slack * float64(time.Second) / max(g.perSecond, 1))
	if g.calledBack = g.calledBack.Add(step); g.calledBack.Sub(now) > maxSpread {
		g.calledBack = now // from the start: nobody is sent away for longer
	}
	return time.Second + g.calledBack.Sub(now) + rand.N(minSpread)
}

func (g *gate) use() Use {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Use{Max: int64(g.places), Used: int64(g.inside), Waiting: g.waiting.Len(), Limited: g.limited}
}
