package checkin

import (
	"time"

	"github.com/muster-fleet/muster/server/store"
)

const (
	// neighboursLook is how often the neighbours are asked: a system call, and as much as
	// some ten answers of theirs take.
	neighboursLook = time.Millisecond
	// neighboursPatience is how long they are minded at a time: longer than six servers
	// take to hand an action to 100,000 agents on two slow processors (10 s). One that
	// was stopped amid that would else hold up this fleet for ever.
	neighboursPatience = 20 * time.Second
)

// neighbours says whether other servers of this machine hand something out to their
// agents. These are no less in need of the processors than this server's own: one that
// is done first would else take its fleet's acknowledgements while the others' agents
// wait. It is for one goroutine.
type neighbours struct {
	of    store.Neighbours // nil: there are none
	is    bool             // what was said when they were asked
	asked time.Time
	since time.Time // it has been so
}

func (n *neighbours) busy(now time.Time) bool {
	if n.of == nil {
		return false
	}
	if silence := now.Sub(n.asked); silence >= neighboursLook {
		was := n.is && silence < neighboursPatience
		if n.is, n.asked = n.of.HandOutElsewhere(), now; n.is && !was {
			n.since = now
		}
	}
	return n.is && now.Sub(n.since) < neighboursPatience
}
