package checkin

import (
	"context"
	"net"
	"sync"
)

// state is what becomes of a connection next; DESIGN.md has the picture.
type state uint8

const (
	// arriving: the handler's goroutine looks for the first time. The connection is
	// still net/http's.
	arriving state = iota
	// parked waits for a wake, a retry or the deadline.
	parked
	// queued has been woken and waits for a worker.
	queued
	// looking is with a worker that asks the Looker.
	looking
	// answering is with the one goroutine that writes the answer, and no more in the
	// map.
	answering
	// idle has been answered and waits for the client's next request.
	idle
	// serving has another request, which the lane reads and answers.
	serving
	// lingering has been answered for the last time and waits for the client to
	// close. Closing at once would reset the connection if something of the client's
	// is unread, and the reset would overtake the answer.
	lingering
	// gone is nobody's any more: closed, or net/http's again.
	gone
)

// slot is a connection from when its poll arrives until net/http has it back. It is
// all there is for a parked agent beside the connection, so its size counts. Its
// shard's lock guards it, except where said.
type slot struct {
	hand hand // the wheel's
	wait Wait // while arriving or looking the Looker's; AgentID never changes

	// Set before it is parked, and never changed.
	shard  *shard
	looker Looker
	conn   net.Conn // as it was hijacked: *tls.Conn, a plain one, or *early
	fd     int32

	generation uint32 // of fd: the watch's
	room       int32  // what can be written without asking; see hasRoom
	head       string // header lines that the handler has set
	from       string // the client's address
	// deadline and retry are ticks of the wheel: when the state ends at the latest,
	// and when a look is to be made again after one that failed; 0: none has.
	deadline, retry int32

	// hungUp ends the request that is worked on; nil: none is.
	hungUp context.CancelFunc

	state state
	woken bool // a wake came while arriving or looking: look once more
	ended bool // a newer poll or Close came meanwhile: answer Empty
	due   bool // the deadline came meanwhile
	lost  bool // the client hung up meanwhile
	last  bool // the connection ends with this answer
	// unread: the client may have sent something meanwhile that nobody has read.
	unread bool

	bulk  bool // it was looked for with a bulk wake last
	again bool // and the lane has answered a request since

	inSmall, inBulk bool // lists of the queue; the queue's
}

// shardCount spreads the agents over locks, so that handlers, workers and wakes seldom
// meet; a power of two.
const shardCount = 64

// shard is a part of the agents, by their ids, and the lock of their slots. Of the
// other locks (wheel, watch, queue, Blocking, Lot.mu) any one may be taken under it,
// and none of them is held while another is taken, but the queue's under Lot.mu.
type shard struct {
	mu    sync.Mutex
	polls map[string]*slot // arriving, parked, queued or looking
}

// out takes s out of the map, unless a newer poll has its place.
func (sh *shard) out(s *slot) {
	if sh.polls[s.wait.AgentID] == s {
		delete(sh.polls, s.wait.AgentID)
	}
}
