package checkin

import (
	"hash/maphash"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/muster-fleet/muster/server/checkin/tlstrim"
)

const (
	// IdleLimit is how long a connection may wait for its client's next request, as
	// in the servers' own limits.
	IdleLimit = 90 * time.Second
	// DrainRate is how many polls a second Close answers. Each comes back to another
	// server with a handshake of half a millisecond: faster, they would have to be
	// rejected there. It is raised where Close has less time.
	DrainRate = 5_000

	// unwatchedLogInterval is the least time between two log lines about connections
	// that epoll does not take: a limit of the kernel concerns many at once.
	unwatchedLogInterval = time.Minute
)

// EpollParker is the Parker that keeps a parked connection and nothing else: no
// goroutine, no buffers, nothing of the request. When the first check finds nothing it
// takes the connection from net/http and watches it with epoll; the client's next
// request goes back to net/http through Listener. It parks as Blocking does what it
// cannot watch: HTTP/2, HTTP/1.0, connections without a descriptor.
//
// An http.Server uses it by its Listener and its ConnContext.
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
	requeue   atomic.Pointer[requeueListener] // nil: connections end with the answer
	slow      chan struct{}                   // a place for each answer that is written slowly

	closing atomic.Bool

	mu          sync.Mutex
	started     bool
	unavailable bool // epoll does not work here: all polls block
	stopped     bool
	live        int           // connections that are not released
	empty       chan struct{} // closed when there are none, and will be none
	running     sync.WaitGroup
}

var _ Parker = (*EpollParker)(nil)

// NewEpollParker makes an EpollParker. It starts nothing before there is a poll to
// park.
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

// start makes the epoll instance and the goroutines, once. It returns false where
// there is no epoll.
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
	// The first worker never waits for a check, the second never for a bulk wake. An
	// answer is a system call: two workers take bulk wakes even on one processor.
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

// setUnavailable needs p.mu.
func (p *EpollParker) setUnavailable(err error) {
	p.unavailable = true
	p.log.Warn("long polls take a goroutine each: epoll does not work here", "error", err)
}

// join counts a connection that arrives. It returns false once the parker is closed.
func (p *EpollParker) join() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing.Load() {
		return false
	}
	p.live++
	return true
}

// leave counts a connection that is released. The last one after Close ends the
// goroutines.
func (p *EpollParker) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live--
	p.stopIfEmpty()
}

// stopIfEmpty needs p.mu.
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
func (p *EpollParker) Parked(f func(agentID string)) {
	for i := range p.shards {
		p.shards[i].each(f)
	}
	p.blocking.Parked(f)
}

func (sh *shard) each(f func(agentID string)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for id := range sh.polls {
		f(id)
	}
}

// Count is the number of polls here.
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
