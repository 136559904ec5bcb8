//go:build linux

package herd

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

	"github.com/muster-fleet/muster/server/agentapi"
)

const (
	// eventsAtOnce is how many connections one call of epoll tells of.
	eventsAtOnce = 256
	// readBuffer holds the longest record of TLS.
	readBuffer = 16 << 10
	// tick is how often a loop looks for answers that never came.
	tick = time.Second
	// ackTimeout is a real agent's for every request but the long poll.
	ackTimeout = 30 * time.Second
	// firstRedial and lastRedial bound the pause before a connection that failed is
	// tried again: at a server that is being restarted each try costs little, and
	// the first that succeeds should not come late.
	firstRedial = 50 * time.Millisecond
	lastRedial  = time.Second
	// pauseAfterError is what an agent waits when the server has refused it and did
	// not say for how long.
	pauseAfterError = time.Second
	// keptTexts bounds the failures that are told in words; the rest is counted.
	keptTexts = 20
)

// loop owns some agents. Its goroutine alone looks at them; others hand it
// functions through do. It is level-triggered: what was not read is told again.
type loop struct {
	herd   *Herd
	epoll  int
	poll   *os.File // the same, as Go's own poller waits for it
	ready  syscall.RawConn
	until  Instant // that poll waits at most
	wake   int     // an eventfd
	agents []*agent
	timers timers
	buf    []byte // answers are read into it
	body   []byte // requests are built in these
	out    []byte
	reader reader
	sends  uint64
	stamp  string // the time of acknowledgements, a second old at most

	records map[string]*record
	count   Count
	churn   *churning

	mu     sync.Mutex
	inbox  []func()
	closed bool // nothing is taken in any more
	done   chan struct{}
}

// record is what became of one action.
type record struct {
	delivered, acked, parked map[int]Instant // by agent's number
	again                    int             // deliveries to an agent that had it
}

func newLoop(h *Herd) (*loop, error) {
	l := &loop{herd: h, buf: make([]byte, readBuffer), records: map[string]*record{}, done: make(chan struct{})}
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

// do lets the loop's goroutine run f. false: the loop has ended.
func (l *loop) do(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.inbox = append(l.inbox, f)
	if len(l.inbox) == 1 {
		// It can only fail when the counter is full, and then the loop wakes up too.
		_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	return true
}

// ask is do, and waits until f has run.
func (l *loop) ask(f func()) {
	ran := make(chan struct{})
	if l.do(func() { f(); close(ran) }) {
		select {
		case <-ran:
		case <-l.done:
		}
	}
}

// run serves until the herd is closed.
func (l *loop) run() {
	defer close(l.done)
	events := make([]unix.EpollEvent, eventsAtOnce)
	lastTick := Now()
	for l.herd.ctx.Err() == nil {
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
			l.churnOn(now)
		}
		if now.Since(lastTick) >= tick {
			lastTick = now
			l.sweep(now)
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

// wait gives the connections that have something, or none when there is something
// else to do. A goroutine that waits in epoll itself, as in any call of the system,
// keeps Go's monitor awake every 20 µs, which costs more than all agents. So epoll is
// watched by Go's poller, and asked without waiting.
func (l *loop) wait(events []unix.EpollEvent, lastTick Instant) (n int, err error) {
	until := lastTick + Instant(tick)
	if l.churn != nil {
		until = min(until, Now()+Instant(churnTick))
	}
	if len(l.timers) > 0 {
		until = min(until, l.timers[0].at)
	}
	if until != l.until {
		l.until = until
		if err := l.poll.SetReadDeadline(time.Now().Add(until.Since(Now()))); err != nil {
			return 0, err
		}
	}
	look := func() bool {
		n, err = unix.EpollWait(l.epoll, events, 0)
		if errors.Is(err, unix.EINTR) {
			n, err = 0, nil
		}
		return n != 0 || err != nil
	}
	if over := l.ready.Read(func(uintptr) bool { return look() }); over != nil {
		if !errors.Is(over, os.ErrDeadlineExceeded) {
			return 0, over
		}
		look() // time alone must not keep it from the connections
	}
	return max(n, 0), err
}

func (l *loop) runInbox() {
	l.mu.Lock()
	todo := l.inbox
	l.inbox = nil
	if len(todo) > 0 {
		var counter [8]byte
		_, _ = unix.Read(l.wake, counter[:]) // nothing to read is fine
	}
	l.mu.Unlock()
	for _, f := range todo {
		f()
	}
}

// sweep finds acknowledgements that are not answered.
func (l *loop) sweep(now Instant) {
	l.stamp = ""
	for _, a := range l.agents {
		if a.phase == acking && now.Since(a.sent) > ackTimeout {
			l.fail("agent %s: an acknowledgement was not answered within %s", a.id, ackTimeout)
			l.hangUp(a)
			l.redial(a)
		}
	}
}

// fail counts something that must not happen.
func (l *loop) fail(format string, args ...any) {
	l.count.Failures++
	if len(l.count.Texts) < keptTexts {
		l.count.Texts = append(l.count.Texts, fmt.Sprintf(format, args...))
	}
}

// come connects an agent, and lets it check in.
func (l *loop) come(a *agent) {
	a.wanted, a.phase, a.came, a.fails = true, dialing, Now(), 0
	l.dial(a)
}

func (l *loop) dial(a *agent) {
	a.phase = dialing
	if a.came == 0 {
		a.came = Now()
	}
	a.life++
	life := a.life
	l.herd.dialed(l, a, func(c *link, h2 *h2link, err error) {
		switch {
		case a.life != life || !a.wanted:
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
		a.link, a.h2 = c, h2
		if c != nil {
			l.count.Handshake.Add(c.took)
			l.count.Connected++
			if c.resumed {
				l.count.Resumed++
			}
			event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(a.slot), Pad: int32(life)}
			if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, c.socket.fd, &event); err != nil {
				l.fail("epoll: %v", err)
				l.hangUp(a)
				return
			}
		}
		l.next(a)
	})
}

func (c *link) hangUp() {
	if c != nil {
		_ = c.socket.Close() // without close_notify, as a host that loses its network
	}
}

// hangUp ends an agent's connection.
func (l *loop) hangUp(a *agent) {
	a.link.hangUp()
	a.h2.close()
	a.link, a.h2, a.partial = nil, nil, nil
	a.life++
	a.todo = append(a.acks, a.todo...) // whether they arrived is not known
	a.acks = nil
	a.phase = away
}

// lost is what an agent does when its connection has ended under it.
func (l *loop) lost(a *agent) {
	if a.phase == polling || a.phase == acking {
		l.count.CutOff++
	}
	// At once, but for one that has lost the last connection as well, or that may
	// never have had one.
	again := l.dial
	if a.h2 != nil || a.fails > 0 {
		again = l.redial
	}
	l.hangUp(a)
	if a.wanted {
		again(a)
		a.fails = max(a.fails, 1)
	}
}

// redial tries again after a pause that grows.
func (l *loop) redial(a *agent) {
	pause := min(firstRedial<<min(a.fails, 10), lastRedial)
	a.fails++
	l.after(a, pause/2+rand.N(pause/2), l.dial)
}

// after lets an agent wait.
func (l *loop) after(a *agent, d time.Duration, f func(*agent)) {
	a.phase = waiting
	life := a.life
	heap.Push(&l.timers, timer{Now() + Instant(d), func() {
		if a.life == life && a.wanted {
			f(a)
		}
	}})
}

// next sends what an agent has to say: acknowledgements before the next poll.
func (l *loop) next(a *agent) {
	if len(a.todo) > 0 {
		if l.stamp == "" {
			l.stamp = time.Now().UTC().Format(time.RFC3339)
		}
		a.phase, a.acks, a.todo = acking, a.todo, nil
		l.body = appendAcks(l.body[:0], a.id, l.stamp, a.acks)
		l.post(a, callAcks)
		return
	}
	a.phase = polling
	l.body = l.herd.says.appendCheckin(l.body[:0], a.host, a.id, a.token)
	l.post(a, callCheckin)
}

// post sends l.body.
func (l *loop) post(a *agent, call string) {
	l.sends++
	a.sent = Now()
	if a.phase == polling && a.came != 0 {
		l.count.Came.Add(a.sent.Since(a.came))
		l.count.LastCame, a.came = a.sent, 0
	}
	if a.phase == polling {
		for _, action := range a.done {
			l.record(action).parked[a.number] = a.sent
		}
		a.done = nil
	}
	if a.h2 != nil {
		a.h2.post(l, a, call, append([]byte(nil), l.body...))
		return
	}
	l.out = appendRequest(l.out[:0], requestHead{l.herd.host, l.herd.Version, a.key, a.id, call, l.sends}, len(l.body))
	if _, err := a.link.Write(append(l.out, l.body...)); err != nil {
		l.lost(a)
	}
}

// readable reads what there is on an agent's connection.
func (l *loop) readable(e unix.EpollEvent) {
	a := l.agents[e.Fd]
	if a.link == nil || a.life != uint32(e.Pad) {
		return
	}
	c := a.link
	c.socket.drained = false
	// Until there is nothing, for of what the tls.Conn keeps epoll does not tell.
	for a.link == c {
		n, err := c.Read(l.buf)
		if n > 0 {
			l.received(a, l.buf[:n])
		}
		switch {
		case err == nil || a.link != c:
		case errors.Is(err, errAgain):
			return
		default:
			if len(a.partial) > 0 && !errors.Is(err, io.EOF) {
				l.count.Broken++
			}
			l.lost(a)
		}
	}
}

// received takes in bytes of an answer.
func (l *loop) received(a *agent, b []byte) {
	if len(a.partial) > 0 {
		a.partial = append(a.partial, b...)
		b = a.partial
	}
	c := a.link
	for len(b) > 0 && a.link == c {
		ans, n, err := parseAnswer(b)
		if err != nil {
			l.fail("agent %s: %v", a.id, err)
			l.hangUp(a)
			l.redial(a)
			return
		}
		if n == 0 {
			// Copied, for b is the loop's or the agent's own.
			a.partial = append([]byte(nil), b...)
			return
		}
		b = b[n:]
		a.partial = nil
		l.answered(a, ans)
	}
}

// answered takes in an answer to what the agent has asked.
func (l *loop) answered(a *agent, ans answer) {
	now := Now()
	asked := a.phase
	call := callOf(asked)
	if call == "" {
		l.fail("agent %s was answered %d and has not asked", a.id, ans.status)
		return
	}
	l.counted(call, ans.status)
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
		a.todo, a.acks = append(a.acks, a.todo...), nil
		if ans.close {
			l.hangUp(a)
			l.after(a, pause, l.dial)
		} else {
			l.after(a, pause, l.next)
		}
		return
	case ans.status != http.StatusOK:
		l.fail("agent %s: %s was answered %d: %s", a.id, call, ans.status, clip(ans.body))
		l.hangUp(a)
		l.after(a, pauseAfterError, l.dial)
		return
	case asked == acking:
		l.acked(a, ans, now)
	default:
		l.given(a, ans, now)
	}
	if ans.close {
		l.hangUp(a)
		if a.wanted {
			l.dial(a)
		}
		return
	}
	l.next(a)
}

// callOf is the call that an agent in a phase waits for, "" for none.
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

func (l *loop) counted(call string, status int) {
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
		r = &record{delivered: map[int]Instant{}, acked: map[int]Instant{}, parked: map[int]Instant{}}
		l.records[action] = r
	}
	return r
}

// given takes in the answer to a check-in.
func (l *loop) given(a *agent, ans answer, now Instant) {
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
			a.todo = append(a.todo, act.ID)
			continue
		}
		r := l.record(act.ID)
		if _, has := r.delivered[a.number]; has {
			r.again++
		} else {
			r.delivered[a.number] = now
		}
		a.todo = append(a.todo, act.ID)
	}
}

// acked takes in the answer to acknowledgements.
func (l *loop) acked(a *agent, ans answer, now Instant) {
	if err := l.reader.acksRefused(ans.body, len(a.acks)); err != nil {
		l.fail("agent %s: %v", a.id, err)
		a.acks = nil
		return
	}
	a.done, a.acks = a.acks, nil
	for _, action := range a.done {
		if r := l.records[action]; r != nil {
			if _, has := r.acked[a.number]; !has {
				r.acked[a.number] = now
			}
		}
	}
}

// timer is one of a loop's timers; timers are a heap of them.
type timer struct {
	at Instant
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
