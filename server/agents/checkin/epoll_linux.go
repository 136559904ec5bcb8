package checkin

import (
	"hash/maphash"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-fleet/muster/server/agents/checkin/tlstrim"
	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// IdleLimit is how long a connection may wait for its client's next request. The
	// HTTP servers have the same limit.
	IdleLimit = 90 * time.Second
	// DrainRate is how many polls a second Close answers. Each agent reconnects to another
	// server with a handshake of half a millisecond; at a higher rate that server would
	// reject some. Close exceeds the rate if it has less time.
	DrainRate = 5_000

	// unwatchedLogInterval is the shortest time between two log lines about connections
	// that epoll refuses: a limit of the kernel concerns many at once.
	unwatchedLogInterval = time.Minute
)

// EpollParker is the Parker that keeps only the connection of a parked poll: no
// goroutine, no buffers, nothing of the request. If the first check finds nothing it takes
// the connection from net/http and watches it with epoll. When the client sends its next
// request, Listener returns the connection to net/http. Polls that it cannot watch are
// parked by Blocking: HTTP/2, HTTP/1.0, connections without a descriptor.
//
// An http.Server must use its Listener and its ConnContext.
type EpollParker struct {
	log       *slog.Logger
	unwatched rate.Sometimes // limits the log lines about connections that epoll refuses
	blocking  Blocking
	base      time.Time // the timer wheel's tick 0
	seed      maphash.Seed
	shards    [shardCount]shard
	timers    timerWheel
	poller    poller
	queue     queue
	requeue   atomic.Pointer[requeueListener] // nil if there is no Listener: connections end with the answer
	slow      chan struct{}                   // a semaphore for answers that are written slowly

	closing atomic.Bool

	mu          sync.Mutex
	started     bool
	unavailable bool // epoll does not work on this system: Blocking parks all polls
	stopped     bool
	live        int           // connections that are not released
	empty       chan struct{} // closed when live is 0 after Close
	running     sync.WaitGroup
}

var _ Parker = (*EpollParker)(nil)

// NewEpollParker returns an EpollParker. It starts its goroutines with the first poll.
func NewEpollParker(log *slog.Logger) *EpollParker {
	p := &EpollParker{
		log: log, unwatched: rate.Sometimes{Interval: unwatchedLogInterval}, base: time.Now(), seed: maphash.MakeSeed(),
		slow: make(chan struct{}, slowAnswers), empty: make(chan struct{}),
	}
	p.queue.init()
	for i := range p.shards {
		p.shards[i].polls = map[string]*parkedConn{}
	}
	return p
}

func (p *EpollParker) shard(agentID string) *shard {
	return &p.shards[maphash.String(p.seed, agentID)%shardCount]
}

// start creates the epoll instance and starts the goroutines, once. It returns false if
// epoll is not available.
func (p *EpollParker) start() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started || p.stopped || p.unavailable {
		return p.started && !p.unavailable
	}
	if err := p.poller.open(); err != nil {
		p.setUnavailable(err)
		return false
	}
	p.started = true
	if err := tlstrim.Unable(); err != nil {
		p.log.Debug("parked connections keep their TLS read buffers", "error", err)
	}
	// The first worker takes no connection that needs a check, the second none of a bulk
	// wake. An answer is a system call, so two workers take bulk wakes even on one
	// processor.
	lowest := []priority{emptyAnswer, smallWake}
	for range min(max(runtime.GOMAXPROCS(0), 2), 4) {
		lowest = append(lowest, bulkWake)
	}
	for _, l := range lowest {
		p.running.Go(func() { p.work(l) })
	}
	p.running.Go(func() {
		if err := p.poller.run(p.handleEvent); err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.setUnavailable(err)
		}
	})
	p.running.Go(p.runTimers)
	return true
}

// setUnavailable must be called with p.mu locked.
func (p *EpollParker) setUnavailable(err error) {
	p.unavailable = true
	p.log.Warn("long polls take a goroutine each: epoll does not work here", "error", err)
}

// join counts a new connection. It returns false if the parker is closed.
func (p *EpollParker) join() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.Load() {
		return false
	}
	p.live++
	return true
}

// leave uncounts a released connection. The last one after Close ends the goroutines.
func (p *EpollParker) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live--
	p.stopIfEmpty()
}

// stopIfEmpty must be called with p.mu locked.
func (p *EpollParker) stopIfEmpty() {
	if !p.closing.Load() || p.live > 0 || p.stopped {
		return
	}
	p.stopped = true
	close(p.empty)
	if p.started {
		p.queue.stop()
		p.poller.file.Close()
	}
}

// Parked calls f for each agent with a poll here.
func (p *EpollParker) Parked(f func(agentID string, has fleet.PolicyAt)) {
	for i := range p.shards {
		p.shards[i].each(f)
	}
	p.blocking.Parked(f)
}

func (sh *shard) each(f func(agentID string, has fleet.PolicyAt)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for id, c := range sh.polls {
		f(id, c.wait.Policy)
	}
}

// Connected implements Parker.
func (p *EpollParker) Connected(agentID string) bool {
	return p.shard(agentID).connected(agentID, time.Now()) || p.blocking.Connected(agentID)
}

func (sh *shard) connected(agentID string, now time.Time) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.polls[agentID] != nil || sh.ended.has(agentID, now)
}

// HungUp implements Parker.
func (p *EpollParker) HungUp(f func(agentID string, at time.Time)) {
	p.blocking.HungUp(f)
	for i := range p.shards {
		p.shards[i].hungUp(f)
	}
}

func (sh *shard) hungUp(f func(agentID string, at time.Time)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.closed.each(func(id string) bool { return sh.polls[id] != nil }, f)
}

// Count returns the number of polls here.
func (p *EpollParker) Count() int {
	n := p.blocking.Count()
	for i := range p.shards {
		sh := &p.shards[i]
		sh.mu.Lock()
		n += len(sh.polls)
		sh.mu.Unlock()
	}
	return n
}
