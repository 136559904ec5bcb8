package esnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// headerTimeout bounds the wait for the header of a request.
	headerTimeout = 30 * time.Second
	// closeTimeout bounds the wait for active requests when the proxy closes.
	closeTimeout = 2 * time.Second
)

// ProxyOptions are the options that cannot change while a proxy runs.
type ProxyOptions struct {
	// TLS with a certificate of the proxy's own authority.
	TLS bool
	// ClientCertificate requires a client certificate of that authority, which
	// [Proxy.Access] returns; it implies TLS.
	ClientCertificate bool
}

// Proxy is a reverse proxy between a client and a node. It checks the client's credential
// like a secured Elasticsearch, and delays or breaks requests by its faults. It is safe for
// concurrent use.
type Proxy struct {
	url       string
	to        Access
	authority *authority // nil without TLS
	client    *pair      // nil unless a client certificate is required
	transport *http.Transport
	forward   *httputil.ReverseProxy
	server    *http.Server
	closed    chan struct{}
	served    chan struct{} // the listener's loop has ended

	mu       sync.Mutex
	faults   []Fault
	demanded Access
	counts   map[string]int
	held     []net.Conn // accepted and never answered
}

// NewProxy starts a proxy on a free port of loopback for the first URL of to. It sends
// the credential of to to the node, not the client's. The caller must close it.
func NewProxy(to Access, o ProxyOptions) (*Proxy, error) {
	if len(to.URLs) == 0 {
		return nil, errors.New("a proxy needs the address of a node")
	}
	target, err := url.Parse(to.URLs[0])
	if err != nil {
		return nil, fmt.Errorf("the address of a node: %w", err)
	}
	p := &Proxy{to: to, closed: make(chan struct{}), served: make(chan struct{}), counts: map[string]int{}}
	if p.transport, err = to.transport(); err != nil {
		return nil, err
	}
	silent := slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	p.forward = &httputil.ReverseProxy{
		Transport: p.transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
			if value := to.authorization(); value != "" {
				r.Out.Header.Set("Authorization", value)
			}
		},
		// A node that does not answer has no status.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { reset(w) },
		ErrorLog:     silent,
	}
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTimeout, ErrorLog: silent,
		// Elasticsearch supports only HTTP/1.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	p.url = "http://" + listener.Addr().String()
	listener = &gate{Listener: listener, proxy: p}
	if o.TLS || o.ClientCertificate {
		if listener, err = p.secure(listener, o); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		p.url = "https" + strings.TrimPrefix(p.url, "http")
	}
	go func() {
		defer close(p.served)
		_ = p.server.Serve(listener) // returns when the proxy closes
	}()
	return p, nil
}

// StartProxy is [NewProxy] for a test. The proxy closes when the test ends.
func StartProxy(t testing.TB, to Access, o ProxyOptions) *Proxy {
	t.Helper()
	p, err := NewProxy(to, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// secure wraps a listener with TLS. With an error it returns the listener unchanged.
func (p *Proxy) secure(l net.Listener, o ProxyOptions) (net.Listener, error) {
	a, err := newAuthority()
	if err != nil {
		return l, err
	}
	own, err := a.issue(host)
	if err != nil {
		return l, err
	}
	cert, err := tls.X509KeyPair(own.cert, own.key)
	if err != nil {
		return l, err
	}
	// The chain includes the authority, as Elasticsearch's does: a client may know only its
	// digest.
	cert.Certificate = append(cert.Certificate, a.cert.Raw)
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	if o.ClientCertificate {
		client, err := a.issue("client")
		if err != nil {
			return l, err
		}
		p.client = &client
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, a.pool()
	}
	p.authority = a
	return tls.NewListener(l, config), nil
}

// Close closes the proxy and all its connections.
func (p *Proxy) Close() error {
	close(p.closed)
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.server.Shutdown(ctx) // Close ends the requests that are still active
	err := p.server.Close()
	<-p.served
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.held {
		_ = c.Close() // the client may have closed it
	}
	p.held = nil
	p.transport.CloseIdleConnections()
	return err
}

// Access returns how a client reaches the proxy now: its URL and authority, and the client
// certificate and the credential that it requires.
func (p *Proxy) Access() Access {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.demanded
	a.URLs = []string{p.url}
	if p.authority != nil {
		a.CA = p.authority.pem()
	}
	if p.client != nil {
		a.Certificate, a.Key = p.client.cert, p.client.key
	}
	return a
}

// Fingerprint returns the SHA-256 of the authority's certificate in hexadecimal. It is empty
// without TLS.
func (p *Proxy) Fingerprint() string {
	if p.authority == nil {
		return ""
	}
	return p.authority.fingerprint()
}

// Demand makes the proxy answer 401 to requests without the credential of a. The zero value
// requires none.
func (p *Proxy) Demand(a Access) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demanded = Access{Username: a.Username, Password: a.Password, APIKey: a.APIKey, ServiceToken: a.ServiceToken}
}

// Break replaces the faults. The delays of all matching faults add up; of the other faults
// the first that matches applies.
func (p *Proxy) Break(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append([]Fault(nil), faults...)
}

// Heal removes all faults. Connections that hang already stay so.
func (p *Proxy) Heal() { p.Break() }

// Counts returns the number of requests so far, including failed ones, by method and kind:
// "POST _bulk", and "GET document" where the path names no call.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

func kindOf(r *http.Request) string {
	for part := range strings.SplitSeq(r.URL.Path, "/") {
		if strings.HasPrefix(part, "_") {
			return r.Method + " " + part
		}
	}
	return r.Method + " document"
}

// Fault is one way in which requests go wrong.
type Fault struct {
	what   outcome
	delay  time.Duration
	status int
	on     func(*http.Request) bool
	times  int
}

type outcome int

const (
	passes outcome = iota
	isRefused
	isCut
	isLost
	hangs
)

// Slow delays requests on their way to the node.
func Slow(by time.Duration) Fault { return Fault{delay: by} }

// Refuse answers with an error like Elasticsearch's; the node does not get the request.
func Refuse(status int) Fault { return Fault{what: isRefused, status: status} }

// Cut resets the connection; the node does not get the request.
func Cut() Fault { return Fault{what: isCut} }

// Lose passes the request to the node, and resets the connection instead of answering.
func Lose() Fault { return Fault{what: isLost} }

// Hang leaves the connection half open: the proxy reads requests and never answers. New
// connections are accepted and hang too, unless the fault is limited by [Fault.On] or
// [Fault.Times].
func Hang() Fault { return Fault{what: hangs} }

// On limits a fault to the requests for which match and all earlier limits return true.
// match must be safe for concurrent use.
func (f Fault) On(match func(*http.Request) bool) Fault {
	if before := f.on; before != nil {
		f.on = func(r *http.Request) bool { return before(r) && match(r) }
		return f
	}
	f.on = match
	return f
}

// Times limits a fault to the next n matching requests; 0 means none.
func (f Fault) Times(n int) Fault {
	f.times = n
	if n <= 0 {
		return f.On(func(*http.Request) bool { return false })
	}
	return f
}

// fate returns the fault of a request, and counts the request.
func (p *Proxy) fate(r *http.Request) (delay time.Duration, f Fault, authorized bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[kindOf(r)]++
	demanded := p.demanded.authorization()
	authorized = demanded == "" || demanded == r.Header.Get("Authorization")
	for i := 0; i < len(p.faults); i++ {
		at := p.faults[i]
		if at.on != nil && !at.on(r) {
			continue
		}
		switch at.times {
		case 0:
		case 1:
			p.faults = append(p.faults[:i], p.faults[i+1:]...)
			i--
		default:
			p.faults[i].times--
		}
		delay += at.delay
		if at.what != passes {
			return delay, at, authorized
		}
	}
	return delay, Fault{}, authorized
}

// ServeHTTP passes a request on, unless a fault applies.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	delay, f, authorized := p.fate(r)
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
		case <-p.closed:
		}
	}
	switch {
	case f.what == isCut:
		reset(w)
	case f.what == hangs:
		p.hang(w, r)
	case f.what == isRefused:
		refuse(w, f.status, "a fault of the proxy")
	case !authorized:
		for _, scheme := range []string{`Basic realm="security", charset="UTF-8"`, `Bearer realm="security"`, "ApiKey"} {
			w.Header().Add("WWW-Authenticate", scheme)
		}
		refuse(w, http.StatusUnauthorized, "missing or wrong credentials for "+r.Method+" "+r.URL.Path)
	case f.what == isLost:
		p.forward.ServeHTTP(discard{}, r)
		reset(w)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

// hang reads requests until the client disconnects.
func (p *Proxy) hang(w http.ResponseWriter, r *http.Request) {
	// The context ends with the connection only after the body is read.
	_, _ = io.Copy(io.Discard, r.Body)
	select {
	case <-r.Context().Done():
	case <-p.closed:
	}
	reset(w)
}

// errorTypes are Elasticsearch's, by status.
var errorTypes = map[int]string{
	http.StatusUnauthorized:       "security_exception",
	http.StatusForbidden:          "security_exception",
	http.StatusTooManyRequests:    "es_rejected_execution_exception",
	http.StatusServiceUnavailable: "cluster_block_exception",
}

func refuse(w http.ResponseWriter, status int, reason string) {
	kind := errorTypes[status]
	if kind == "" {
		kind = "exception"
	}
	w.Header().Set("X-Elastic-Product", "Elasticsearch")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may have disconnected.
	_, _ = fmt.Fprintf(w, `{"error":{"root_cause":[{"type":%[1]q,"reason":%[2]q}],"type":%[1]q,"reason":%[2]q},"status":%[3]d}`, kind, reason, status)
}

// reset ends a request's connection so that the client sees a reset, not an end.
func reset(w http.ResponseWriter) {
	if _, ok := w.(discard); ok {
		return // the caller resets the client's
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // a part of the answer is sent already: abort it
	}
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // makes Close reset the connection
	}
	_ = conn.Close()
}

// discard receives a lost answer.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// gate is a listener that holds new connections while everything hangs, so that not even
// the TLS handshake is answered.
type gate struct {
	net.Listener
	proxy *Proxy
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil || !g.proxy.hold(c) {
			return c, err
		}
	}
}

// hold holds a connection if everything hangs.
func (p *Proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.what == hangs && f.on == nil && f.times == 0 {
			p.held = append(p.held, c)
			return true
		}
	}
	return false
}
