//go:build linux

package generator

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
	// MaxAgents bounds the agents of one process that may open 20,000 descriptors:
	// the rest is for connections that are being made.
	MaxAgents = 19_000
	// DefaultDials is how many connections a generator makes at once: enough that a
	// storm is limited by the server and not by the generator.
	DefaultDials = 500
)

// Options configure the agents of a process and the server they load. Server, CA and
// Token are required.
type Options struct {
	// Server is the server's base URL.
	Server string
	// CA is the certificate of the server's authority in PEM.
	CA string
	// Token is the enrolment token.
	Token string
	// Tags are the tags of every agent.
	Tags []string
	// First is the number of the first agent. Generators of one run must have no
	// number in common.
	First int
	// Version is the version that the agents report.
	Version string
	// HTTP2 is the share of agents that speak HTTP/2, 0 to 1.
	HTTP2 float64
	// Dials is how many connections are made at once; 0 means DefaultDials.
	Dials int
}

// Generator runs the agents of one process.
type Generator struct {
	Options
	ctx       context.Context //nolint:containedctx // canceled by Close
	stop      context.CancelFunc
	firstTLS  *tls.Config // for an agent's first connection, which makes a full handshake
	tls       *tls.Config // for later connections, which resume a session
	address   string      // host:port
	host      string      // the Host header
	loopback  bool
	template  checkinTemplate
	loops     []*loop
	running   sync.WaitGroup // loops and dialers
	enrolled  int
	enrolling atomic.Int64 // enrolled agents, including those of a running Enrol call

	mu      sync.Mutex
	dials   []dialJob
	dialers int

	profile  bytes.Buffer // the running profile
	profiled bool         // a profile is running
}

type dialJob struct {
	loop  *loop
	agent int // number
	first bool
	done  func(*agentConn, error)
}

// New returns a generator without agents. The caller must call Close.
func New(o Options) (*Generator, error) {
	g := &Generator{Options: o, template: newCheckinTemplate(o.Version)}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(o.CA)) {
		return nil, errors.New("ca: has no certificate in PEM")
	}
	u, err := url.Parse(o.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("server: is %q, want https://host:port", o.Server)
	}
	g.host, g.address, g.loopback = u.Host, u.Host, IsLoopback4(u.Hostname())
	if u.Port() == "" {
		g.address = net.JoinHostPort(u.Hostname(), "443")
	}
	last := &ticket{}
	g.tls = clientTLS(roots, u.Hostname(), last)
	g.firstTLS = g.tls.Clone()
	g.firstTLS.ClientSessionCache = keepOnly{last}
	if g.Dials <= 0 {
		g.Dials = DefaultDials
	}
	g.ctx, g.stop = context.WithCancel(context.Background())
	// One loop for each core, but at most 4: the server runs on the same machine.
	for range min(max(1, runtime.GOMAXPROCS(0)), 4) {
		l, err := newLoop(g)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		g.loops = append(g.loops, l)
		g.running.Go(l.run)
	}
	return g, nil
}

// IsLoopback4 reports whether host is localhost or an address of 127.0.0.0/8.
func IsLoopback4(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Is4() && a.IsLoopback()
}

// ticket holds the last session ticket that any agent received. All agents use it,
// since the server accepts a ticket from any client. crypto/tls removes a ticket when
// a handshake fails; Put ignores that, so one failure does not cost the other agents
// their ticket.
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
// makes a full handshake.
type keepOnly struct{ *ticket }

func (keepOnly) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

// clientTLS returns a configuration that verifies a chain of certificates only the
// first time it sees it, since thousands of agents see the same one. In every
// handshake crypto/tls still checks that the server has the key of its certificate.
func clientTLS(roots *x509.CertPool, host string, sessions tls.ClientSessionCache) *tls.Config {
	var mu sync.Mutex
	var known []byte
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: host, ClientSessionCache: sessions, NextProtos: []string{"http/1.1"},
		// Not insecure: VerifyConnection verifies each certificate once.
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

// Close closes all connections and stops the generator.
func (g *Generator) Close() error {
	g.stop()
	for _, l := range g.loops {
		l.do(func() {}) // wakes it up
	}
	g.running.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endProfile()
	return nil
}

// requestDial queues a connection for an agent. done is called on the loop's goroutine,
// and so must requestDial be.
func (g *Generator) requestDial(l *loop, a *agent, done func(*agentConn, *h2Conn, error)) {
	if number := max(a.number, -1-a.number); number%100 < int(g.HTTP2*100) { // a second poll has a negative number
		done(nil, newH2(g, a), nil)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dials = append(g.dials, dialJob{l, a.number, a.generation == 1, func(c *agentConn, err error) { done(c, nil, err) }})
	if g.dialers < g.Dials {
		g.dialers++
		g.running.Go(g.dialer)
	}
}

// dialer makes the queued connections, and returns when the queue is empty.
func (g *Generator) dialer() {
	for {
		g.mu.Lock()
		if len(g.dials) == 0 || g.ctx.Err() != nil {
			g.dialers--
			g.dials = nil
			g.mu.Unlock()
			return
		}
		job := g.dials[0]
		g.dials = g.dials[1:]
		g.mu.Unlock()
		config := g.tls
		if job.first {
			config = g.firstTLS
		}
		c, err := dial(g.ctx, localAddr(job.agent, g.loopback), g.address, config)
		if !job.loop.do(func() { job.done(c, err) }) {
			c.hangUp()
		}
	}
}

// each runs f on the goroutine of every loop, one after the other.
func (g *Generator) each(f func(*loop)) {
	for _, l := range g.loops {
		l.doAndWait(func() { f(l) })
	}
}

// Count is what a generator has observed since the last reset.
type Count struct {
	// Status counts answers other than 200 by call and status, such as "acks 503".
	Status map[string]int
	// Checkins and Acks count the calls answered with 200.
	Checkins, Acks int
	// Failures counts what must never happen. Texts describe the first of them.
	Failures int
	Texts    []string
	// CutOff counts connections that ended while the agent waited for an answer,
	// Broken those that ended within an answer.
	CutOff, Broken int
	// DialErrors counts connections that failed and were tried again.
	DialErrors int
	DialTexts  []string
	// Connected counts handshakes, Resumed those that resumed a session.
	Connected, Resumed int
	// Handshake is the time from dialing to the end of the handshake, ConnectToCheckin
	// the time from dialing to the check-in that was sent. LastCheckin is when the last
	// of those check-ins was sent.
	Handshake, ConnectToCheckin Latency
	LastCheckin                 MonoTime
}

// Merge adds what another generator, or another loop, has observed.
func (c *Count) Merge(o *Count) {
	if c.Status == nil {
		c.Status = map[string]int{}
	}
	for k, n := range o.Status {
		c.Status[k] += n
	}
	c.Checkins += o.Checkins
	c.Acks += o.Acks
	c.Failures += o.Failures
	c.Texts = appendTexts(c.Texts, o.Texts)
	c.CutOff += o.CutOff
	c.Broken += o.Broken
	c.DialErrors += o.DialErrors
	c.DialTexts = appendTexts(c.DialTexts, o.DialTexts)
	c.Connected += o.Connected
	c.Resumed += o.Resumed
	c.Handshake.Merge(&o.Handshake)
	c.ConnectToCheckin.Merge(&o.ConnectToCheckin)
	c.LastCheckin = max(c.LastCheckin, o.LastCheckin)
}

func appendTexts(a, b []string) []string {
	all := append(append([]string(nil), a...), b...)
	return all[:min(len(all), keptTexts)]
}

// Limited returns the number of answers with status 429.
func (c *Count) Limited() (n int) {
	for k, v := range maps.All(c.Status) {
		if strings.HasSuffix(k, " 429") {
			n += v
		}
	}
	return n
}

// ServerErrors returns the number of answers with status 5xx.
func (c *Count) ServerErrors() (n int) {
	for k, v := range maps.All(c.Status) {
		if _, status, ok := strings.Cut(k, " "); ok && strings.HasPrefix(status, "5") {
			n += v
		}
	}
	return n
}
