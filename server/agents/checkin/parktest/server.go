package parktest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// waitLimit is how long a test waits for an event that must happen, on a busy machine
	// too.
	waitLimit = 20 * time.Second
	// quietPeriod is how long a test checks that an event does not happen.
	quietPeriod = 50 * time.Millisecond
	// never is a deadline that no test reaches.
	never = 5 * time.Minute

	requestBody = `{"status":"online"}`
	emptyBody   = `{"ack_token":"","action":"checkin","actions":[]}`
)

// server is an HTTP server with a parker, and the agents that poll it.
type server struct {
	t      *testing.T
	parker checkin.Parker
	http   *httptest.Server
	url    string
	roots  *x509.CertPool
	client *http.Client
	proto  string
	polls  sync.Map // poll id → *poll
	ids    atomic.Int64
}

// poll is one request of an agent.
type poll struct {
	agent    string
	policy   fleet.PolicyAt
	deadline time.Duration
	check    func(ctx context.Context) (*checkin.Answer, error)
	checker  checkin.Checker // instead of check

	checks   atomic.Int32
	checking atomic.Bool
	reused   atomic.Bool // the connection
	resumed  atomic.Bool // the session
	hangUp   context.CancelFunc
	done     chan struct{}
	body     string // after done
	err      error
}

// connParker is a parker that takes over connections from the http.Server and returns
// them.
type connParker interface {
	Listener(inner net.Listener) net.Listener
	ConnContext(ctx context.Context, c net.Conn) context.Context
}

// newServer starts a server with the protocols of the agents' listener: TLS 1.3, and
// HTTP/1.1 before HTTP/2.
func newServer(t *testing.T, p checkin.Parker, proto string) *server {
	s := &server{t: t, parker: p, proto: proto, roots: x509.NewCertPool()}
	cert := certificate(t)
	s.roots.AddCert(cert.Leaf)
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1", "h2"}}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.park))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0)                  // clients disconnect on purpose
	s.http.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 2_000} // for concurrentWakes, on one connection
	s.http.Config.TLSConfig = config
	s.http.Listener = tls.NewListener(s.http.Listener, config)
	if p, ok := p.(connParker); ok {
		s.http.Config.ConnContext = p.ConnContext
		s.http.Listener = p.Listener(s.http.Listener)
	}
	s.http.Start()
	s.url = "https://" + s.http.Listener.Addr().String()
	s.client = s.newClient(proto)
	return s
}

func (s *server) newClient(proto string) *http.Client {
	transport := &http.Transport{TLSClientConfig: s.clientTLS(), MaxIdleConnsPerHost: 2_000, Protocols: &http.Protocols{}}
	transport.Protocols.SetHTTP1(proto == "HTTP/1.1")
	transport.Protocols.SetHTTP2(proto == "HTTP/2.0")
	return &http.Client{Transport: transport}
}

func (s *server) clientTLS() *tls.Config {
	return &tls.Config{RootCAs: s.roots, ServerName: "localhost", MinVersion: tls.VersionTLS13}
}

// certificate returns a self-signed certificate for localhost.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// stop shuts down as the server does, the parker first.
func (s *server) stop() {
	s.t.Helper()
	if err := s.close(waitLimit); err != nil {
		s.t.Errorf("close: %v, with %d polls left", err, s.parker.Count())
	}
	s.client.CloseIdleConnections()
	s.http.Close()
}

func (s *server) close(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return s.parker.Close(ctx)
}

// park is the handler. It parks like the check-in service.
func (s *server) park(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	found, _ := s.polls.Load(r.Header.Get("Poll"))
	p := found.(*poll)
	var c checkin.Checker = pollChecker{s, p}
	if p.checker != nil {
		c = p.checker
	}
	w.Header().Set("X-Request-Id", r.Header.Get("Poll"))
	s.parker.Park(checkin.Poll{Wait: checkin.Wait{AgentID: p.agent, Policy: p.policy}, Deadline: time.Now().Add(p.deadline), Writer: w, Request: r, Checker: c})
}

// pollChecker checks one poll, as the check-in service does.
type pollChecker struct {
	s *server
	p *poll
}

func (c pollChecker) PendingActions(ctx context.Context, waits []*checkin.Wait) []checkin.Pending {
	if len(waits) != 1 || waits[0].AgentID != c.p.agent {
		c.s.t.Errorf("the poll of agent %s is asked for %d others", c.p.agent, len(waits))
		return make([]checkin.Pending, len(waits))
	}
	if c.p.checking.Swap(true) {
		c.s.t.Errorf("two checks at a time for agent %s", c.p.agent)
	}
	defer c.p.checking.Store(false)
	c.p.checks.Add(1)
	answer, err := c.p.check(ctx)
	return []checkin.Pending{{Answer: answer, Err: err}}
}

func answer(body string) *checkin.Answer {
	return &checkin.Answer{Status: http.StatusOK, Body: []byte(body)}
}

func nothing(context.Context) (*checkin.Answer, error) { return nil, nil }

// register makes the poll available to the handler under the id.
func (s *server) register(p *poll) (id string) {
	id = fmt.Sprint(s.ids.Add(1))
	s.polls.Store(id, p)
	return id
}

// begin sends a poll.
func (s *server) begin(p *poll) *poll {
	id := s.register(p)
	client, proto := s.client, s.proto
	ctx, hangUp := context.WithCancel(httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn:          func(c httptrace.GotConnInfo) { p.reused.Store(c.Reused) },
		TLSHandshakeDone: func(s tls.ConnectionState, _ error) { p.resumed.Store(s.DidResume) },
	}))
	p.hangUp, p.done = hangUp, make(chan struct{})
	go func() {
		defer close(p.done)
		defer hangUp()
		p.body, p.err = s.send(ctx, client, proto, id)
	}()
	return p
}

func (s *server) send(ctx context.Context, client *http.Client, proto, id string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(requestBody))
	if err != nil {
		return "", err
	}
	req.Header.Set("Poll", id)
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", err
	case resp.Proto != proto:
		return "", fmt.Errorf("answered with %s, want %s", resp.Proto, proto)
	case resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json":
		return "", fmt.Errorf("answered with %s and type %q", resp.Status, resp.Header.Get("Content-Type"))
	case resp.TLS.Version != tls.VersionTLS13:
		return "", fmt.Errorf("answered over %s", tls.VersionName(resp.TLS.Version))
	case resp.Header.Get("X-Request-Id") != id:
		return "", fmt.Errorf("the handler's header is %q, want %q", resp.Header.Get("X-Request-Id"), id)
	case resp.ContentLength != int64(len(body)):
		return "", fmt.Errorf("Content-Length is %d for %d bytes", resp.ContentLength, len(body))
	}
	return string(body), nil
}

// beginParked sends a poll and returns when it has been checked.
func (s *server) beginParked(p *poll) *poll {
	s.t.Helper()
	s.begin(p)
	s.checkedOnce(p)
	return p
}

// wantAnswer waits for the answer of a poll.
func (s *server) wantAnswer(p *poll, body string) {
	s.t.Helper()
	select {
	case <-p.done:
	case <-time.After(waitLimit):
		s.t.Fatalf("agent %s: no answer within %s", p.agent, waitLimit)
	}
	if p.err != nil || p.body != body {
		s.t.Fatalf("agent %s: answer is %q, error %v; want %q", p.agent, p.body, p.err, body)
	}
}

// staysParked checks that a poll stays parked.
func (s *server) staysParked(p *poll) {
	s.t.Helper()
	select {
	case <-p.done:
		s.t.Fatalf("agent %s: answered %q, error %v; want it to stay parked", p.agent, p.body, p.err)
	case <-time.After(quietPeriod):
	}
}

func (s *server) wantCount(n int) {
	s.t.Helper()
	s.eventually(func() error {
		if got := s.parker.Count(); got != n {
			return fmt.Errorf("%d polls are parked, want %d", got, n)
		}
		return nil
	})
}

func (s *server) eventually(check func() error) {
	s.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("after %s: %v", waitLimit, err)
		}
	}
}

// mailbox holds the pending actions of one agent. A check takes one action at a time.
type mailbox struct {
	mu    sync.Mutex
	mails []string
}

func (m *mailbox) put(body string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mails = append(m.mails, body)
}

func (m *mailbox) check(context.Context) (*checkin.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mails) == 0 {
		return nil, nil
	}
	body := m.mails[0]
	m.mails = m.mails[1:]
	return answer(body), nil
}
