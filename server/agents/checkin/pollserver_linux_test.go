package checkin_test

import (
	"bufio"
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
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
)

// pollServer is an HTTP server with an EpollParker, for agents whose connections the
// test holds.
type pollServer struct {
	t       testing.TB
	parker  *checkin.EpollParker
	checker checkin.Checker
	others  http.Handler // for paths other than /, where agents poll
	server  *http.Server
	addr    string
	client  *tls.Config
	log     *syncBuffer
}

// longPoll is a deadline that no test reaches.
const longPoll = 5 * time.Minute

func newPollServer(t testing.TB, checker checkin.Checker, wrap func(net.Listener) net.Listener) *pollServer {
	t.Helper()
	s := &pollServer{t: t, log: &syncBuffer{}, checker: checker, client: clientTLS}
	s.parker = checkin.NewEpollParker(s.log.logger())
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = inner.Addr().String()
	config := &tls.Config{
		Certificates: []tls.Certificate{localhost(t)}, NextProtos: []string{"http/1.1", "h2"}, MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true,
	}
	s.server = &http.Server{Handler: http.HandlerFunc(s.park), TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: 5 * time.Second}
	if wrap != nil {
		inner = wrap(inner)
	}
	s.server.ConnContext = s.parker.ConnContext
	l := s.parker.Listener(tls.NewListener(inner, config))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.server.Serve(l) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.parker.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := s.server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		serving.Wait()
		if n := s.parker.TestOnlyLive(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
	return s
}

func localhost(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (s *pollServer) park(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		s.others.ServeHTTP(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	s.parker.Park(checkin.Poll{
		Wait: checkin.Wait{AgentID: r.Header.Get("Agent")}, Deadline: time.Now().Add(longPoll), Writer: w, Request: r, Checker: s.checker,
	})
}

// agentConn is an agent's connection.
type agentConn struct {
	s  *pollServer
	id string
	*tls.Conn
	answers *bufio.Reader
}

// clientTLS trusts the test's own server. X25519 alone makes the handshakes short.
var clientTLS = &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}}

// dial connects an agent and polls.
func (s *pollServer) dial(id string) *agentConn {
	s.t.Helper()
	conn, err := tls.Dial("tcp", s.addr, s.client)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	c := &agentConn{s: s, id: id, Conn: conn, answers: bufio.NewReaderSize(conn, 512)}
	c.poll()
	return c
}

func (c *agentConn) poll() {
	c.s.t.Helper()
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nAgent: %s\r\nContent-Length: 2\r\n\r\n{}", c.id); err != nil {
		c.s.t.Fatal(err)
	}
}

func (c *agentConn) answer() (body string, last bool) {
	c.s.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		c.s.t.Fatalf("agent %s: %v", c.id, err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.s.t.Fatalf("agent %s: %v", c.id, err)
	}
	return string(b), resp.Close
}

func (s *pollServer) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not so after 20 s: %s; %d parked, %d connections", what, s.parker.Count(), s.parker.TestOnlyLive())
		}
	}
}

func (s *pollServer) parked(n int) {
	s.t.Helper()
	s.eventually(fmt.Sprint(n, " are parked"), func() bool {
		return s.parker.Count() == n && s.parker.TestOnlyLive() >= n
	})
}

// actions is a Checker with the pending actions of agents.
type actions struct {
	mu      sync.Mutex
	pending map[string]string
	delay   map[string]time.Duration // of a check that delivers
	most    int                      // waits in one check
	panic   bool
}

func (a *actions) put(action string, ids ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil {
		a.pending = map[string]string{}
	}
	for _, id := range ids {
		a.pending[id] = action
	}
}

func (a *actions) PendingActions(_ context.Context, waits []*checkin.Wait) []checkin.Pending {
	out := make([]checkin.Pending, len(waits))
	for i, w := range waits {
		a.mu.Lock()
		if a.panic {
			a.panic = false
			a.mu.Unlock()
			panic("a mistake in a check")
		}
		a.most = max(a.most, len(waits))
		delay := a.delay[w.AgentID]
		if action, ok := a.pending[w.AgentID]; ok {
			out[i].Answer = &checkin.Answer{Status: http.StatusOK, Body: []byte(action)}
			delete(a.pending, w.AgentID)
		} else {
			delay = 0
		}
		a.mu.Unlock()
		time.Sleep(delay)
	}
	return out
}

// agentIDs returns n ids.
func agentIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("agent-", i)
	}
	return ids
}

// idle is a connection whose poll has been answered.
func (s *pollServer) idle(a *actions, id string) *agentConn {
	s.t.Helper()
	c := s.dial(id)
	s.eventually(id+" is parked", func() bool { return s.parker.TestOnlyTakenOver(id) })
	a.put("go", id)
	s.parker.Wake(id)
	if got, _ := c.answer(); got != "go" {
		s.t.Fatalf("agent %s got %q", id, got)
	}
	return c
}
