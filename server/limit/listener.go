package limit

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

const (
	// handshakeTimeout is for one handshake from its start: three round trips of a
	// lossy link with a lost packet each. HTTP clients give it 10 s too.
	handshakeTimeout = 10 * time.Second
	// maxHandshakeWait is how long a connection waits for the start of its handshake:
	// by then its client has given up.
	maxHandshakeWait = 10 * time.Second
	// waitingSeconds is how many seconds' worth of connections wait for their handshake
	// in the process. More wait in the kernel, where they cost less; more in the process
	// would mean handshakes for clients that have given up.
	waitingSeconds = 4
	// burstsPerSecond divides the handshakes of a second: no more than 20 ms' worth of
	// processor time starts together, so that other requests run between.
	burstsPerSecond = 50
	// Overflow is how many connections beyond Limits.Agents are told so with a 429; more
	// than these at once are closed without a handshake, so that they cannot use up the
	// files that the store and the admin API need.
	Overflow = 64
)

// connections counts the agents' connections and their handshakes.
type connections struct {
	open, overflow, handshakes *pool
	full, resumed, failed      atomic.Uint64
}

func newConnections(l Limits) connections {
	return connections{open: newPool(int64(l.Agents), 0, 0), overflow: newPool(Overflow, 0, 0), handshakes: newPool(int64(l.Handshakes), 0, 0)}
}

// Connections returns how many connections of agents are open, including those that
// wait for their handshake.
func (c *connections) Connections() Use { return c.open.use() }

// Handshakes returns how many are under way.
func (c *connections) Handshakes() Use { return c.handshakes.use() }

// HandshakesDone counts handshakes since the start: those in full, those that
// resumed an earlier session, and those that failed.
func (c *connections) HandshakesDone() (full, resumed, failed uint64) {
	return c.full.Load(), c.resumed.Load(), c.failed.Load()
}

// Listener returns connections whose TLS handshake is done. Handshakes start at
// Limits.HandshakesPerSecond, and Limits.Handshakes are under way at once; other
// connections wait, some in the process and the rest in the kernel.
type Listener struct {
	net.Listener
	admission *Admission
	config    *tls.Config
	log       *slog.Logger

	pace    *rate.Limiter
	pending *semaphore.Weighted // accepted connections whose handshake has not ended
	ready   chan accepted
	ctx     context.Context //nolint:containedctx // it ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// Listener puts TLS on top of inner and starts to accept. Close must follow.
func (a *Admission) Listener(inner net.Listener, config *tls.Config, log *slog.Logger) *Listener {
	perSecond := a.Limits.HandshakesPerSecond
	pending := min(waitingSeconds*perSecond, a.Limits.Agents) + a.Limits.Handshakes + Overflow
	l := &Listener{
		Listener: inner, admission: a, config: config, log: log,
		pace:    rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/burstsPerSecond)),
		pending: semaphore.NewWeighted(int64(pending)), ready: make(chan accepted),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.running.Go(l.acceptAll)
	return l
}

// Accept waits for the next connection that is ready, a *tls.Conn.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the listener and the handshakes under way.
func (l *Listener) Close() error {
	l.cancel()
	err := l.Listener.Close()
	l.running.Wait()
	return err
}

func (l *Listener) acceptAll() {
	for l.pending.Acquire(l.ctx, 1) == nil {
		c, err := l.Listener.Accept()
		if err != nil {
			l.pending.Release(1)
			// The server decides which errors it retries.
			if !l.hand(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		own := l.admission.count(c)
		if own == nil {
			l.pending.Release(1)
			l.log.Debug("connection closed: more connections than the server takes", "from", c.RemoteAddr().String())
			continue
		}
		l.running.Go(func() {
			defer l.pending.Release(1)
			l.serve(own)
		})
	}
}

// hand gives a result to Accept. It returns false when the listener is closed.
func (l *Listener) hand(a accepted) bool {
	select {
	case l.ready <- a:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// serve brings a connection through its handshake to Accept, or closes it.
func (l *Listener) serve(c *conn) {
	secured := tls.Server(c, l.config)
	err := l.handshake(c, secured)
	if err == nil && l.hand(accepted{conn: secured}) {
		return
	}
	if l.ctx.Err() == nil {
		l.admission.failed.Add(1)
		l.log.Debug("handshake failed", "from", c.RemoteAddr().String(), "error", err)
		answerPlain(err)
	}
	c.Close()
}

// turn waits until the handshake of a connection may start.
func (l *Listener) turn() error {
	ctx, cancel := context.WithTimeout(l.ctx, maxHandshakeWait)
	defer cancel()
	l.admission.handshakes.waiting.Add(1)
	defer l.admission.handshakes.waiting.Add(-1)
	err := l.pace.Wait(ctx)
	if err == nil {
		err = l.admission.handshakes.acquire(ctx)
	}
	return err
}

func (l *Listener) handshake(c *conn, secured *tls.Conn) error {
	if err := l.turn(); err != nil {
		return err
	}
	defer l.admission.handshakes.give(1)
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := secured.HandshakeContext(l.ctx); err != nil {
		return err
	}
	if secured.ConnectionState().DidResume {
		l.admission.resumed.Add(1)
	} else {
		l.admission.full.Add(1)
	}
	return c.SetDeadline(time.Time{})
}

// answerPlain answers a client that wrote http for https.
func answerPlain(err error) {
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && 'A' <= header.RecordHeader[0] && header.RecordHeader[0] <= 'Z' { // GET, POST
		const text = "This port speaks TLS: write https:// for http://\n"
		_, _ = io.WriteString(header.Conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"+text)
	}
}

// conn is a connection that is counted in one of the pools.
type conn struct {
	net.Conn
	pool   *pool
	over   bool // beyond Limits.Agents: its requests are refused, and it is closed
	closed atomic.Bool
}

// count counts c as open, or closes it where there are far too many.
func (a *Admission) count(c net.Conn) *conn {
	if a.open.take(1) {
		return &conn{Conn: c, pool: a.open}
	}
	a.open.limited.Add(1)
	if a.overflow.take(1) {
		return &conn{Conn: c, pool: a.overflow, over: true}
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the kernel need not remember it either
	}
	c.Close()
	return nil
}

func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.pool.give(1)
	}
	return c.Conn.Close()
}

// SyscallConn gives the descriptor to those who wait for the connection without a
// read.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

type refusedKey struct{}

// ConnContext is for http.Server: it lets requests know that their connection is
// beyond the limit of agents.
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
