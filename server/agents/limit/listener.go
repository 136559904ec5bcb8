package limit

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

const (
	// firstByteWait bounds how long a connection may be silent before its handshake. A lost
	// first message is sent again after 1 s.
	firstByteWait = 2 * time.Second
	// handshakeTimeout bounds one handshake from its start: three round trips of a lossy
	// link with a lost packet each. HTTP clients also wait 10 s.
	handshakeTimeout = 10 * time.Second
	// maxHandshakeWait bounds how long a connection waits for the start of its handshake.
	// By then its client has given up.
	maxHandshakeWait = 10 * time.Second
	// burstsPerSecond divides the handshakes of a second into bursts of at most 20 ms of
	// CPU time, so that other requests run in between.
	burstsPerSecond = 50
	// minNewcomers is how many newcomers there may be at least: a storm of reconnecting
	// agents needs some tens at a time.
	minNewcomers = 64
	// Overflow is how many connections beyond Limits.Agents are answered with a 429. Any
	// more are closed without a handshake, so that they cannot use up the descriptors that
	// the store and the admin API need.
	Overflow = 64
	// agentConnections is how many connections one agent's key may have: an agent has one for
	// its check-ins, and a few for what it reports and downloads. The rest is for those of a
	// host whose network breaks again and again, until the kernel has found them dead.
	agentConnections = 32
)

// connections counts the agents' connections and their handshakes.
type connections struct {
	open, overflow *pool
	handshakes     *places[netip.Prefix]
	// newcomers are connections from their handshake to the first authenticated request.
	// Each costs a goroutine and buffers, as no parked connection does.
	newcomers *places[netip.Prefix]
	strangers counts[netip.Prefix]
	owners    counts[string]

	full, resumed, failed atomic.Uint64
}

func newConnections(l Limits) connections {
	return connections{
		open: newPool(int64(l.Agents), 0, 0), overflow: newPool(Overflow, 0, 0),
		handshakes: newPlaces[netip.Prefix](l.Handshakes, l.Agents+Overflow), // all that are open may wait
		newcomers:  newPlaces[netip.Prefix](max(minNewcomers, int(l.BodyBytes/requestMemory)), l.Agents+Overflow),
	}
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
// progress; other connections wait. One that sends nothing takes no part in that.
type Listener struct {
	net.Listener
	admission *Admission
	config    *tls.Config
	log       *slog.Logger

	pace    *rate.Limiter
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
	l := &Listener{
		Listener: inner, admission: a, config: config, log: log,
		pace: rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/burstsPerSecond)), ready: make(chan accepted),
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

// Close closes the listener and the connections whose handshake is not done.
func (l *Listener) Close() error {
	l.cancel()
	err := l.Listener.Close()
	l.running.Wait()
	return err
}

func (l *Listener) acceptAll() {
	for l.ctx.Err() == nil {
		c, err := l.Listener.Accept()
		if err != nil {
			// The server decides which errors it retries.
			if !l.deliver(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		own := l.admission.count(c)
		if own == nil {
			l.log.Debug("connection closed: more connections than the server takes, or takes from one address", "from", c.RemoteAddr().String())
			continue
		}
		l.running.Go(func() { l.serve(own) })
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

// waitForHandshake waits for the connection's turn to acquire a place for its handshake,
// and then for its start.
func (l *Listener) waitForHandshake(c *conn) error {
	ctx, cancel := context.WithTimeout(l.ctx, maxHandshakeWait)
	defer cancel()
	if err := l.admission.newcomers.acquire(ctx, c.source); err != nil {
		return err
	}
	c.newcomers = l.admission.newcomers
	if err := l.admission.handshakes.acquire(ctx, c.source); err != nil {
		return err
	}
	err := l.pace.Wait(ctx) // at most the holders of places wait here, a few milliseconds
	if err != nil {
		l.admission.handshakes.release(c.source)
	}
	return err
}

func (l *Listener) handshake(c *conn, secured *tls.Conn) error {
	if err := c.awaitFirst(l.ctx); err != nil {
		return err
	}
	if err := l.waitForHandshake(c); err != nil {
		return err
	}
	defer l.admission.handshakes.release(c.source)
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	if err := secured.HandshakeContext(l.ctx); err != nil {
		return err
	}
	state := secured.ConnectionState()
	if state.DidResume {
		l.admission.resumed.Add(1)
	} else {
		l.admission.full.Add(1)
	}
	c.http2 = state.NegotiatedProtocol == "h2"
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
	source    netip.Prefix
	pool      *pool
	strangers *counts[netip.Prefix] // nil if it is not counted there
	always    bool                  // whether it is counted there until it is closed
	owners    *counts[string]       // nil if it is not counted there
	newcomers *places[netip.Prefix] // nil before it is one
	over      bool                  // beyond Limits.Agents: requests are refused, and it is closed
	http2     bool
	closed    atomic.Bool

	owning sync.Mutex
	known  atomic.Bool // a request was authenticated
	owner  string      // the key of that request

	first   [1]byte
	waiting bool // first was read from Conn, and not yet by Read
}

// awaitFirst waits until the client has sent something. Close of the listener ends it.
func (c *conn) awaitFirst(ctx context.Context) error {
	_ = c.SetReadDeadline(time.Now().Add(firstByteWait))
	stop := context.AfterFunc(ctx, func() { c.Conn.Close() })
	defer stop()
	_, err := io.ReadFull(c.Conn, c.first[:])
	c.waiting = err == nil
	return err
}

// Read returns the byte that awaitFirst has read before those that follow.
func (c *conn) Read(b []byte) (int, error) {
	if !c.waiting || len(b) == 0 {
		return c.Conn.Read(b)
	}
	c.waiting = false
	b[0] = c.first[0]
	if len(b) == 1 {
		return 1, nil
	}
	n, err := c.Conn.Read(b[1:]) // TLS has no message of one byte, so more follows
	return n + 1, err
}

// counts are the open connections of each source, or of each key. Those of a source are its
// connections of which no request has been authenticated, so that one host without a key
// cannot take the agents' connections; those of a key keep one key from the same.
type counts[K comparable] struct {
	mu   sync.Mutex
	open map[K]int64
}

// enter counts a connection, unless there are as many already as there may be.
func (s *counts[K]) enter(from K, most int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[from] >= most {
		return false
	}
	if s.open == nil {
		s.open = map[K]int64{}
	}
	s.open[from]++
	return true
}

func (s *counts[K]) leave(from K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[from]--; s.open[from] == 0 {
		delete(s.open, from)
	}
}

// own returns c with the slot of p that the caller has acquired for it. If its source has
// its share of the connections that were free before it, own releases the slot and returns
// nil.
func own(c net.Conn, p *pool, strangers *counts[netip.Prefix], owners *counts[string]) *conn {
	from := sourceOf(c.RemoteAddr())
	if !strangers.enter(from, shareOf(p)) {
		p.release(1)
		return nil
	}
	return &conn{Conn: c, source: from, pool: p, strangers: strangers, owners: owners}
}

// shareOf is how many connections one source or key may have, for a connection that has its
// slot of p already.
func shareOf(p *pool) int64 { return share * (p.max - p.used.Load() + 1) }

// count acquires a slot for c, or closes c if there are too many connections.
func (a *Admission) count(c net.Conn) *conn {
	if a.open.tryAcquire(1) {
		if own := own(c, a.open, &a.strangers, &a.owners); own != nil {
			return own
		}
		a.open.limited.Add(1)
		reset(c)
		return nil
	}
	a.open.limited.Add(1)
	if !a.overflow.tryAcquire(1) {
		reset(c)
		return nil
	}
	own := &conn{Conn: c, source: sourceOf(c.RemoteAddr()), pool: a.overflow, over: true}
	return own
}

// reset closes a connection without TIME_WAIT.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// adminConnections bounds the connections of the admin API and the web UI, so that they
// cannot use up the files of agents and of the store. A browser opens one, or six with
// HTTP/1.1. One source may have more than adminRequests and adminWaiting: beyond these it is
// answered 429, as a script can understand.
const adminConnections = 256

// adminListener bounds how many of its connections are open.
type adminListener struct {
	net.Listener
	open      *pool
	strangers counts[netip.Prefix] // all, since operators are few
	owners    counts[string]
}

// AdminListener returns a listener of the admin API. It closes connections beyond its
// limit, and those of one source beyond its share.
func AdminListener(inner net.Listener) net.Listener {
	return &adminListener{Listener: inner, open: newPool(adminConnections, 0, 0)}
}

// Accept implements net.Listener.
func (l *adminListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.tryAcquire(1) {
			if own := own(c, l.open, &l.strangers, &l.owners); own != nil {
				own.always = true
				return own, nil
			}
		}
		reset(c)
	}
}

// recognise counts c as a connection of owner, and no longer as a stranger's. It reports false,
// and changes nothing, if owner has as many as it may.
func (c *conn) recognise(owner string, most int64) bool {
	c.owning.Lock()
	defer c.owning.Unlock()
	if c.known.Load() {
		return true
	}
	if owner != "" && c.owners != nil {
		if !c.owners.enter(owner, most) {
			return false
		}
		c.owner = owner
	}
	c.known.Store(true)
	if c.strangers != nil && !c.always {
		c.strangers.leave(c.source)
	}
	if c.newcomers != nil {
		c.newcomers.release(c.source)
	}
	return true
}

func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.recognise("", 0) // no later request gives it an owner
		if c.strangers != nil && c.always {
			c.strangers.leave(c.source)
		}
		if c.owner != "" {
			c.owners.leave(c.owner)
		}
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

type strangerKey struct{}

// ConnContext is for http.Server. It keeps the connection of an agent that is not
// authenticated yet, for Refused, Known and Stranger.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		if own, ok := secured.NetConn().(*conn); ok && (own.over || !own.known.Load()) {
			return context.WithValue(ctx, strangerKey{}, own)
		}
	}
	return ctx
}

// HTTP2 reports whether a connection of the Listener speaks HTTP/2.
func HTTP2(c net.Conn) bool {
	secured, ok := c.(*tls.Conn)
	if !ok {
		return false
	}
	own, ok := secured.NetConn().(*conn)
	return ok && own.http2
}

func stranger(ctx context.Context) (*conn, bool) {
	c, ok := ctx.Value(strangerKey{}).(*conn)
	return c, ok
}

// Refused reports whether the connection of a request is beyond the limit of agents.
func Refused(ctx context.Context) bool {
	c, ok := stranger(ctx)
	return ok && c.over
}

// Known says that the request of ctx was authenticated by the key with the id owner. A key
// has its share of the connections: for one beyond it Known returns a refusal of kind TooMany,
// after whose answer the connection must be closed.
func Known(ctx context.Context, owner string) error { return known(ctx, owner, math.MaxInt64) }

// KnownAgent is Known for the key of an agent, of whose connections there are few.
func KnownAgent(ctx context.Context, id string) error { return known(ctx, id, agentConnections) }

func known(ctx context.Context, owner string, most int64) error {
	c, ok := stranger(ctx)
	if !ok || c.recognise(owner, min(most, shareOf(c.pool))) {
		return nil
	}
	return tooMany(time.Second+rand.N(retrySpread), "too many connections with this key are open: use those again, or close some")
}

// Stranger reports whether no request of the connection has been authenticated.
func Stranger(ctx context.Context) bool {
	c, ok := stranger(ctx)
	return ok && !c.over && !c.known.Load()
}
