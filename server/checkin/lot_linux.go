package checkin

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/server/checkin/tlstrim"
	"github.com/muster-fleet/muster/server/limit"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// IdleLimit is how long a connection may wait for its client's next request, as
	// in the servers' own limits.
	IdleLimit = 90 * time.Second
	// DrainRate is how many polls a second Close answers. Each comes back to another
	// server with a handshake of half a millisecond: faster, they would have to be
	// turned away there. It is raised where Close has less time.
	DrainRate = 5_000

	// lingerLimit is how long a client has for reading its last answer and closing.
	lingerLimit = time.Second
	// writeLimit bounds one answer's way into the socket's buffer.
	writeLimit = 5 * time.Second
	// lookLimit bounds one look of a worker: some calls of the store, each of which
	// has its own limit.
	lookLimit = 30 * time.Second

	// batchSize is how many polls are looked for together: enough to share what a
	// look costs, and few enough that their answers (15 µs each) are written before
	// somebody else has waited for long.
	batchSize = 256
	// smallWake is how many agents a wake may name to go before the bulk ones.
	smallWake = 64
	// manyAgents is how many a wake names for the heap to grow: fewer leave less behind
	// than a collection is for.
	manyAgents = 1000
	// yieldEvery is after how many answers a worker lets others have the processor: a
	// request of the admin API takes several turns.
	yieldEvery = 4
)

// Lot is the Parker that keeps a parked connection and nothing else: no goroutine,
// no buffers, nothing of the request. It takes the connection out of net/http's
// hands once a first look has found nothing. The client's next requests are answered
// in a lane of its own (Serve), or by net/http, to which the connection goes back
// through Listener. What it cannot take (HTTP/2, HTTP/1.0) is parked as Blocking
// does. NewLot makes one; DESIGN.md says how it works.
type Lot struct {
	// Courtesy is whom answers of bulk wakes, and what agents say to them, step aside
	// for; nil: nobody. Set it before the first poll.
	Courtesy *limit.Courtesy
	// Neighbours are the other servers of this machine; nil: there are none, or they
	// cannot be known. Set it before Serve.
	Neighbours store.Neighbours
	// Heap hears that many are to be answered; nil: it does not.
	Heap *limit.Heap

	log      *slog.Logger
	blocking Blocking
	base     time.Time // the wheel's tick 0
	seed     maphash.Seed
	shards   [shardCount]shard
	wheel    wheel
	watch    watch
	queue    queue
	workers  []*worker
	door     atomic.Pointer[door]
	lane     *lane                  // nil: net/http answers what comes after a poll
	date     atomic.Pointer[string] // the header's, of this second
	slow     chan struct{}          // a place for each answer that goes out slowly

	// unfit says that connections here cannot be watched.
	unfit   atomic.Bool
	closing atomic.Bool

	mu      sync.Mutex
	started bool
	stopped bool
	live    int           // slots that are not gone
	empty   chan struct{} // closed when there are none, and will be none
	running sync.WaitGroup
}

var _ Parker = (*Lot)(nil)

// NewLot makes a Lot. It starts nothing before there is something to park.
func NewLot(log *slog.Logger) *Lot {
	l := &Lot{log: log, base: time.Now(), seed: maphash.MakeSeed(), empty: make(chan struct{}), slow: make(chan struct{}, slowAnswers)}
	for i := range l.shards {
		l.shards[i].polls = map[string]*slot{}
	}
	return l
}

func (l *Lot) shard(agentID string) *shard {
	return &l.shards[maphash.String(l.seed, agentID)%shardCount]
}

// start opens what parked connections need. false: it cannot be had.
func (l *Lot) start() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started || l.stopped {
		return l.started
	}
	if err := l.watch.open(); err != nil {
		l.useless(err)
		return false
	}
	l.started = true
	l.queue.open()
	if err := tlstrim.Unable(); err != nil {
		l.log.Debug("parked connections keep what TLS read into", "error", err)
	}
	l.tellDate(time.Now())
	roles := []role{answersEmpty, looksForSmall}
	for range min(max(runtime.GOMAXPROCS(0), 2), 4) { // an answer is a system call: two of them even on one processor
		roles = append(roles, looksForAll)
	}
	for _, r := range roles {
		w := &worker{lot: l, role: r}
		l.workers = append(l.workers, w)
		l.running.Go(w.run)
	}
	l.running.Go(func() {
		if err := l.watch.run(l.happened); err != nil {
			l.useless(err)
		}
	})
	l.running.Go(l.turn)
	if l.lane != nil {
		l.running.Go(l.lane.usher)
	}
	return true
}

func (l *Lot) useless(err error) {
	if !l.unfit.Swap(true) {
		l.log.Warn("long polls cost more memory than they need: their connections cannot be set aside", "error", err)
	}
}

// join counts a slot that begins. false: the lot is closed.
func (l *Lot) join() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing.Load() {
		return false
	}
	l.live++
	return true
}

// leave counts a slot that is gone. The last one after Close ends the goroutines.
func (l *Lot) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live--
	l.stopIfEmpty()
}

// stopIfEmpty needs l.mu.
func (l *Lot) stopIfEmpty() {
	if !l.closing.Load() || l.live > 0 || l.stopped {
		return
	}
	l.stopped = true
	close(l.empty)
	if l.started {
		l.queue.stop()
		l.watch.file.Close()
	}
}

// Park sets the connection aside, unless the first look answers the poll.
func (l *Lot) Park(p Poll) {
	if r := p.Request; r.ProtoMajor != 1 || r.ProtoMinor != 1 || l.unfit.Load() || !l.start() {
		l.block(p)
		return
	}
	s := &slot{wait: p.Wait, shard: l.shard(p.AgentID), looker: p.Looker, from: p.Request.RemoteAddr, deadline: tick(l.base, p.Deadline), last: p.Request.Close}
	if !reflect.ValueOf(p.Looker).Comparable() {
		s.looker = &struct{ Looker }{p.Looker} // equal to no other
	}
	if !l.enter(s) {
		writeLast(p.Writer, empty)
		return
	}
	aside := false
	defer func() {
		if !aside { // answered here, or the look has panicked
			l.forget(s)
			l.leave()
		}
	}()
	ctx := p.Request.Context()
	for {
		found := s.looker.Look(ctx, []*Wait{&s.wait})[0]
		if ctx.Err() != nil {
			return // hung up
		}
		switch a, again := l.first(s, found, p.Deadline); {
		case a != nil && l.closing.Load():
			writeLast(p.Writer, *a)
			return
		case a != nil:
			write(p.Writer, *a)
			return
		case !again:
			aside = l.setAside(s, p)
			return
		}
	}
}

// enter makes the poll known and ends an older one. false: the lot is closed.
func (l *Lot) enter(s *slot) bool {
	sh := s.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !l.join() {
		return false
	}
	l.supersede(sh, s.wait.AgentID)
	l.blocking.end(s.wait.AgentID)
	sh.polls[s.wait.AgentID] = s
	return true
}

// supersede ends the poll of an agent here, if there is one. It needs the lock.
func (l *Lot) supersede(sh *shard, agentID string) {
	if older := sh.polls[agentID]; older != nil {
		l.end(older)
	}
}

// end answers a poll Empty, soon. It needs the lock.
func (l *Lot) end(s *slot) {
	s.shard.out(s)
	switch s.state {
	case arriving, looking:
		s.ended = true
	case parked, queued:
		s.state = answering
		l.wheel.remove(s)
		l.queue.pushEmpty(s)
	}
}

func (l *Lot) forget(s *slot) {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	s.shard.out(s)
}

// first judges the handler's look: the answer, or whether to look again.
func (l *Lot) first(s *slot, f Found, deadline time.Time) (a *Answer, again bool) {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	switch {
	case s.ended:
		return &empty, false
	case f.Answer != nil:
		s.shard.out(s)
		return f.Answer, false
	case !time.Now().Before(deadline):
		s.shard.out(s)
		return &empty, false
	case s.woken:
		s.woken = false
		return nil, true
	case f.Err != nil:
		s.retry = tick(l.base, time.Now().Add(RetryLook))
	}
	return nil, false
}

// block parks a poll that needs its goroutine.
func (l *Lot) block(p Poll) {
	sh := l.shard(p.AgentID)
	sh.mu.Lock()
	l.supersede(sh, p.AgentID)
	w := l.blocking.enter(p.AgentID)
	sh.mu.Unlock()
	l.blocking.wait(p, w)
}

// setAside takes the connection over. false: the poll has been answered otherwise,
// and s is not used any more.
func (l *Lot) setAside(s *slot, p Poll) bool {
	s.head = headOf(p.Writer.Header())
	if !wholeBody(p.Request) {
		// What is left of it stands between this request and the next.
		l.blockInstead(s, p)
		return false
	}
	if t := turnOf(p.Writer); t != nil && t.s.shard == s.shard {
		l.stay(s, t)
		return true
	}
	conn, buffered, err := http.NewResponseController(p.Writer).Hijack()
	if err != nil {
		l.blockInstead(s, p)
		return false
	}
	s.conn, err = ours(conn, buffered.Reader)
	trim(s.conn)
	if err == nil {
		s.fd, err = descriptor(conn)
	}
	if err == nil {
		err = l.park(s)
	}
	if err != nil {
		l.useless(err)
		l.forget(s)
		s.last = true
		_ = conn.SetWriteDeadline(time.Now().Add(writeLimit))
		_, _ = conn.Write(l.encode(nil, s, empty))
		conn.Close()
		return false
	}
	return true
}

// wholeBody says whether all of the request has been read. net/http's own limit
// bounds how long that takes to find out.
func wholeBody(r *http.Request) bool {
	if r.Body == nil || r.Body == http.NoBody {
		return true
	}
	var one [1]byte
	n, err := r.Body.Read(one[:])
	return n == 0 && errors.Is(err, io.EOF)
}

// blockInstead goes on with a poll that has looked as Blocking does.
func (l *Lot) blockInstead(s *slot, p Poll) {
	s.shard.mu.Lock()
	if s.ended {
		s.shard.mu.Unlock()
		write(p.Writer, empty)
		return
	}
	s.shard.out(s)
	w := l.blocking.enter(p.AgentID)
	s.shard.mu.Unlock()
	l.blocking.wait(p, w)
}

// park begins to wait, with what happened to the poll while its connection was
// taken over.
func (l *Lot) park(s *slot) error {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if err := l.watch.add(s); err != nil {
		return err
	}
	l.begin(s)
	return nil
}

// stay parks the poll of a request in the lane: the connection is watched already,
// and its slot's shard is that of s.
func (l *Lot) stay(s *slot, t *turn) {
	t.hijacked = true
	s.conn, s.fd, s.generation, s.room = t.s.conn, t.s.fd, t.s.generation, t.s.room
	trim(s.conn)
	s.shard.mu.Lock()
	s.unread = t.s.unread
	l.watch.pass(t.s, s)
	t.s.state, t.s.hungUp = gone, nil
	if t.s.lost {
		l.drop(s)
	} else {
		l.begin(s)
		s.shard.mu.Unlock()
	}
	l.leave() // the request's slot
}

// begin lets a poll wait whose connection is watched. It needs the lock.
func (l *Lot) begin(s *slot) {
	switch {
	case s.ended:
		s.state = answering
		l.queue.pushEmpty(s)
		return
	case s.woken:
		s.state, s.woken = queued, false
		l.queue.pushWoken(true, s)
	default:
		s.state = parked
	}
	l.wait(s)
}

// wait sets the wheel for a poll. It needs the lock.
func (l *Lot) wait(s *slot) {
	next := s.deadline
	if s.retry != 0 && s.retry < next {
		next = s.retry
	}
	l.wheel.set(s, next)
}

// Wake makes the polls of these agents look again. Few agents go before many, and
// whoever wakes many can wake others at once: the slice is kept for a moment.
func (l *Lot) Wake(agentIDs ...string) {
	if len(agentIDs) <= smallWake {
		l.wakeAll(agentIDs, true)
		return
	}
	// The workers that this wakes take the processor and its locks.
	go l.wakeAll(agentIDs, false)
}

func (l *Lot) wakeAll(agentIDs []string, small bool) {
	if len(agentIDs) >= manyAgents {
		l.Heap.Busy()
	}
	woken := make([]*slot, 0, min(len(agentIDs), batchSize))
	for _, id := range agentIDs {
		if s := l.wake(id, small); s != nil {
			woken = append(woken, s)
		}
		if len(woken) == batchSize { // the first are answered while the others are found
			l.queue.pushWoken(small, woken...)
			woken = woken[:0]
		}
	}
	l.queue.pushWoken(small, woken...)
	l.blocking.Wake(agentIDs...)
}

// wake returns the agent's slot if it is to be queued.
func (l *Lot) wake(agentID string, small bool) *slot {
	sh := l.shard(agentID)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.polls[agentID]
	if s == nil {
		return nil
	}
	switch s.state {
	case arriving, looking:
		s.woken = true
	case parked:
		s.state = queued
		return s
	case queued:
		if small { // it overtakes the bulk wake it may be in
			return s
		}
	}
	return nil
}

// happened is called by the poller.
func (l *Lot) happened(e unix.EpollEvent, s *slot) {
	s.shard.mu.Lock()
	if s.state == gone {
		s.shard.mu.Unlock()
		if heir := l.watch.find(e); heir != nil && heir != s { // it was parked just now: see stay
			l.happened(e, heir)
		}
		return
	}
	s.unread = s.unread || e.Events&unix.EPOLLIN != 0
	s.lost = s.lost || e.Events&^unix.EPOLLIN != 0
	switch s.state {
	case idle:
		l.serve(s)
		return
	case parked, queued, lingering:
		if s.lost {
			l.drop(s)
			return
		}
	case serving:
		if s.lost && s.hungUp != nil {
			s.hungUp()
		}
	}
	s.shard.mu.Unlock()
}

// serve lets what the client of an idle connection has sent be read. There may be a
// request before its end: an agent does not always wait for the answer, and what it
// said must be heard. It needs the lock and gives it back.
func (l *Lot) serve(s *slot) {
	if l.lane == nil {
		l.giveBack(s)
		return
	}
	s.state, s.unread = serving, false
	l.wheel.remove(s)
	bulk, again := s.bulk, s.again
	s.shard.mu.Unlock()
	l.lane.push(s, bulk, again)
}

// drop closes the connection. It needs the lock and gives it back.
func (l *Lot) drop(s *slot) {
	l.release(s)
	s.shard.mu.Unlock()
	below(s.conn).Close() // without TLS's farewell, for which there may be no room
	l.leave()
}

// ending says that no connection gets another request here: each answer is its last.
func (l *Lot) ending() bool { return l.closing.Load() || l.door.Load() == nil }

// giveBack gives the connection back to net/http. It needs the lock and gives it
// back.
func (l *Lot) giveBack(s *slot) {
	l.release(s)
	s.shard.mu.Unlock()
	if d := l.door.Load(); d == nil || !d.give(s.conn) {
		below(s.conn).Close()
	}
	l.leave()
}

// release makes s nobody's. It needs the lock.
func (l *Lot) release(s *slot) {
	s.shard.out(s)
	s.state = gone
	l.wheel.remove(s)
	l.watch.remove(s)
}

// turn is the wheel's goroutine.
func (l *Lot) turn() {
	t := time.NewTicker(wheelTick)
	defer t.Stop()
	var fired []*slot
	for {
		select {
		case <-l.empty:
			return
		case <-t.C:
		}
		at := time.Now()
		l.tellDate(at)
		now := int32(min(at.Sub(l.base)/wheelTick, 1<<30)) //nolint:gosec // it has just been bounded
		fired = l.wheel.advance(now, fired[:0])
		for _, s := range fired {
			l.fire(s, now)
		}
		clear(fired)
		for _, w := range l.workers {
			w.check(at)
		}
		if l.lane != nil {
			l.lane.check(at)
		}
	}
}

// fire does what the time has come for.
func (l *Lot) fire(s *slot, now int32) {
	s.shard.mu.Lock()
	over := now >= s.deadline
	switch s.state {
	case idle, lingering:
		if over {
			l.drop(s)
			return
		}
		l.wait(s)
	case parked:
		switch {
		case over:
			l.end(s)
		case s.retry != 0 && now >= s.retry:
			s.state, s.retry = queued, 0
			l.queue.pushWoken(false, s)
			l.wait(s)
		default:
			l.wait(s)
		}
	case queued:
		if over {
			l.end(s) // what it was woken for, its next poll finds
			break
		}
		l.wait(s)
	case looking:
		if s.due = over; !over {
			l.wait(s)
		}
	}
	s.shard.mu.Unlock()
}

// Parked calls f for each agent with a poll here.
func (l *Lot) Parked(f func(agentID string)) {
	for i := range l.shards {
		l.shards[i].each(f)
	}
	l.blocking.Parked(f)
}

func (sh *shard) each(f func(agentID string)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for id := range sh.polls {
		f(id)
	}
}

// Count is the number of polls here.
func (l *Lot) Count() int {
	n := l.blocking.Count()
	for i := range l.shards {
		sh := &l.shards[i]
		sh.mu.Lock()
		n += len(sh.polls)
		sh.mu.Unlock()
	}
	return n
}

// Close answers every poll Empty at DrainRate, or as much faster as ctx demands,
// and closes the connections it holds.
func (l *Lot) Close(ctx context.Context) error {
	l.mu.Lock()
	first := !l.closing.Swap(true)
	l.stopIfEmpty()
	drain := first && !l.stopped
	if drain {
		l.running.Add(1)
	}
	l.mu.Unlock()
	if drain {
		go func() {
			defer l.running.Done()
			l.drain(ctx)
		}()
	}
	err := l.blocking.Close(ctx)
	select {
	case <-l.empty:
		l.running.Wait() // they have nothing to wait for
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain ends all that is here.
func (l *Lot) drain(ctx context.Context) {
	for _, s := range l.watch.all() {
		s.shard.mu.Lock()
		if s.state == idle {
			l.drop(s)
			continue
		}
		s.shard.mu.Unlock()
	}
	var left []*slot
	for i := range l.shards {
		sh := &l.shards[i]
		sh.mu.Lock()
		for _, s := range sh.polls {
			if s.state == arriving || s.state == looking {
				l.end(s)
			} else {
				left = append(left, s)
			}
		}
		sh.mu.Unlock()
	}
	const pause = 20 * time.Millisecond
	rate := float64(DrainRate)
	if end, ok := ctx.Deadline(); ok {
		// A fifth of the time is for the answers to be read.
		rate = max(rate, float64(len(left))/max(0.8*time.Until(end).Seconds(), pause.Seconds()))
	}
	t := time.NewTicker(pause)
	defer t.Stop()
	for len(left) > 0 {
		n := min(len(left), int(rate*pause.Seconds())+1)
		for _, s := range left[:n] {
			s.shard.mu.Lock()
			l.end(s)
			s.shard.mu.Unlock()
		}
		if left = left[n:]; len(left) == 0 {
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done(): // Close has given up: the rest at once
		}
	}
}

func (l *Lot) tellDate(now time.Time) {
	date := now.UTC().Format(http.TimeFormat)
	l.date.Store(&date)
}

// look asks the Looker for a batch. A panic there is an error, as it would be in a
// handler.
func (l *Lot) look(looker Looker, waits []*Wait) (found []Found) {
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	defer cancel()
	defer func() {
		err := errors.New("the look found too little")
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
		if len(found) < len(waits) {
			l.log.Error("a look for parked agents failed", "agents", len(waits), "error", err)
			found = make([]Found, len(waits))
			for i := range found {
				found[i].Err = err
			}
		}
	}()
	return looker.Look(ctx, waits)
}
