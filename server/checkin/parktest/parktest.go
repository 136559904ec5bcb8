// Package parktest is the contract of checkin.Parker as a test suite. Every
// parker's tests run it. It knows the parker by its interface only, and drives
// it as agents do, over real TLS connections with HTTP/1.1 and HTTP/2.
package parktest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/server/checkin"
)

// Run proves that the parkers that create makes keep the contract. Each test
// gets a parker of its own and closes it.
func Run(t *testing.T, create func(t *testing.T) checkin.Parker) {
	stories := []struct {
		name string
		tell func(*testing.T, *yard)
	}{
		{"delivers when woken", deliversWhenWoken},
		{"finds what was created before it parked", looksBeforeItWaits},
		{"loses no wake-up during a look", wakeDuringLook},
		{"a newer poll ends the older", newerEndsOlder},
		{"an older poll that ends late takes nothing from the newer", olderEndsLate},
		{"answers empty at the deadline", deadline},
		{"a deadline that has passed is answered at once", deadlinePassed},
		{"forgets who hangs up", hangUp},
		{"leaves the connection usable", connectionReused},
		{"a failed look keeps the poll", failedLook},
		{"passes over agents that are not here", wakeUnknown},
		{"names who is parked", namesParked},
		{"stands a storm of wakes", storm},
		{"looks for many together", sharedLooker},
		{"a newer poll ends the older of another protocol", newerOfOtherProtocol},
		{"a resumed session parks too", resumed},
		{"close answers everybody", closeAnswers},
		{"close stops waiting when told to", closeGivesUp},
	}
	tell := func(t *testing.T, proto string, story func(*testing.T, *yard)) {
		before := goleak.IgnoreCurrent()
		y := newYard(t, create(t), proto)
		story(t, y)
		y.shut()
		goleak.VerifyNone(t, before)
	}
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		for _, s := range stories {
			t.Run(proto+"/"+s.name, func(t *testing.T) { tell(t, proto, s.tell) })
		}
	}
	for name, story := range map[string]func(*testing.T, *yard){
		"answers requests that come early":    earlyRequests,
		"keeps a request that comes meantime": requestWhileParked,
		"ends the connection when asked to":   lastRequest,
	} {
		t.Run("HTTP/1.1/"+name, func(t *testing.T) { tell(t, "HTTP/1.1", story) })
	}
	t.Run("looks again after a failed look", func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		// Both at once: the wait is a real one.
		one, two := newYard(t, create(t), "HTTP/1.1"), newYard(t, create(t), "HTTP/2.0")
		looksAgain(t, one, two)
		one.shut()
		two.shut()
		goleak.VerifyNone(t, before)
	})
}
