// Package parktest is the contract of checkin.Parker as a test suite. Every parker's tests
// run it. It uses only the interface, as agents do, over real TLS connections with
// HTTP/1.1 and HTTP/2.
package parktest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/server/agents/checkin"
)

type scenario struct {
	name string
	run  func(*testing.T, *server)
}

// everyProtocol are the scenarios of HTTP/1.1 and of HTTP/2.
var everyProtocol = []scenario{
	{"wake delivers the action", wakeDelivers},
	{"action created before the poll is parked is delivered", createdBeforeParking},
	{"wake during a check is not lost", wakeDuringCheck},
	{"newer poll supersedes older", newerSupersedes},
	{"superseded poll that ends late leaves the newer parked", supersededEndsLate},
	{"newer poll of another protocol supersedes older", newerOfOtherProtocol},
	{"release answers the poll and no other", release},
	{"release during a check answers empty", releaseDuringCheck},
	{"empty answer at the deadline", deadline},
	{"poll past its deadline is answered at once", deadlinePassed},
	{"disconnect removes the poll", disconnect},
	{"connection is reused after the answer", connectionReused},
	{"failed check keeps the poll parked", failedCheck},
	{"wake of unknown agents is ignored", wakeUnknown},
	{"single wake does not wait for a bulk wake", singleBeforeBulk},
	{"Parked names every agent", namesParked},
	{"concurrent wakes deliver everything once", concurrentWakes},
	{"agents of one Checker are checked together", sharedChecker},
	{"resumed TLS session is parked", resumed},
	{"Close answers every poll", closeAnswers},
	{"Close returns when its context ends", closeGivesUp},
}

// http1 are the scenarios of HTTP/1.1 only, with one request at a time.
var http1 = []scenario{
	{"pipelined requests are answered in turn", pipelined},
	{"request sent while a poll is parked waits for its turn", requestWhileParked},
	{"client that does not read delays no other", slowReader},
	{"connection closes after the answer when asked to", connectionClose},
}

// Run tests the contract with parkers returned by create. Each test gets a parker of its
// own and closes it.
func Run(t *testing.T, create func(t *testing.T) checkin.Parker) {
	run := func(proto string, scenarios []scenario) {
		for _, sc := range scenarios {
			t.Run(proto+"/"+sc.name, func(t *testing.T) {
				before := goleak.IgnoreCurrent()
				s := newServer(t, create(t), proto)
				sc.run(t, s)
				s.stop()
				goleak.VerifyNone(t, before)
			})
		}
	}
	run("HTTP/1.1", everyProtocol)
	run("HTTP/1.1", http1)
	run("HTTP/2.0", everyProtocol)
	t.Run("failed check is repeated", func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		// Both at once, since the test waits in real time.
		one, two := newServer(t, create(t), "HTTP/1.1"), newServer(t, create(t), "HTTP/2.0")
		failedCheckRepeated(t, one, two)
		one.stop()
		two.stop()
		goleak.VerifyNone(t, before)
	})
}
