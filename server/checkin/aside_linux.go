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
)

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
