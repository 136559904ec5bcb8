package checkin

import (
	"runtime"
	"time"

	"github.com/muster-fleet/muster/server/limit"
)

const (
	// asideSteps is how many go on after each time that the fleet has stepped aside:
	// some 5 ms. Not a time: on a busy machine that is over before one has begun.
	asideSteps = 16
	// asideLook is how often it is looked whether the fleet can go on.
	asideLook = time.Millisecond

	// restEvery is how often who works for a fleet lets Go look at the network: twice as
	// often as Go's own thread for it. restFor is so long that the timer still runs when
	// the processor looks for work: of one that has run out, the goroutine would go on
	// before the network is looked at.
	restEvery = 4 * time.Millisecond
	restFor   = 50 * time.Microsecond
)

// rest lets Go look at the network while a fleet is at work. A processor does only when
// it has nothing to run, which then is never, so it is left to a thread that looks each
// 10 to 20 ms and takes 128 events at a time. Those of parked connections are among
// them, for Go's poller knows these too: with a fleet's acknowledgements before it, a
// request of the admin API was found up to 160 ms after it had come.
type rest struct{ last time.Time }

// yield lets others run and, where it is a fleet's work and time for it, rests.
func (r *rest) yield(bulk bool) {
	if !bulk || time.Since(r.last) < restEvery {
		runtime.Gosched()
		return
	}
	time.Sleep(restFor)
	r.last = time.Now()
}

// aside lets one that works for a fleet step aside for the admin API. Each has its
// own, and its own lock.
type aside struct {
	since time.Time // it has stepped aside; zero: it has not
	steps int       // that it has before it does again
}

// waits says that the next step has to wait, for asideLook before it is asked again.
func (a *aside) waits(c *limit.Courtesy) bool {
	switch {
	case c.Aside() == 0:
		a.since, a.steps = time.Time{}, 0
		return false
	case a.steps > 0:
		a.steps--
		return false
	case a.since.IsZero():
		a.since = time.Now()
	case time.Since(a.since) >= limit.AsideTime:
		a.since, a.steps = time.Time{}, asideSteps-1
		return false
	}
	return true
}
