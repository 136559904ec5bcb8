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

	"github.com/muster-fleet/muster/server/checkin"
)

const (
	// patience is how long a test waits for what must happen; a busy machine
	// needs some of it.
	patience = 20 * time.Second
	// calm is how long a test watches that something does not happen.
	calm = 50 * time.Millisecond
	// long is a deadline that no test reaches.
	long = 5 * time.Minute

	requestBody = `{"status":"online"}`
	emptyBody   = `{"ack_token":"","action":"checkin","actions":[]}`
)

// yard is a parker behind a server, and agents that poll it.
type yard struct {
	t      *testing.T
	parker checkin.Parker
	server *httptest.Server
	url    string
	roots  *x509.CertPool
	client *http.Client
	proto  string
	plans  sync.Map // poll id → *poll
	ids    atomic.Int64
}

// poll is one request of an agent.
type poll struct {
	agent    string
	deadline time.Duration
	look     func(ctx context.Context) (*checkin.Answer, error)
	looker   checkin.Looker // instead of look

	looks   atomic.Int32
	looking atomic.Bool
	reused  atomic.Bool // the connection
	resumed atomic.Bool // the session
	hangUp  context.CancelFunc
	done    chan struct{}
	body    string // after done
	err     error
}

// keeper is a parker that has connections given back to the server.
type keeper interface {
	Listener(inner net.Listener) net.Listener
	Serve(h http.Handler)
}

// newYard serves as the server does for agents: TLS 1.3 with both protocols, and
// HTTP/1.1 before HTTP/2.
func newYard(t *testing.T, p checkin.Parker, proto string) *yard {
	y := &yard{t: t, parker: p, proto: proto, roots: x509.NewCertPool()}
	cert := certificate(t)
	y.roots.AddCert(cert.Leaf)
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1", "h2"}}
	y.server = httptest.NewUnstartedServer(http.HandlerFunc(y.park))
	y.server.Config.ErrorLog = log.New(io.Discard, "", 0)                  // clients hang up on purpose
	y.server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 2_000} // the storm's, on one connection
	y.server.Config.TLSConfig = config
	y.server.Listener = tls.NewListener(y.server.Listener, config)
	if k, ok := p.(keeper); ok {
		k.Serve(y.server.Config.Handler)
		y.server.Listener = k.Listener(y.server.Listener)
	}
	y.server.Start()
	y.url = "https://" + y.server.Listener.Addr().String()
	y.client = y.newClient(proto)
	return y
}

func (y *yard) newClient(proto string) *http.Client {
	transport := &http.Transport{TLSClientConfig: y.clientTLS(), MaxIdleConnsPerHost: 2_000, Protocols: &http.Protocols{}}
	transport.Protocols.SetHTTP1(proto == "HTTP/1.1")
	transport.Protocols.SetHTTP2(proto == "HTTP/2.0")
	return &http.Client{Transport: transport}
}

func (y *yard) clientTLS() *tls.Config {
	return &tls.Config{RootCAs: y.roots, ServerName: "localhost", MinVersion: tls.VersionTLS13}
}

// certificate is of localhost, signed by itself.
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

// shut ends the test as a server does: the parker first.
func (y *yard) shut() {
	y.t.Helper()
	if err := y.close(patience); err != nil {
		y.t.Errorf("close: %v, with %d polls left", err, y.parker.Count())
	}
	y.client.CloseIdleConnections()
	y.server.Close()
}

func (y *yard) close(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return y.parker.Close(ctx)
}

// park is the handler: what the check-in service does.
func (y *yard) park(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	plan, _ := y.plans.Load(r.Header.Get("Poll"))
	p := plan.(*poll)
	var l checkin.Looker = looker{y, p}
	if p.looker != nil {
		l = p.looker
	}
	w.Header().Set("X-Request-Id", r.Header.Get("Poll"))
	y.parker.Park(checkin.Poll{Wait: checkin.Wait{AgentID: p.agent}, Deadline: time.Now().Add(p.deadline), Writer: w, Request: r, Looker: l})
}

// looker looks for one poll, as the check-in service does.
type looker struct {
	y *yard
	p *poll
}

func (l looker) Look(ctx context.Context, waits []*checkin.Wait) []checkin.Found {
	if len(waits) != 1 || waits[0].AgentID != l.p.agent {
		l.y.t.Errorf("the poll of agent %s is asked for %d others", l.p.agent, len(waits))
		return make([]checkin.Found, len(waits))
	}
	if l.p.looking.Swap(true) {
		l.y.t.Errorf("two looks at a time for agent %s", l.p.agent)
	}
	defer l.p.looking.Store(false)
	l.p.looks.Add(1)
	answer, err := l.p.look(ctx)
	return []checkin.Found{{Answer: answer, Err: err}}
}

func answer(body string) *checkin.Answer {
	return &checkin.Answer{Status: http.StatusOK, Body: []byte(body)}
}

func nothing(context.Context) (*checkin.Answer, error) { return nil, nil }

// plan makes a poll known to the handler by the id.
func (y *yard) plan(p *poll) (id string) {
	id = fmt.Sprint(y.ids.Add(1))
	y.plans.Store(id, p)
	return id
}

// begin sends a poll.
func (y *yard) begin(p *poll) *poll {
	id := y.plan(p)
	client, proto := y.client, y.proto
	ctx, hangUp := context.WithCancel(httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn:          func(c httptrace.GotConnInfo) { p.reused.Store(c.Reused) },
		TLSHandshakeDone: func(s tls.ConnectionState, _ error) { p.resumed.Store(s.DidResume) },
	}))
	p.hangUp, p.done = hangUp, make(chan struct{})
	go func() {
		defer close(p.done)
		defer hangUp()
		p.body, p.err = y.send(ctx, client, proto, id)
	}()
	return p
}

func (y *yard) send(ctx context.Context, client *http.Client, proto, id string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, y.url, strings.NewReader(requestBody))
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

// parked sends a poll and returns when it is parked and has looked.
func (y *yard) parked(p *poll) *poll {
	y.t.Helper()
	y.begin(p)
	y.looked(p)
	return p
}

// wants waits for the answer of a poll.
func (y *yard) wants(p *poll, body string) {
	y.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		y.t.Fatalf("agent %s: no answer within %s", p.agent, patience)
	}
	if p.err != nil || p.body != body {
		y.t.Fatalf("agent %s: answer is %q, error %v; want %q", p.agent, p.body, p.err, body)
	}
}

// still wants a poll to stay parked.
func (y *yard) still(p *poll) {
	y.t.Helper()
	select {
	case <-p.done:
		y.t.Fatalf("agent %s: answered %q, error %v; want it to stay parked", p.agent, p.body, p.err)
	case <-time.After(calm):
	}
}

func (y *yard) count(n int) {
	y.t.Helper()
	y.eventually(func() error {
		if got := y.parker.Count(); got != n {
			return fmt.Errorf("%d polls are parked, want %d", got, n)
		}
		return nil
	})
}

func (y *yard) eventually(check func() error) {
	y.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			y.t.Fatalf("after %s: %v", patience, err)
		}
	}
}

// mailbox is what waits for one agent. Its look takes one thing at a time.
type mailbox struct {
	mu    sync.Mutex
	mails []string
}

func (m *mailbox) put(body string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mails = append(m.mails, body)
}

func (m *mailbox) look(context.Context) (*checkin.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mails) == 0 {
		return nil, nil
	}
	body := m.mails[0]
	m.mails = m.mails[1:]
	return answer(body), nil
}
