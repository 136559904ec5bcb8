package limit_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/node/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitLimit is how long a test waits for an event that should happen at once.
const waitLimit = 20 * time.Second

func serverTLS(t *testing.T) *tls.Config {
	t.Helper()
	a, err := authority.Open(disk.OS{}, t.TempDir(), []string{"localhost"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a.TLS()
}

// site is an HTTP server behind a Listener.
type site struct {
	*limit.Admission
	addr string
}

func serve(t *testing.T, l limit.Limits, config *tls.Config, h http.Handler) site {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := site{limit.NewAdmission(l), inner.Addr().String()}
	listener := s.Listener(inner, config, slog.New(slog.DiscardHandler))
	server := &http.Server{Handler: h, ConnContext: limit.ConnContext, TLSConfig: config, ReadHeaderTimeout: waitLimit}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended with %v", err)
		}
		// A connection that was accepted during Close ends when its client disconnects.
		for until := time.Now().Add(waitLimit); s.Connections().Used != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Errorf("%d connections are still counted", s.Connections().Used)
				return
			}
		}
	})
	return s
}

func (s site) dial(ctx context.Context) (*tls.Conn, error) {
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	return c.(*tls.Conn), nil
}

// get sends one request on a connection of its own.
func (s site) get(ctx context.Context) (*http.Response, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.addr+"/", nil)
	if err != nil {
		return nil, err
	}
	resp, err := transport.RoundTrip(r)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return resp, err
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(waitLimit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

func TestStormOfHandshakesIsServedWithinTheLimit(t *testing.T) {
	const storm = 100 // the whole server has its own, of 300
	l := small()
	l.Agents, l.HandshakesPerSecond = 2*storm, 100_000
	s := serve(t, l, serverTLS(t), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	done := make(chan struct{})
	var most int64
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			most = max(most, s.Handshakes().Used)
			time.Sleep(time.Millisecond)
		}
	}()
	var clients sync.WaitGroup
	for range storm {
		clients.Go(func() {
			if resp, err := s.get(ctx); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("one of the storm got %v, %v", resp, err)
			}
		})
	}
	clients.Wait()
	cancel()
	<-done
	if most > int64(l.Handshakes) {
		t.Errorf("%d handshakes were under way at once", most)
	}
	if full, resumed, failed := s.HandshakesDone(); full != storm || resumed != 0 || failed != 0 {
		t.Errorf("%d handshakes were done, %d resumed, %d failed", full, resumed, failed)
	}
}

func TestHandshakesStartAtABoundedRate(t *testing.T) {
	l := small()
	l.HandshakesPerSecond = 40
	s := serve(t, l, serverTLS(t), http.NotFoundHandler())
	start := time.Now()
	var clients sync.WaitGroup
	for range 21 {
		clients.Go(func() {
			if _, err := s.get(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	if took := time.Since(start); took < 450*time.Millisecond { // one at once, and twenty more
		t.Errorf("21 handshakes at 40 a second took %s", took)
	}
}

// dialPlain connects from a loopback address without TLS, and sends text.
func (s site) dialPlain(t *testing.T, from, text string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSilentConnectionsTakeNoPlaceOfAHandshake(t *testing.T) {
	l := small()
	l.Handshakes = 3
	s := serve(t, l, serverTLS(t), http.NotFoundHandler())
	const silent = 30
	for range silent {
		s.dialPlain(t, "127.0.0.1", "")
	}
	eventually(t, "the silent ones", func() bool { return s.Connections().Used == silent })
	start := time.Now()
	if _, err := s.get(t.Context()); err != nil || time.Since(start) > time.Second {
		t.Errorf("beside silent ones a handshake took %s: %v", time.Since(start), err)
	}
	if h := s.Handshakes(); h.Used != 0 || h.Waiting != 0 {
		t.Errorf("the silent ones count as %+v", h)
	}
}

func TestSlowHandshakesOfOneHostLeavePlacesToOthers(t *testing.T) {
	l := small()
	l.Handshakes = 8
	s := serve(t, l, serverTLS(t), http.NotFoundHandler())
	for range 20 {
		s.dialPlain(t, "127.0.0.2", "\x16") // the first byte of a handshake, and no more
	}
	eventually(t, "their share", func() bool { h := s.Handshakes(); return h.Used == 7 && h.Waiting == 13 })
	start := time.Now()
	if _, err := s.get(t.Context()); err != nil || time.Since(start) > time.Second { // from 127.0.0.1
		t.Errorf("beside slow ones a handshake took %s: %v", time.Since(start), err)
	}
}

func TestOneHostCannotTakeAllConnections(t *testing.T) {
	l := small()
	l.Agents = 40
	s := serve(t, l, serverTLS(t), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = limit.Known(r.Context(), r.RemoteAddr) }))
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	for range 2 * l.Agents {
		c, err := d.DialContext(t.Context(), "tcp", s.addr)
		if errors.Is(err, syscall.ECONNRESET) { // beyond its share
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	eventually(t, "the crowd", func() bool { return s.Connections().Limited == 45 })
	if got := s.Connections(); got.Used != 35 {
		t.Errorf("one host has %d of %d connections", got.Used, l.Agents)
	}
	// An agent is no stranger once it is authenticated: a load balancer has all of a fleet.
	for range 5 {
		c, err := s.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAtLeast(c, make([]byte, 100), 15); err != nil {
			t.Fatalf("an agent is not served: %v", err)
		}
	}
	if got := s.Connections(); got.Used != 40 {
		t.Errorf("then connections are %+v", got)
	}
}

// A key has its share of the connections, and the key of an agent a few. What is beyond them is
// answered, so that the client knows why.
func TestOneKeyCannotTakeAllConnections(t *testing.T) {
	for name, row := range map[string]struct {
		known func(context.Context, string) error
		want  int
	}{
		"a key of many agents": {limit.Known, 70},
		"the key of an agent":  {limit.KnownAgent, 32},
	} {
		t.Run(name, func(t *testing.T) {
			l := small()
			l.Agents, l.Handshakes = 80, 40
			s := serve(t, l, serverTLS(t), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := row.known(r.Context(), r.URL.Path); err != nil {
					w.Header().Set("Connection", "close")
					http.Error(w, err.Error(), http.StatusTooManyRequests)
				}
			}))
			served := 0
			ask := func(key string) string {
				c, err := s.dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				if _, err := io.WriteString(c, "GET /"+key+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				answer := make([]byte, 400)
				if _, err := io.ReadAtLeast(c, answer, 15); err != nil {
					t.Fatal(err)
				}
				return string(answer[len("HTTP/1.1 "):][:3])
			}
			for range 78 {
				switch got := ask("one"); got {
				case "200":
					served++
				case "429":
				default:
					t.Fatalf("it is answered %s", got)
				}
			}
			if served != row.want {
				t.Errorf("one key has %d of %d connections, want %d", served, l.Agents, row.want)
			}
			if got := ask("another"); got != "200" {
				t.Errorf("another key is answered %s", got)
			}
		})
	}
}

func TestStrangersWithTLSAreBoundedByMemory(t *testing.T) {
	l := small()
	l.Agents, l.Handshakes = 400, 40
	s := serve(t, l, serverTLS(t), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = limit.Known(r.Context(), r.RemoteAddr) }))
	var secured atomic.Int64
	for range 80 {
		c := tls.Client(s.dialPlain(t, "127.0.0.2", ""), &tls.Config{InsecureSkipVerify: true})
		go func() {
			if c.HandshakeContext(t.Context()) == nil {
				secured.Add(1)
			}
		}()
	}
	eventually(t, "its share of 64", func() bool { return secured.Load() == 56 })
	// Agents are none of them once they are authenticated.
	for range 50 {
		if _, err := s.get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := secured.Load(); got != 56 {
		t.Errorf("%d strangers have TLS", got)
	}
}

// pipes is a listener whose connections are sent to it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A connection that sends nothing is closed after two seconds, and one whose handshake stops
// after ten. The next handshake then has its place.
func TestHandshakeThatStopsTimesOut(t *testing.T) {
	config := serverTLS(t)
	synctest.Test(t, func(t *testing.T) {
		l := small()
		l.Handshakes = 1
		a := limit.NewAdmission(l)
		inner := make(pipes)
		listener := a.Listener(inner, config, slog.New(slog.DiscardHandler))
		silent, theirs := net.Pipe()
		begun := time.Now()
		inner <- theirs
		if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(begun) != 2*time.Second {
			t.Errorf("a silent connection ended after %s: %v", time.Since(begun), err)
		}
		slow, theirs := net.Pipe()
		defer slow.Close()
		begun = time.Now()
		inner <- theirs
		if _, err := slow.Write([]byte{22}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		client, theirs := net.Pipe()
		inner <- theirs
		shaken := make(chan error, 1)
		go func() { shaken <- tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
		c, err := listener.Accept()
		if took := time.Since(begun); err != nil || took != 10*time.Second {
			t.Fatalf("the next handshake ended after %s: %v", took, err)
		}
		go func() { _, _ = c.Read(make([]byte, 1)) }() // the client waits until its last message is read
		if err := <-shaken; err != nil {
			t.Error(err)
		}
		synctest.Wait() // the slow connection may still be closing
		if _, _, failed := a.HandshakesDone(); failed != 2 || a.Connections().Used != 1 {
			t.Errorf("%d handshakes failed, connections are %+v", failed, a.Connections())
		}
		client.Close()
		c.Close()
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestConnectionsBeyondTheLimitAreAnswered429OrClosed(t *testing.T) {
	l := small()
	l.Agents = 2
	var served atomic.Int64
	var s site
	s = serve(t, l, serverTLS(t), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.RefuseFull(r.Context()); err != nil {
			w.Header().Set("Connection", "close")
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		served.Add(1)
	}))
	var staying []*tls.Conn
	for range l.Agents {
		c, err := s.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		staying = append(staying, c)
	}
	eventually(t, "the first ones", func() bool { return s.Connections().Used == 2 })
	resp, err := s.get(t.Context())
	if err != nil || resp.StatusCode != http.StatusTooManyRequests || served.Load() != 0 {
		t.Fatalf("one too many got %v, %v", resp, err)
	}
	if got := s.Connections(); got.Used != 2 || got.Limited != 1 || got.Max != 2 {
		t.Errorf("then connections are %+v", got)
	}
	// Connections beyond the overflow are closed without a handshake, so that they cannot
	// use up the remaining descriptors. Two rounds may be needed: the connection above leaves
	// the overflow after its client has its answer.
	eventually(t, "one of far too many to be closed", func() bool {
		for range limit.Overflow {
			c, err := net.Dial("tcp", s.addr)
			if errors.Is(err, syscall.ECONNRESET) { // beyond the overflow
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
		}
		_, err := s.get(t.Context())
		return err != nil
	})
	staying[0].Close()
	eventually(t, "a place", func() bool { return s.Connections().Used == 1 })
}

func TestClosedConnectionReleasesItsSlot(t *testing.T) {
	l := small()
	l.Agents = 1
	s := serve(t, l, serverTLS(t), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 5 {
		if resp, err := s.get(t.Context()); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("a lonely client got %v, %v", resp, err)
		}
		eventually(t, "it to leave", func() bool { return s.Connections().Used == 0 })
	}
}

func TestCloseEndsHandshakesAndWaitingConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := small()
	l.Handshakes = 1
	a := limit.NewAdmission(l)
	listener := a.Listener(inner, serverTLS(t), slog.New(slog.DiscardHandler))
	accepted := make(chan error, 1)
	go func() {
		_, err := listener.Accept()
		accepted <- err
	}()
	for range 3 {
		site{a, inner.Addr().String()}.dialPlain(t, "127.0.0.1", "\x16")
	}
	eventually(t, "the three", func() bool { return a.Handshakes().Used == 1 && a.Handshakes().Waiting == 2 })
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept ended with %v", err)
	}
	if h := a.Handshakes(); h.Used != 0 || h.Waiting != 0 || a.Connections().Used != 0 {
		t.Errorf("left are %+v, %+v", h, a.Connections())
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a later Accept gives %v", err)
	}
}

func TestConnectionHasADescriptor(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := limit.NewAdmission(small())
	listener := a.Listener(inner, serverTLS(t), slog.New(slog.DiscardHandler))
	defer listener.Close()
	s := site{a, inner.Addr().String()}
	dialled := make(chan *tls.Conn, 1)
	go func() {
		c, err := s.dial(t.Context())
		if err != nil {
			t.Error(err)
		}
		dialled <- c
	}()
	c, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer (<-dialled).Close()
	raw, ok := c.(*tls.Conn).NetConn().(syscall.Conn)
	if !ok {
		t.Fatal("the connection has no descriptor")
	}
	if _, err := raw.SyscallConn(); err != nil {
		t.Error(err)
	}
}

func TestPlainHTTPIsAnsweredWithAHint(t *testing.T) {
	s := serve(t, small(), serverTLS(t), http.NotFoundHandler())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "https://") {
		t.Errorf("the answer is %d %q, %v", resp.StatusCode, text, err)
	}
	if _, _, failed := s.HandshakesDone(); failed != 1 {
		t.Errorf("%d handshakes failed", failed)
	}
}

func TestMeasureHandshake(t *testing.T) {
	config := serverTLS(t)
	if took := limit.MeasureHandshake(config); took <= 0 || took > time.Second {
		t.Errorf("a handshake takes %s", took)
	}
	config.ClientAuth = tls.RequireAnyClientCert
	if took := limit.MeasureHandshake(config); took != 0 {
		t.Errorf("one that cannot succeed takes %s", took)
	}
}
