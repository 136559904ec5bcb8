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
	// headerTimeout ends connections on which no request is begun: the proxy
	// speaks to tests only.
	headerTimeout = 30 * time.Second
	// closeTimeout is for requests under way when the proxy closes.
	closeTimeout = 2 * time.Second
)

// ProxyOptions are what cannot change while a proxy runs.
type ProxyOptions struct {
	// TLS with a certificate of the proxy's own authority.
	TLS bool
	// ClientCertificate demands one of that authority, which [Proxy.Access]
	// gives; it implies TLS.
	ClientCertificate bool
}

// Proxy is a reverse proxy of a test's own between a client and a node. It
// checks what the client presents, as a secured Elasticsearch would, and is slow
// or broken as it is told. Its methods may be called at any time, by anyone.
type Proxy struct {
	url       string
	to        Access
	authority *authority // nil without TLS
	client    *pair      // nil unless one is demanded
	transport *http.Transport
	forward   *httputil.ReverseProxy
	server    *http.Server
	closed    chan struct{}
	served    chan struct{} // the listener's loop has ended

	mu       sync.Mutex
	faults   []Fault
	demanded Access
	counts   map[string]int
	held     []net.Conn // accepted, and never answered
}

// NewProxy starts a proxy on a free port of loopback, before the first of to's
// addresses. It shows the node to's credential, whatever the client showed. The
// caller closes it.
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
		// Elasticsearch speaks HTTP 1 only.
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
		_ = p.server.Serve(listener) // it ends when the proxy closes
	}()
	return p, nil
}

// StartProxy is [NewProxy] for a test, with whose end the proxy closes.
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

// secure puts TLS before a listener, which it returns as it was after an error.
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
	// The authority too, as Elasticsearch does: a client may know its digest only.
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

// Close ends the proxy and every connection through it.
func (p *Proxy) Close() error {
	close(p.closed)
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.server.Shutdown(ctx) // what is still under way is closed next
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

// Access is how a client gets through the proxy now: its address, its authority,
// a client certificate if one is demanded, and the credential that is demanded.
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

// Fingerprint is the SHA-256 of the authority's certificate in hexadecimal, empty
// without TLS.
func (p *Proxy) Fingerprint() string {
	if p.authority == nil {
		return ""
	}
	return p.authority.fingerprint()
}

// Demand lets requests pass only with the credential of a, of which only that
// counts; the others get 401. The zero value demands none.
func (p *Proxy) Demand(a Access) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demanded = Access{Username: a.Username, Password: a.Password, APIKey: a.APIKey, ServiceToken: a.ServiceToken}
}

// Break puts faults in place of those there were. A request is as slow as all
// that match it say; of the others the first that matches has it.
func (p *Proxy) Break(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append([]Fault(nil), faults...)
}

// Heal ends all faults. Who hangs already, hangs on.
func (p *Proxy) Heal() { p.Break() }

// Counts are the requests so far, whatever became of them, by method and kind:
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

// Refuse answers with an error's status, as Elasticsearch words it; the node
// hears nothing.
func Refuse(status int) Fault { return Fault{what: isRefused, status: status} }

// Cut resets the connection; the node hears nothing.
func Cut() Fault { return Fault{what: isCut} }

// Lose lets the node do what it is asked, and resets the connection instead of
// answering.
func Lose() Fault { return Fault{what: isLost} }

// Hang leaves the connection half open: what is sent is taken, and nothing ever
// comes back. New connections are accepted and then the same, unless the fault
// is limited by [Fault.On] or [Fault.Times].
func Hang() Fault { return Fault{what: hangs} }

// On limits a fault to the requests that match, under earlier limits too. Several
// goroutines call match.
func (f Fault) On(match func(*http.Request) bool) Fault {
	if before := f.on; before != nil {
		f.on = func(r *http.Request) bool { return before(r) && match(r) }
		return f
	}
	f.on = match
	return f
}

// Times limits a fault to the next n requests that it would have; 0 is none.
func (f Fault) Times(n int) Fault {
	f.times = n
	if n <= 0 {
		return f.On(func(*http.Request) bool { return false })
	}
	return f
}

// fate is what becomes of a request. It counts it.
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

// ServeHTTP passes a request on, or not.
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
		refuse(w, f.status, "the proxy was told to")
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

// hang takes what is sent until the client gives up.
func (p *Proxy) hang(w http.ResponseWriter, r *http.Request) {
	// The context ends with the connection only when the body was read.
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
	// A client that is gone needs no answer.
	_, _ = fmt.Fprintf(w, `{"error":{"root_cause":[{"type":%[1]q,"reason":%[2]q}],"type":%[1]q,"reason":%[2]q},"status":%[3]d}`, kind, reason, status)
}

// reset ends a request's connection so that the client sees a reset, not an end.
func reset(w http.ResponseWriter) {
	if _, ok := w.(discard); ok {
		return // the caller resets the client's
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // part of an answer was sent: this breaks it off
	}
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // closing it is then a reset
	}
	_ = conn.Close()
}

// discard is where a lost answer goes.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// gate keeps new connections to itself while everything hangs: not even the
// handshake of TLS is answered.
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

// hold keeps a connection if everything hangs.
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
