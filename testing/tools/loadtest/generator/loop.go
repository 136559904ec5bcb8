//go:build linux

package generator

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// eventsAtOnce bounds the events that one epoll_wait returns.
	eventsAtOnce = 256
	// readBuffer is the size of the longest TLS record.
	readBuffer = 16 << 10
	// tick is how often a loop looks for acknowledgements that time out.
	tick = time.Second
	// ackTimeout is a real agent's limit for every request except the long poll.
	ackTimeout = 30 * time.Second
	// firstRedial and lastRedial bound the backoff after a failed connection: while a
	// server restarts each try costs little, and the agent should connect soon after
	// the server is up.
	firstRedial = 50 * time.Millisecond
	lastRedial  = time.Second
	// pauseAfterError is how long an agent waits after a refusal without Retry-After.
	pauseAfterError = time.Second
	// keptTexts bounds the failures whose text is kept; the others are only counted.
	keptTexts = 20
)

// loop owns some of the agents. Only its goroutine uses them; other goroutines pass it
// functions through do. Its epoll is level-triggered.
type loop struct {
	generator *Generator
	epoll     int
	poll      *os.File // the same descriptor, registered with Go's poller
	ready     syscall.RawConn
	until     MonoTime // the read deadline of poll
	wake      int      // an eventfd
	agents    []*agent
	timers    timers
	buf       []byte // answers are read into it
	body      []byte // body and out are buffers for requests
	out       []byte
	reader    reader
	sends     uint64
	stamp     string // the timestamp of acknowledgements, at most a second old

	records map[string]*record
	count   Count
	churn   *churning

	mu     sync.Mutex
	inbox  []func()
	closed bool // the inbox accepts nothing any more
	done   chan struct{}
}

// record is the progress of one action.
type record struct {
	delivered, acked, parked map[int]MonoTime // by agent's number
	duplicates               int              // deliveries to an agent that already had it
}

func newLoop(g *Generator) (*loop, error) {
	l := &loop{generator: g, buf: make([]byte, readBuffer), records: map[string]*record{}, done: make(chan struct{})}
	l.count.Status = map[string]int{}
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, errors.Join(err, unix.Close(l.epoll))
	}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1}); err != nil {
		return nil, errors.Join(err, unix.Close(l.epoll), unix.Close(l.wake))
	}
	if err := unix.SetNonblock(l.epoll, true); err != nil { // what os.NewFile asks for
		return nil, errors.Join(err, unix.Close(l.epoll), unix.Close(l.wake))
	}
	l.poll = os.NewFile(uintptr(l.epoll), "epoll")
	if l.ready, err = l.poll.SyscallConn(); err != nil {
		return nil, errors.Join(err, l.poll.Close(), unix.Close(l.wake))
	}
	return l, nil
}

// do queues f to run on the loop's goroutine. It returns false if the loop has ended.
func (l *loop) do(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.inbox = append(l.inbox, f)
	if len(l.inbox) == 1 {
		// The write fails only if the counter is full, and then the loop wakes up too.
		_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	return true
}

// doAndWait runs f on the loop's goroutine and waits for it.
func (l *loop) doAndWait(f func()) {
	ran := make(chan struct{})
	if l.do(func() { f(); close(ran) }) {
		select {
		case <-ran:
		case <-l.done:
		}
	}
}

// run runs the loop until the generator is closed.
func (l *loop) run() {
	defer close(l.done)
	events := make([]unix.EpollEvent, eventsAtOnce)
	lastTick := Now()
	for l.generator.ctx.Err() == nil {
		n, err := l.wait(events, lastTick)
		if err != nil {
			l.fail("epoll: %v", err)
			break
		}
		for _, e := range events[:n] {
			if e.Fd >= 0 {
				l.readable(e)
			}
		}
		l.runInbox()
		now := Now()
		for len(l.timers) > 0 && l.timers[0].at <= now {
			heap.Pop(&l.timers).(timer).f()
		}
		if l.churn != nil {
			l.churnStep(now)
		}
		if now.Sub(lastTick) >= tick {
			lastTick = now
			l.checkAckTimeouts(now)
		}
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, a := range l.agents {
		l.hangUp(a)
	}
	_, _ = l.poll.Close(), unix.Close(l.wake)
}

// wait waits for events of connections, or until a timer or the next tick is due. A
// goroutine that blocks in epoll_wait, as in any system call, makes the runtime's
// monitor thread wake every 20 µs, which costs more than all agents do. So Go's poller
// watches the epoll descriptor, and epoll_wait is called without blocking.
func (l *loop) wait(events []unix.EpollEvent, lastTick MonoTime) (n int, err error) {
	until := lastTick + MonoTime(tick)
	if l.churn != nil {
		until = min(until, Now()+MonoTime(churnTick))
	}
	if len(l.timers) > 0 {
		until = min(until, l.timers[0].at)
	}
	if until != l.until {
		l.until = until
		if err := l.poll.SetReadDeadline(time.Now().Add(until.Sub(Now()))); err != nil {
			return 0, err
		}
	}
	poll := func() bool {
		n, err = unix.EpollWait(l.epoll, events, 0)
		if errors.Is(err, unix.EINTR) {
			n, err = 0, nil
		}
		return n != 0 || err != nil
	}
	if over := l.ready.Read(func(uintptr) bool { return poll() }); over != nil {
		if !errors.Is(over, os.ErrDeadlineExceeded) {
			return 0, over
		}
		poll() // a due timer must not keep the loop from its connections
	}
	return max(n, 0), err
}

func (l *loop) runInbox() {
	l.mu.Lock()
	todo := l.inbox
	l.inbox = nil
	if len(todo) > 0 {
		var counter [8]byte
		_, _ = unix.Read(l.wake, counter[:]) // an empty counter is fine
	}
	l.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

// checkAckTimeouts reconnects agents whose acknowledgement was not answered in time.
func (l *loop) checkAckTimeouts(now MonoTime) {
	l.stamp = ""
	for _, a := range l.agents {
		if a.phase == acking && now.Sub(a.sent) > ackTimeout {
			l.fail("agent %s: an acknowledgement was not answered within %s", a.id, ackTimeout)
			l.hangUp(a)
			l.redial(a)
		}
	}
}

// fail counts something that must never happen.
func (l *loop) fail(format string, args ...any) {
	l.count.Failures++
	if len(l.count.Texts) < keptTexts {
		l.count.Texts = append(l.count.Texts, fmt.Sprintf(format, args...))
	}
}

// connect connects an agent, which then checks in.
func (l *loop) connect(a *agent) {
	a.wantConnected, a.phase, a.connectStart, a.fails = true, dialing, Now(), 0
	l.dial(a)
}

func (l *loop) dial(a *agent) {
	a.phase = dialing
	if a.connectStart == 0 {
		a.connectStart = Now()
	}
	a.generation++
	generation := a.generation
	l.generator.requestDial(l, a, func(c *agentConn, h2 *h2Conn, err error) {
		switch {
		case a.generation != generation || !a.wantConnected:
			c.hangUp()
			return
		case err != nil:
			l.count.DialErrors++
			if len(l.count.DialTexts) < keptTexts {
				l.count.DialTexts = append(l.count.DialTexts, err.Error())
			}
			l.redial(a)
			return
		}
		a.conn, a.h2 = c, h2
		if c != nil {
			l.count.Handshake.Add(c.took)
			l.count.Connected++
			if c.resumed {
				l.count.Resumed++
			}
			event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(a.slot), Pad: int32(generation)}
			if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, c.socket.fd, &event); err != nil {
				l.fail("epoll: %v", err)
				l.hangUp(a)
				return
			}
		}
		l.sendNext(a)
	})
}

func (c *agentConn) hangUp() {
	if c != nil {
		_ = c.socket.Close() // without close_notify, like a host that loses its network
	}
}

// hangUp closes an agent's connection.
func (l *loop) hangUp(a *agent) {
	a.conn.hangUp()
	a.h2.close()
	a.conn, a.h2, a.partial = nil, nil, nil
	a.generation++
	a.toAck = append(a.ackSent, a.toAck...) // the server may or may not have received them
	a.ackSent = nil
	a.phase = disconnected
}

// connectionLost reconnects an agent whose connection has ended.
func (l *loop) connectionLost(a *agent) {
	if a.phase == polling || a.phase == acking {
		l.count.CutOff++
	}
	// At once, unless the previous connection was lost too, or it is not known whether
	// the agent was ever connected (HTTP/2).
	again := l.dial
	if a.h2 != nil || a.fails > 0 {
		again = l.redial
	}
	l.hangUp(a)
	if a.wantConnected {
		again(a)
		a.fails = max(a.fails, 1)
	}
}

// redial connects again after a growing backoff.
func (l *loop) redial(a *agent) {
	pause := min(firstRedial<<min(a.fails, 10), lastRedial)
	a.fails++
	l.after(a, pause/2+rand.N(pause/2), l.dial)
}

// after calls f for an agent after d, unless its connection has changed meanwhile.
func (l *loop) after(a *agent, d time.Duration, f func(*agent)) {
	a.phase = waiting
	generation := a.generation
	heap.Push(&l.timers, timer{Now() + MonoTime(d), func() {
		if a.generation == generation && a.wantConnected {
			f(a)
		}
	}})
}

// sendNext sends an agent's pending acknowledgements, or else its next check-in.
func (l *loop) sendNext(a *agent) {
	if len(a.toAck) > 0 {
		if l.stamp == "" {
			l.stamp = time.Now().UTC().Format(time.RFC3339)
		}
		a.phase, a.ackSent, a.toAck = acking, a.toAck, nil
		l.body = appendAcks(l.body[:0], a.id, l.stamp, a.ackSent)
		l.post(a, callAcks)
		return
	}
	a.phase = polling
	l.body = l.generator.template.appendCheckin(l.body[:0], a.host, a.id, a.token)
	l.post(a, callCheckin)
}

// post sends l.body as an agent's request.
func (l *loop) post(a *agent, call string) {
	l.sends++
	a.sent = Now()
	if a.phase == polling && a.connectStart != 0 {
		l.count.ConnectToCheckin.Add(a.sent.Sub(a.connectStart))
		l.count.LastCheckin, a.connectStart = a.sent, 0
	}
	if a.phase == polling {
		for _, action := range a.acked {
			l.record(action).parked[a.number] = a.sent
		}
		a.acked = nil
	}
	if a.h2 != nil {
		a.h2.post(l, a, call, append([]byte(nil), l.body...))
		return
	}
	l.out = appendRequest(l.out[:0], requestHead{l.generator.host, l.generator.Version, a.key, a.id, call, l.sends}, len(l.body))
	if _, err := a.conn.Write(append(l.out, l.body...)); err != nil {
		l.connectionLost(a)
	}
}

// readable reads from an agent's connection until it has no more data.
func (l *loop) readable(e unix.EpollEvent) {
	a := l.agents[e.Fd]
	if a.conn == nil || a.generation != uint32(e.Pad) {
		return
	}
	c := a.conn
	c.socket.drained = false
	// epoll does not report data that tls.Conn has already buffered, so read until empty.
	for a.conn == c {
		n, err := c.Read(l.buf)
		if n > 0 {
			l.handleBytes(a, l.buf[:n])
		}
		switch {
		case err == nil || a.conn != c:
		case errors.Is(err, errAgain):
			return
		default:
			if len(a.partial) > 0 && !errors.Is(err, io.EOF) {
				l.count.Broken++
			}
			l.connectionLost(a)
		}
	}
}

// handleBytes handles received bytes of answers.
func (l *loop) handleBytes(a *agent, b []byte) {
	if len(a.partial) > 0 {
		a.partial = append(a.partial, b...)
		b = a.partial
	}
	c := a.conn
	for len(b) > 0 && a.conn == c {
		ans, n, err := parseAnswer(b)
		if err != nil {
			l.fail("agent %s: %v", a.id, err)
			l.hangUp(a)
			l.redial(a)
			return
		}
		if n == 0 {
			// b is the loop's buffer or aliases a.partial.
			a.partial = append([]byte(nil), b...)
			return
		}
		b = b[n:]
		a.partial = nil
		l.handleAnswer(a, ans)
	}
}

// handleAnswer handles the answer to an agent's request.
func (l *loop) handleAnswer(a *agent, ans answer) {
	now := Now()
	asked := a.phase
	call := callOf(asked)
	if call == "" {
		l.fail("agent %s received an answer of %d without a request", a.id, ans.status)
		return
	}
	l.countAnswer(call, ans.status)
	a.fails = 0
	switch {
	case ans.status == http.StatusTooManyRequests || ans.status >= http.StatusInternalServerError:
		pause := ans.retryAfter
		if ans.status != http.StatusTooManyRequests {
			l.fail("agent %s: %s was answered %d: %s", a.id, call, ans.status, clip(ans.body))
		} else if pause < 0 {
			l.fail("agent %s: 429 without Retry-After", a.id)
		}
		if pause < 0 {
			pause = pauseAfterError
		}
		a.toAck, a.ackSent = append(a.ackSent, a.toAck...), nil
		if ans.close {
			l.hangUp(a)
			l.after(a, pause, l.dial)
		} else {
			l.after(a, pause, l.sendNext)
		}
		return
	case ans.status != http.StatusOK:
		l.fail("agent %s: %s was answered %d: %s", a.id, call, ans.status, clip(ans.body))
		l.hangUp(a)
		l.after(a, pauseAfterError, l.dial)
		return
	case asked == acking:
		l.handleAcks(a, ans, now)
	default:
		l.handleCheckin(a, ans, now)
	}
	if ans.close {
		l.hangUp(a)
		if a.wantConnected {
			l.dial(a)
		}
		return
	}
	l.sendNext(a)
}

// callOf returns the call whose answer an agent in phase p waits for, or "".
func callOf(p phase) string {
	switch p {
	case polling:
		return callCheckin
	case acking:
		return callAcks
	}
	return ""
}

const (
	callCheckin = "checkin"
	callAcks    = "acks"
)

func (l *loop) countAnswer(call string, status int) {
	switch {
	case status != http.StatusOK:
		l.count.Status[fmt.Sprintf("%s %d", call, status)]++
	case call == callCheckin:
		l.count.Checkins++
	default:
		l.count.Acks++
	}
}

func (l *loop) record(action string) *record {
	r := l.records[action]
	if r == nil {
		r = &record{delivered: map[int]MonoTime{}, acked: map[int]MonoTime{}, parked: map[int]MonoTime{}}
		l.records[action] = r
	}
	return r
}

// handleCheckin handles the answer to a check-in.
func (l *loop) handleCheckin(a *agent, ans answer, now MonoTime) {
	o, err := l.reader.checkin(ans.body, a.id)
	if err != nil {
		l.fail("%v", err)
		return
	}
	if o.token != "" {
		a.token = o.token
	}
	for _, act := range o.actions {
		if act.Type != agentapi.ActionUpgrade {
			// A policy, for instance.
			a.toAck = append(a.toAck, act.ID)
			continue
		}
		r := l.record(act.ID)
		if _, has := r.delivered[a.number]; has {
			r.duplicates++
		} else {
			r.delivered[a.number] = now
		}
		a.toAck = append(a.toAck, act.ID)
	}
}

// handleAcks handles the answer to acknowledgements.
func (l *loop) handleAcks(a *agent, ans answer, now MonoTime) {
	if err := l.reader.acksRefused(ans.body, len(a.ackSent)); err != nil {
		l.fail("agent %s: %v", a.id, err)
		a.ackSent = nil
		return
	}
	a.acked, a.ackSent = a.ackSent, nil
	for _, action := range a.acked {
		if r := l.records[action]; r != nil {
			if _, has := r.acked[a.number]; !has {
				r.acked[a.number] = now
			}
		}
	}
}

// timer is an entry of timers, a heap.
type timer struct {
	at MonoTime
	f  func()
}

type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}
