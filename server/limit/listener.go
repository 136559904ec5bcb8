package limit

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

const (
	// handshakeTimeout is for one handshake from its turn on: three round trips of a
	// lossy link with a lost packet each. HTTP clients give it 10 s too.
	handshakeTimeout = 10 * time.Second
	// turnWait is how many seconds' worth of connections wait for their handshake in
	// the process. More wait in the kernel, where they cost less but where, beyond
	// some thousand, the network drops them and they try again seconds later; their
	// clients give up after 10 s.
	turnWait = 4
	// computing is how many handshakes a processor may have to compute: one, and one
	// that is ready when that is done. The others wait for their turn, those for whom
	// the client's part has come behind them, so that a request of the admin API finds
	// no long queue before the processors.
	computing = 2
	// busyCheckins is how many check-ins a processor may have to work on before no
	// more handshakes begin: each connection brings one, with 25 KB of its own, and a
	// request of the admin API waits behind all that can run. A connection that waits
	// for its handshake takes 1 KB, and no processor.
	busyCheckins = 64
	// busyWait bounds how long one connection waits for that: a store that hangs
	// holds check-ins for seconds, and agents give up a handshake after 10.
	busyWait = 50 * time.Millisecond
	// busyLook is how often it is looked whether they are fewer: some 10 check-ins.
	busyLook = time.Millisecond
	// atOnce is which part of a second's handshakes may begin together: 20 ms' worth,
	// so that a request of the admin API waits no longer for a processor.
	atOnce = 50
)

// connections are what an Admission knows of the agents' connections.
type connections struct {
	open, overflow     atomic.Int64
	turned             atomic.Uint64
	handshaking        atomic.Int64
	queued             atomic.Int64
	full, resumed, bad atomic.Uint64
}

// Connections says how many agents' connections are open, those that wait for
// their handshake among them.
func (a *Admission) Connections() Use {
	return Use{Max: int64(a.Limits.Agents), Used: a.open.Load(), Limited: a.turned.Load()}
}

// Handshakes says how many are under way.
func (a *Admission) Handshakes() Use {
	return Use{Max: int64(a.Limits.Handshakes), Used: a.handshaking.Load(), Waiting: int(a.queued.Load())}
}

// HandshakesDone counts handshakes since the start: those in full, those that
// resumed an earlier session, and those that failed.
func (a *Admission) HandshakesDone() (full, resumed, failed uint64) {
	return a.full.Load(), a.resumed.Load(), a.bad.Load()
}

// Listener gives connections whose TLS handshake is done. It begins as many in a
// second as the limits say, in the order in which the connections came; meanwhile
// the others wait, first in the process, then in the kernel, and nobody is refused
// for being one of many. Accept starts it, Close ends it.
type Listener struct {
	of     *Admission
	inner  net.Listener
	config *tls.Config
	log    *slog.Logger

	turns chan *conn
	seats chan struct{} // taken by handshakes that compute
	ready chan accepted
	ctx   context.Context //nolint:containedctx // it is Close's
	close context.CancelFunc

	mu      sync.Mutex
	started bool
	running sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// Listener puts TLS on top of inner.
func (a *Admission) Listener(inner net.Listener, config *tls.Config, log *slog.Logger) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	turns := min(turnWait*a.Limits.HandshakesPerSecond, a.Limits.Agents) + Overflow
	return &Listener{of: a, inner: inner, config: config, log: log, turns: make(chan *conn, turns), seats: make(chan struct{}, computing*runtime.GOMAXPROCS(0)), ready: make(chan accepted), ctx: ctx, close: cancel}
}

// Addr is the inner listener's.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Accept waits for the next connection that is ready, a *tls.Conn.
func (l *Listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	if !l.started && l.ctx.Err() == nil {
		l.started = true
		l.running.Go(l.acceptAll)
		l.running.Go(l.handshakeAll)
	}
	l.mu.Unlock()
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the listener and the handshakes under way.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.close()
	l.mu.Unlock()
	err := l.inner.Close()
	l.running.Wait()
	for {
		select {
		case c := <-l.turns:
			l.of.queued.Add(-1)
			c.Close()
		default:
			return err
		}
	}
}

func (l *Listener) acceptAll() {
	for {
		c, err := l.inner.Accept()
		if err != nil {
			select {
			case l.ready <- accepted{err: err}: // whoever serves knows which errors pass
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue
			case <-l.ctx.Done():
				return
			}
		}
		own := l.of.count(c)
		if own == nil {
			l.log.Debug("connection closed", "from", c.RemoteAddr().String(), "error", errOver)
			continue
		}
		l.of.queued.Add(1)
		select {
		case l.turns <- own:
		case <-l.ctx.Done():
			l.of.queued.Add(-1)
			own.Close()
			return
		}
	}
}

// count counts c as open, or closes it where there are far too many.
func (a *Admission) count(c net.Conn) *conn {
	if a.open.Add(1) <= int64(a.Limits.Agents) {
		return &conn{Conn: c, of: a}
	}
	a.open.Add(-1)
	a.turned.Add(1)
	if a.overflow.Add(1) > Overflow {
		a.overflow.Add(-1)
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // the kernel need not remember it either
		}
		c.Close()
		return nil
	}
	return &conn{Conn: c, of: a, over: true}
}

func (l *Listener) handshakeAll() {
	perSecond := l.of.Limits.HandshakesPerSecond
	pace := rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/atOnce))
	places := make(chan struct{}, l.of.Limits.Handshakes)
	for {
		select {
		case places <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		var c *conn
		select {
		case c = <-l.turns:
			l.of.queued.Add(-1)
		case <-l.ctx.Done():
			return
		}
		if pace.Wait(l.ctx) != nil {
			c.Close()
			return
		}
		for until := time.Now().Add(busyWait); l.of.busy() && time.Now().Before(until) && l.ctx.Err() == nil; {
			time.Sleep(busyLook)
		}
		l.of.Courtesy.StepAside()
		l.running.Go(func() {
			defer func() { <-places }()
			l.handshake(c)
		})
	}
}

// busy says that there are more check-ins to work on than the processors should have.
func (a *Admission) busy() bool {
	use := a.gates[Checkin].use()
	return int(use.Used)+use.Waiting > busyCheckins*runtime.GOMAXPROCS(0)
}

func (l *Listener) handshake(c *conn) {
	l.of.handshaking.Add(1)
	secured := tls.Server(c, l.config)
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	c.seats = l.seats
	c.sit()
	err := secured.HandshakeContext(l.ctx)
	<-c.seats
	c.seats = nil
	l.of.handshaking.Add(-1)
	if err != nil {
		l.of.bad.Add(1)
		l.log.Debug("handshake failed", "from", c.RemoteAddr().String(), "error", err)
		answerPlain(err)
		c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	if secured.ConnectionState().DidResume {
		l.of.resumed.Add(1)
	} else {
		l.of.full.Add(1)
	}
	select {
	case l.ready <- accepted{conn: secured}:
	case <-l.ctx.Done():
		c.Close()
	}
}

// answerPlain tells a person who wrote http for https.
func answerPlain(err error) {
	var header tls.RecordHeaderError
	if !errors.As(err, &header) || header.Conn == nil {
		return
	}
	switch string(header.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		const text = "This port speaks TLS: write https:// for http://\n"
		_, _ = io.WriteString(header.Conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"+text)
	}
}

// conn is a connection that counts.
type conn struct {
	net.Conn
	of     *Admission
	over   bool // beyond the limit: it is told so, and closed
	closed atomic.Bool
	seats  chan struct{} // of the handshake under way, which has one; nil: there is none
}

// Read leaves the seat of a handshake that waits for its client to another.
func (c *conn) Read(b []byte) (int, error) {
	if c.seats == nil {
		return c.Conn.Read(b)
	}
	<-c.seats
	n, err := c.Conn.Read(b)
	c.sit()
	return n, err
}

// sit waits for a seat. Who has one steps aside for the admin API: so few do at a time,
// and none computes meanwhile.
func (c *conn) sit() {
	c.seats <- struct{}{}
	// Who is handed a seat is woken to run next, before all that could run already, and
	// then hands it on. Unless each goes to the end of the line, one handshake follows
	// the other, and a request of the admin API waits for hundreds.
	runtime.Gosched()
	c.of.Courtesy.StepAside()
}

func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		if c.over {
			c.of.overflow.Add(-1)
		} else {
			c.of.open.Add(-1)
		}
	}
	return c.Conn.Close()
}

// SyscallConn gives the descriptor, for who waits for the connection otherwise
// than by a read.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

type refusedKey struct{}

// ConnContext is for http.Server: it lets requests know that their connection is
// beyond the limit.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		if own, ok := secured.NetConn().(*conn); ok && own.over {
			return context.WithValue(ctx, refusedKey{}, true)
		}
	}
	return ctx
}

// Refused says that the connection of a request is beyond the limit of agents.
func Refused(ctx context.Context) bool { return ctx.Value(refusedKey{}) != nil }
