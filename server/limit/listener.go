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
	// handshakeTimeout bounds one handshake from its start: three round trips of a lossy
	// link with a lost packet each. HTTP clients also wait 10 s.
	handshakeTimeout = 10 * time.Second
	// maxHandshakeWait bounds how long a connection waits for the start of its handshake.
	// By then its client has given up.
	maxHandshakeWait = 10 * time.Second
	// waitingSeconds is for how many seconds of handshakes connections wait in the
	// process. More wait in the kernel, where they cost less; with more in the process the
	// server would make handshakes with clients that have given up.
	waitingSeconds = 4
	// burstsPerSecond divides the handshakes of a second into bursts of at most 20 ms of
	// CPU time, so that other requests run in between.
	burstsPerSecond = 50
	// Overflow is how many connections beyond Limits.Agents are answered with a 429. Any
	// more are closed without a handshake, so that they cannot use up the descriptors that
	// the store and the admin API need.
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

// Handshakes returns how many handshakes are in progress.
func (c *connections) Handshakes() Use { return c.handshakes.use() }

// HandshakesDone returns how many handshakes since the start were full, resumed a session,
// or failed.
func (c *connections) HandshakesDone() (full, resumed, failed uint64) {
	return c.full.Load(), c.resumed.Load(), c.failed.Load()
}

// Listener accepts connections and returns them after their TLS handshake. Handshakes
// start at a rate of Limits.HandshakesPerSecond, and at most Limits.Handshakes are in
// progress; other connections wait, some in the process and the rest in the kernel.
type Listener struct {
	net.Listener
	admission *Admission
	config    *tls.Config
	log       *slog.Logger

	pace    *rate.Limiter
	pending *semaphore.Weighted // accepted connections before the end of their handshake
	ready   chan accepted
	ctx     context.Context //nolint:containedctx // canceled by Close
	cancel  context.CancelFunc
	running sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// Listener returns a TLS listener on inner, and starts to accept. The caller must close it.
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

// Accept waits for the next connection after its handshake, a *tls.Conn.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close closes the listener and the connections whose handshake is in progress.
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
			if !l.deliver(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
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

// deliver passes a result to Accept. It returns false if the listener is closed.
func (l *Listener) deliver(a accepted) bool {
	select {
	case l.ready <- a:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// serve makes the handshake of a connection and passes it to Accept, or closes it.
func (l *Listener) serve(c *conn) {
	secured := tls.Server(c, l.config)
	err := l.handshake(c, secured)
	if err == nil && l.deliver(accepted{conn: secured}) {
		return
	}
	if l.ctx.Err() == nil {
		l.admission.failed.Add(1)
		l.log.Debug("handshake failed", "from", c.RemoteAddr().String(), "error", err)
		answerPlain(err)
	}
	c.Close()
}

// waitForHandshake waits until another handshake may start, and acquires a slot for it.
func (l *Listener) waitForHandshake() error {
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
	if err := l.waitForHandshake(); err != nil {
		return err
	}
	defer l.admission.handshakes.release(1)
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

// answerPlain answers a client that used http instead of https.
func answerPlain(err error) {
	var header tls.RecordHeaderError
	if errors.As(err, &header) && header.Conn != nil && 'A' <= header.RecordHeader[0] && header.RecordHeader[0] <= 'Z' { // GET, POST
		const text = "This port speaks TLS: write https:// for http://\n"
		_, _ = io.WriteString(header.Conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"+text)
	}
}

// conn is a connection that holds a slot of a pool.
type conn struct {
	net.Conn
	pool   *pool
	over   bool // beyond Limits.Agents: requests are refused, and it is closed
	closed atomic.Bool
}

// count acquires a slot for c, or closes c if there are too many connections.
func (a *Admission) count(c net.Conn) *conn {
	if a.open.tryAcquire(1) {
		return &conn{Conn: c, pool: a.open}
	}
	a.open.limited.Add(1)
	if a.overflow.tryAcquire(1) {
		return &conn{Conn: c, pool: a.overflow, over: true}
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // avoids TIME_WAIT
	}
	c.Close()
	return nil
}

func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.pool.release(1)
	}
	return c.Conn.Close()
}

// SyscallConn lets the parker wait for the connection without a read.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.Conn.(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

type refusedKey struct{}

// ConnContext is for http.Server. It marks the requests of connections beyond the limit
// of agents, for Refused.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		if own, ok := secured.NetConn().(*conn); ok && own.over {
			return context.WithValue(ctx, refusedKey{}, true)
		}
	}
	return ctx
}

// Refused reports whether the connection of a request is beyond the limit of agents.
func Refused(ctx context.Context) bool { return ctx.Value(refusedKey{}) != nil }
