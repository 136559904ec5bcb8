//go:build linux

package herd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// MaxAgents is how many agents one process can have where it may open 20,000
	// descriptors: the rest is for connections that are being made.
	MaxAgents = 19_000
	// DefaultDials is how many connections a herd makes at once: enough that the
	// server, not the herd, is what a storm waits for.
	DefaultDials = 500
)

// Options say which agents a process has and which server they load. Server, CA and
// Token are required.
type Options struct {
	// Server is its base URL.
	Server string
	// CA is the authority of its certificate in PEM.
	CA string
	// Token is the enrolment token.
	Token string
	// Tags are those of every agent.
	Tags []string
	// First is the number of the first agent: herds of one run have no number in
	// common.
	First int
	// Version is what the agents say they run.
	Version string
	// HTTP2 is the share of agents that speak HTTP/2, 0 to 1.
	HTTP2 float64
	// Dials is how many connections are made at once; 0: DefaultDials.
	Dials int
}

// Herd is the agents of one process.
type Herd struct {
	Options
	ctx       context.Context //nolint:containedctx // it is the herd's life
	stop      context.CancelFunc
	firstTLS  *tls.Config // of an agent's first connection, which makes a full handshake
	tls       *tls.Config // of later ones, which resume
	address   string      // host:port
	host      string      // what requests call the server
	loopback  bool
	says      pieces
	loops     []*loop
	running   sync.WaitGroup // loops and dialers
	enrolled  int
	enrolling atomic.Int64 // of them that the server has taken, those of a call that goes on too

	mu      sync.Mutex
	dials   []dialJob
	dialers int

	profile  bytes.Buffer // the one that goes on
	profiled bool         // one does
}

type dialJob struct {
	loop  *loop
	agent int // number
	first bool
	done  func(*link, error)
}

// New makes a herd without agents. Close ends it.
func New(o Options) (*Herd, error) {
	h := &Herd{Options: o, says: newPieces(o.Version)}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(o.CA)) {
		return nil, errors.New("ca: has no certificate in PEM")
	}
	u, err := url.Parse(o.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("server: is %q, want https://host:port", o.Server)
	}
	h.host, h.address, h.loopback = u.Host, u.Host, IsLoopback4(u.Hostname())
	if u.Port() == "" {
		h.address = net.JoinHostPort(u.Hostname(), "443")
	}
	last := &ticket{}
	h.tls = clientTLS(roots, u.Hostname(), last)
	h.firstTLS = h.tls.Clone()
	h.firstTLS.ClientSessionCache = keepOnly{last}
	if h.Dials <= 0 {
		h.Dials = DefaultDials
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	// A loop for each core, but no more than a server beside it can spare.
	for range min(max(1, runtime.GOMAXPROCS(0)), 4) {
		l, err := newLoop(h)
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
		h.loops = append(h.loops, l)
		h.running.Go(l.run)
	}
	return h, nil
}

// IsLoopback4 says whether a host is an address of 127.0.0.0/8, or localhost.
func IsLoopback4(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Is4() && a.IsLoopback()
}

// ticket is the last session ticket that any agent was given. All agents use it: the
// server accepts each from anybody. crypto/tls removes a ticket when a handshake
// fails; Put ignores that, so one failure does not cost the other agents theirs.
type ticket struct {
	last atomic.Pointer[tls.ClientSessionState]
}

func (t *ticket) Get(string) (*tls.ClientSessionState, bool) {
	s := t.last.Load()
	return s, s != nil
}

func (t *ticket) Put(_ string, s *tls.ClientSessionState) {
	if s != nil {
		t.last.Store(s)
	}
}

// keepOnly stores tickets and offers none: a host that connects for the first time
// has none, and its handshake is a full one.
type keepOnly struct{ *ticket }

func (keepOnly) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

// clientTLS is a configuration that checks a chain of certificates the first time
// it sees it: thousands of agents see the same. That the server has the key of
// its certificate is checked in every handshake, by crypto/tls.
func clientTLS(roots *x509.CertPool, host string, sessions tls.ClientSessionCache) *tls.Config {
	var mu sync.Mutex
	var known []byte
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host, ClientSessionCache: sessions, NextProtos: []string{"http/1.1"},
		// Not insecure: VerifyConnection does the work, once for each certificate.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(cs tls.ConnectionState) error {
			leaf := cs.PeerCertificates[0]
			mu.Lock()
			defer mu.Unlock()
			if bytes.Equal(known, leaf.Raw) {
				return nil
			}
			between := x509.NewCertPool()
			for _, c := range cs.PeerCertificates[1:] {
				between.AddCert(c)
			}
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: host}); err != nil {
				return err
			}
			known = leaf.Raw
			return nil
		},
	}
}

// Close hangs up and ends the herd.
func (h *Herd) Close() error {
	h.stop()
	for _, l := range h.loops {
		l.do(func() {}) // wakes it up
	}
	h.running.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endProfile()
	return nil
}

// dialed lets a connection be made for an agent, in turn; done is called in the
// agent's loop. It belongs to the loop's goroutine.
func (h *Herd) dialed(l *loop, a *agent, done func(*link, *h2link, error)) {
	if number := max(a.number, -1-a.number); number%100 < int(h.HTTP2*100) { // a twin's is below 0
		done(nil, newH2(h, a), nil)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dials = append(h.dials, dialJob{l, a.number, a.life == 1, func(c *link, err error) { done(c, nil, err) }})
	if h.dialers < h.Dials {
		h.dialers++
		h.running.Go(h.dialer)
	}
}

// dialer makes connections until none is wanted.
func (h *Herd) dialer() {
	for {
		h.mu.Lock()
		if len(h.dials) == 0 || h.ctx.Err() != nil {
			h.dialers--
			h.dials = nil
			h.mu.Unlock()
			return
		}
		job := h.dials[0]
		h.dials = h.dials[1:]
		h.mu.Unlock()
		config := h.tls
		if job.first {
			config = h.firstTLS
		}
		c, err := dial(h.ctx, localAddr(job.agent, h.loopback), h.address, config)
		if !job.loop.do(func() { job.done(c, err) }) {
			c.hangUp()
		}
	}
}

// each lets every loop run f, one after the other.
func (h *Herd) each(f func(*loop)) {
	for _, l := range h.loops {
		l.ask(func() { f(l) })
	}
}

// Count is what a herd has seen since it was last asked to begin anew.
type Count struct {
	// Status are answers other than 200 by call and status, such as "acks 503".
	Status map[string]int
	// Checkins and Acks were answered with 200.
	Checkins, Acks int
	// Failures must not happen. Texts are the first of them.
	Failures int
	Texts    []string
	// CutOff are connections that ended while the agent waited for an answer, Broken
	// those within one.
	CutOff, Broken int
	// DialErrors are connections that could not be made, and were tried again.
	DialErrors int
	DialTexts  []string
	// Connected are handshakes, of which some were Resumed.
	Connected, Resumed int
	// Handshake is how long connections with their handshakes took; Came how long it
	// was from the wish to be there to the check-in that was sent. LastCame is when
	// the last of these was.
	Handshake, Came Latency
	LastCame        Instant
}

// Join takes in what another herd, or a loop of one, has seen.
func (c *Count) Join(o *Count) {
	if c.Status == nil {
		c.Status = map[string]int{}
	}
	for k, n := range o.Status {
		c.Status[k] += n
	}
	c.Checkins += o.Checkins
	c.Acks += o.Acks
	c.Failures += o.Failures
	c.Texts = join(c.Texts, o.Texts)
	c.CutOff += o.CutOff
	c.Broken += o.Broken
	c.DialErrors += o.DialErrors
	c.DialTexts = join(c.DialTexts, o.DialTexts)
	c.Connected += o.Connected
	c.Resumed += o.Resumed
	c.Handshake.Join(&o.Handshake)
	c.Came.Join(&o.Came)
	c.LastCame = max(c.LastCame, o.LastCame)
}

func join(a, b []string) []string {
	all := append(append([]string(nil), a...), b...)
	return all[:min(len(all), keptTexts)]
}

// Limited are the answers of 429.
func (c *Count) Limited() (n int) {
	for k, v := range maps.All(c.Status) {
		if strings.HasSuffix(k, " 429") {
			n += v
		}
	}
	return n
}

// ServerErrors are the answers of 5xx.
func (c *Count) ServerErrors() (n int) {
	for k, v := range maps.All(c.Status) {
		if _, status, ok := strings.Cut(k, " "); ok && strings.HasPrefix(status, "5") {
			n += v
		}
	}
	return n
}
