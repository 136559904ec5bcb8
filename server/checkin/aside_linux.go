package checkin

import (
	"time"

	"github.com/muster-fleet/muster/server/limit"
)

const (
	// asideSteps is how many go on after each time that the fleet has stepped aside:
	// some 5 ms. Not a time: on a busy machine that is over before one has begun.
	asideSteps = 16
	// asideLook is how often it is looked whether the fleet can go on.
	asideLook = time.Millisecond

	// restEvery and restFor are how who works for a fleet lets Go look at the network.
	// The first is half of what Go's own thread for it sleeps; the second is more than a
	// timer that has run out before the processor looks.
	restEvery = 4 * time.Millisecond
	restFor   = 50 * time.Microsecond
)

// rest lets Go look at the network while a fleet is at work. A processor does only when
// it has nothing to run, which then is never, so it is left to a thread that looks each
// 10 to 20 ms and takes 128 events at a time. Those of parked connections are among
// them, for Go's poller knows these too: with a fleet's acknowledgements before it, a
// request of the admin API was found up to 160 ms after it had come.
type rest struct{ last time.Time }

// take rests if it is time. false: it is not.
func (r *rest) take() bool {
	if time.Since(r.last) < restEvery {
		return false
	}
	time.Sleep(restFor)
	r.last = time.Now()
	return true
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
