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
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/checkin"
	"github.com/muster-fleet/muster/server/limit"
)

// street is a lot behind a server, and agents whose connections the test holds.
type street struct {
	t      testing.TB
	lot    *checkin.Lot
	looker checkin.Looker
	others http.Handler // for paths other than /, where agents poll
	server *http.Server
	addr   string
	client *tls.Config
}

// longPoll is a deadline that no test reaches.
const longPoll = 5 * time.Minute

func newStreet(t testing.TB, looker checkin.Looker, wrap func(net.Listener) net.Listener) *street {
	t.Helper()
	s := &street{t: t, lot: checkin.NewLot(slog.New(slog.DiscardHandler)), looker: looker, client: carTLS}
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
	s.lot.Serve(s.server.Handler)
	l := s.lot.Listener(tls.NewListener(inner, config))
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.server.Serve(l) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.lot.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := s.server.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		serving.Wait()
		if n := s.lot.TestOnlyLive(); n != 0 {
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

func (s *street) park(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		s.others.ServeHTTP(w, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	s.lot.Park(checkin.Poll{
		Wait: checkin.Wait{AgentID: r.Header.Get("Agent")}, Deadline: time.Now().Add(longPoll), Writer: w, Request: r, Looker: s.looker,
	})
}

type car struct {
	s  *street
	id string
	*tls.Conn
	answers *bufio.Reader
}

// carTLS trusts the test's own server, and spares the handshakes what takes long.
var carTLS = &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}}

// drive connects an agent and polls.
func (s *street) drive(id string) *car {
	s.t.Helper()
	conn, err := tls.Dial("tcp", s.addr, s.client)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	c := &car{s: s, id: id, Conn: conn, answers: bufio.NewReaderSize(conn, 512)}
	c.poll()
	return c
}

func (c *car) poll() {
	c.s.t.Helper()
	if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: localhost\r\nAgent: %s\r\nContent-Length: 2\r\n\r\n{}", c.id); err != nil {
		c.s.t.Fatal(err)
	}
}

func (c *car) answer() (body string, last bool) {
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

func (s *street) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not so after 20 s: %s; %d parked, %d connections", what, s.lot.Count(), s.lot.TestOnlyLive())
		}
	}
}

func (s *street) parked(n int) {
	s.t.Helper()
	s.eventually(fmt.Sprint(n, " are parked"), func() bool {
		return s.lot.Count() == n && s.lot.TestOnlyLive() >= n
	})
}

// post is a Looker: what lies there for whom.
type post struct {
	mu    sync.Mutex
	mail  map[string]string
	delay map[string]time.Duration // a look's, for each wait
	most  int                      // waits in one look
	panic bool
}

func (p *post) put(mail string, ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mail == nil {
		p.mail = map[string]string{}
	}
	for _, id := range ids {
		p.mail[id] = mail
	}
}

func (p *post) Look(_ context.Context, waits []*checkin.Wait) []checkin.Found {
	out := make([]checkin.Found, len(waits))
	for i, w := range waits {
		p.mu.Lock()
		if p.panic {
			p.panic = false
			p.mu.Unlock()
			panic("a mistake in a look")
		}
		p.most = max(p.most, len(waits))
		delay := p.delay[w.AgentID]
		if mail, ok := p.mail[w.AgentID]; ok {
			out[i].Answer = &checkin.Answer{Status: http.StatusOK, Body: []byte(mail)}
			delete(p.mail, w.AgentID)
		} else {
			delay = 0
		}
		p.mu.Unlock()
		time.Sleep(delay)
	}
	return out
}

func many(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("agent-", i)
	}
	return ids
}

func TestLotKeepsNoGoroutineAndNoConnectionOfThoseWhoLeft(t *testing.T) {
	p := &post{}
	s := newStreet(t, p, nil)
	ids := many(200)
	var cars []*car
	for _, id := range ids {
		cars = append(cars, s.drive(id))
	}
	s.parked(len(ids))
	if n := s.lot.TestOnlyBlocked(); n != 0 {
		t.Errorf("%d hold a goroutine", n)
	}
	// Half of them are answered and idle, the others parked; then all hang up.
	p.put("upgrade", ids[:100]...)
	s.lot.Wake(ids[:100]...)
	for _, c := range cars[:100] {
		if got, last := c.answer(); got != "upgrade" || last {
			t.Errorf("agent %s: answer %q, last %v", c.id, got, last)
		}
	}
	p.mu.Lock()
	if p.most < 2 {
		t.Error("agents woken together were looked for one by one")
	}
	p.mu.Unlock()
	s.parked(100)
	if n := s.lot.TestOnlyLive(); n != 200 {
		t.Errorf("%d connections, want the idle ones too", n)
	}
	begin := time.Now()
	for i, c := range cars {
		if i%2 == 0 {
			c.Close()
		} else {
			c.NetConn().Close() // without TLS's farewell
		}
	}
	s.eventually("all are forgotten", func() bool { return s.lot.TestOnlyLive() == 0 && s.lot.Count() == 0 })
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestLotKeepsNoBuffersOfThoseWhoWait(t *testing.T) {
	p := &post{}
	s := newStreet(t, p, nil)
	c := s.drive("a")
	for i := range 4 {
		s.eventually("it is set aside", func() bool { return s.lot.TestOnlyAside("a") })
		if n := s.lot.TestOnlySpare("a"); n != 0 {
			t.Errorf("poll %d: the connection has %d bytes to read into", i, n)
		}
		want := fmt.Sprint("upgrade ", i)
		p.put(want, "a")
		s.lot.Wake("a")
		if got, _ := c.answer(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		c.poll()
	}
}

// An operator's action for one agent does not wait for another for the whole fleet,
// not even where the agent is in both.
func TestLotWakesFewBeforeMany(t *testing.T) {
	p := &post{delay: map[string]time.Duration{}}
	s := newStreet(t, p, nil)
	ids := many(300) // the longest batch, and a little
	cars := map[string]*car{}
	for _, id := range append(ids, "single") {
		cars[id] = s.drive(id)
	}
	s.parked(len(ids) + 1)
	p.mu.Lock()
	for _, id := range ids {
		p.delay[id] = 8 * time.Millisecond
	}
	p.mu.Unlock()
	p.put("bulk", ids...)
	s.lot.Wake(ids...)
	p.put("single", "single")
	begin := time.Now()
	s.lot.Wake("single")
	s.lot.Wake(ids[len(ids)-1])
	for id, want := range map[string]string{"single": "single", ids[len(ids)-1]: "bulk"} {
		if got, _ := cars[id].answer(); got != want {
			t.Errorf("agent %s got %q", id, got)
		}
	}
	if left, took := s.lot.Count(), time.Since(begin); left < len(ids)/4 || took > time.Second {
		t.Errorf("the single ones were answered after %s, when only %d of the bulk were left", took, left)
	}
	for _, id := range ids[:len(ids)-1] {
		if got, _ := cars[id].answer(); got != "bulk" {
			t.Fatalf("agent %s got %q", id, got)
		}
	}
}

func TestLotIsNotHeldUpByClientsThatDoNotRead(t *testing.T) {
	t.Parallel() // it waits until writes are given up
	p := &post{}
	s := newStreet(t, p, nil)
	lazy := many(6)
	for _, id := range lazy {
		s.drive(id)
	}
	good := s.drive("good")
	s.parked(len(lazy) + 1)
	p.put(strings.Repeat("x", 8<<20), lazy...) // more than any socket's buffer
	s.lot.Wake(lazy...)
	begin := time.Now()
	for i := range 50 {
		want := fmt.Sprint("upgrade ", i)
		p.put(want, "good")
		s.lot.Wake("good")
		if got, _ := good.answer(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		good.poll()
	}
	if took := time.Since(begin); took > 4*time.Second {
		t.Errorf("50 answers took %s while others did not read", took)
	}
	s.eventually("those who do not read are cut off", func() bool { return s.lot.TestOnlyLive() <= 1 })
}

func TestLotSurvivesALookThatPanics(t *testing.T) {
	p := &post{}
	s := newStreet(t, p, nil)
	c := s.drive("a")
	s.parked(1)
	s.eventually("it is set aside", func() bool { return s.lot.TestOnlyAside("a") })
	p.mu.Lock()
	p.panic = true
	p.mu.Unlock()
	s.lot.Wake("a")
	s.eventually("the look has failed", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.panic
	})
	p.put("upgrade", "a")
	s.lot.Wake("a")
	if got, _ := c.answer(); got != "upgrade" {
		t.Errorf("got %q", got)
	}
}

// incomparable Lookers cannot be told apart.
type incomparable struct {
	*post
	_ []int
}

func TestLotTakesLookersThatCannotBeCompared(t *testing.T) {
	p := &post{}
	s := newStreet(t, incomparable{post: p}, nil)
	cars := []*car{s.drive("a"), s.drive("b")}
	s.parked(2)
	p.put("upgrade", "a", "b")
	s.lot.Wake("a", "b")
	for _, c := range cars {
		if got, _ := c.answer(); got != "upgrade" {
			t.Errorf("got %q", got)
		}
	}
}

// opaque connections do not show what the kernel knows them by.
type opaque struct{ net.Listener }

func (o opaque) Accept() (net.Conn, error) {
	c, err := o.Listener.Accept()
	return struct{ net.Conn }{c}, err
}

func TestLotBlocksWithConnectionsItCannotWatch(t *testing.T) {
	p := &post{}
	s := newStreet(t, p, func(l net.Listener) net.Listener { return opaque{l} })
	c := s.drive("a")
	s.eventually("it is parked with a goroutine", func() bool { return s.lot.TestOnlyBlocked() == 1 })
	p.put("upgrade", "a")
	s.lot.Wake("a")
	if got, _ := c.answer(); got != "upgrade" {
		t.Errorf("got %q", got)
	}
}

func TestLotDrainsAtItsRateAndSaysSo(t *testing.T) {
	p := &post{}
	s := newStreet(t, p, nil)
	ids := many(300)
	var cars []*car
	for _, id := range ids {
		cars = append(cars, s.drive(id))
	}
	s.parked(len(ids))
	begin := time.Now()
	done := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		done <- s.lot.Close(ctx)
	}()
	for _, c := range cars {
		got, last := c.answer()
		if got != string(checkin.Empty().Body) || !last {
			t.Fatalf("agent %s: answer %q, last %v", c.id, got, last)
		}
		c.Close()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	// The first go at once, the last after all but one of the pauses.
	if took, want := time.Since(begin), time.Duration(len(ids))*time.Second/checkin.DrainRate-40*time.Millisecond; took < want {
		t.Errorf("%d were answered in %s, want at least %s", len(ids), took, want)
	}
}

// Not parallel: it sets the collector of the whole process.
func TestAWakeOfManyLetsTheHeapGrow(t *testing.T) {
	was := debug.SetGCPercent(100)
	defer debug.SetGCPercent(was)
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	synctest.Test(t, func(t *testing.T) {
		lot := checkin.NewLot(slog.New(slog.DiscardHandler))
		lot.Heap = limit.TuneMemory(0, func(string) string { return "" })
		parked := percent()
		many := make([]string, 1000)
		few := many[:999]
		lot.Wake(few...)
		synctest.Wait()
		if p := percent(); p != parked {
			t.Errorf("after a wake of %d it is %d, want %d", len(few), p, parked)
		}
		lot.Wake(many...)
		synctest.Wait()
		if p := percent(); p <= parked {
			t.Errorf("after a wake of %d it is %d still", len(many), p)
		}
	})
}
