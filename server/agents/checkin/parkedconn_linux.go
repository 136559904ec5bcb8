package checkin

import (
	"net"
	"sync"
	"time"
)

// connState is the state of a connection; DESIGN.md has the table.
type connState uint8

const (
	// stateNew: the handler's goroutine makes the first check. The connection still
	// belongs to net/http.
	stateNew connState = iota
	// stateParked waits for a wake, a retry or the deadline.
	stateParked
	// stateQueued has been woken and waits for a worker.
	stateQueued
	// stateChecking is with a worker that calls the Checker.
	stateChecking
	// stateAnswering belongs to the goroutine that writes the answer, and has left the
	// shard's map.
	stateAnswering
	// stateIdle has been answered and waits for the client's next request.
	stateIdle
	// stateLingering has had its last answer and waits for the client to close.
	// Closing at once resets the connection if it holds unread bytes, and the
	// reset overtakes the answer.
	stateLingering
	// stateReleased is closed, or back with net/http.
	stateReleased
)

// parkedConn is a connection from the time its poll arrives until it is closed or
// given back to net/http. A parked agent needs no other memory besides the connection
// itself, so its size matters. Its shard's lock guards it, except where noted.
type parkedConn struct {
	timer timerEntry
	wait  Wait // owned by the Checker in stateNew and stateChecking; AgentID and Policy never change

	// These are set before the connection is parked, and never changed.
	shard      *shard
	checker    Checker
	conn       net.Conn // as hijacked: *tls.Conn, a plain one, or *earlyConn
	fd         int32
	generation uint32 // of fd; set by the poller
	head       string // the header lines that the handler has set

	// deadline and retry are ticks of the timer wheel: when the state ends at the
	// latest, and when a failed check is repeated, 0 if none has failed.
	deadline, retry int32

	state connState
	// Events during a check or an answer are recorded here. The goroutine that checks or
	// answers acts on them afterwards.
	woken  bool // check once more
	ended  bool // answer Empty: a newer poll, or Close
	due    bool // the deadline has passed
	hungUp bool // the client has closed its side
	unread bool // the client has sent bytes that have not been read
	last   bool // the connection ends with this answer

	inList [priorities]bool // owned by the queue
}

// shardCount spreads the agents over locks, so that handlers, workers and wakes
// rarely wait for each other; a power of two.
const shardCount = 64

// shard holds a part of the agents, by the hash of their ids, and the lock of their
// connections. With it held, at most one of the locks of the timer wheel, the poller, the
// queue, Blocking and the parker may be acquired.
type shard struct {
	mu    sync.Mutex
	polls map[string]*parkedConn // new, parked, queued or being checked
	ended ended
	// closed are those whose clients have closed the connection of a parked poll.
	closed hungUp
}

// remove takes c out of the map, unless a newer poll has replaced it.
func (sh *shard) remove(c *parkedConn) {
	if sh.polls[c.wait.AgentID] == c {
		delete(sh.polls, c.wait.AgentID)
		now := time.Now()
		sh.ended.add(c.wait.AgentID, now)
		if c.hungUp {
			sh.closed.add(c.wait.AgentID, now)
		}
	}
}
