package checkin_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/checkin"
)

func TestParkedAndIdleConnectionsHoldNoGoroutine(t *testing.T) {
	a := &actions{}
	s := newPollServer(t, a, nil)
	const agents = 200
	ids := agentIDs(agents)
	before := runtime.NumGoroutine()
	var conns []*agentConn
	for _, id := range ids {
		conns = append(conns, s.dial(id))
	}
	fewGoroutines := func() bool { return runtime.NumGoroutine() < before+agents/4 } // the parker has a few of its own
	s.parked(agents)
	s.eventually("parked polls hold no goroutine", fewGoroutines)
	// Half of them are answered and idle, the others parked; then all disconnect.
	a.put("upgrade", ids[:100]...)
	s.parker.Wake(ids[:100]...)
	for _, c := range conns[:100] {
		if got, last := c.answer(); got != "upgrade" || last {
			t.Errorf("agent %s: answer %q, last %v", c.id, got, last)
		}
	}
	a.mu.Lock()
	if a.most < 2 {
		t.Error("agents woken together were checked one by one")
	}
	a.mu.Unlock()
	s.parked(100)
	s.eventually("idle connections hold no goroutine", func() bool { return s.parker.TestOnlyIdle() == 100 && fewGoroutines() })
	begin := time.Now()
	for i, c := range conns {
		if i%2 == 0 {
			c.Close()
		} else {
			c.NetConn().Close() // without TLS's close_notify
		}
	}
	s.eventually("all are released", func() bool { return s.parker.TestOnlyLive() == 0 && s.parker.Count() == 0 })
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestIdleConnectionIsClosedAfterIdleLimit(t *testing.T) {
	a := &actions{}
	s := newPollServer(t, a, nil)
	c := s.idle(a, "idle")
	s.eventually("the connection is idle", func() bool { return s.parker.TestOnlyIdle() == 1 })
	s.parker.TestOnlyAdvance(checkin.IdleLimit - time.Second)
	if n := s.parker.TestOnlyIdle(); n != 1 {
		t.Fatalf("%d connections are idle before the limit, want 1", n)
	}
	s.parker.TestOnlyAdvance(checkin.IdleLimit + time.Second)
	if n := s.parker.TestOnlyLive(); n != 0 {
		t.Errorf("%d connections are left after the limit", n)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if b, err := c.answers.ReadByte(); err == nil {
		t.Errorf("the client reads %q, want the end", b)
	}
}

func TestParkedConnectionHoldsNoReadBuffers(t *testing.T) {
	a := &actions{}
	s := newPollServer(t, a, nil)
	c := s.dial("a")
	for i := range 4 {
		s.eventually("the connection is taken over", func() bool { return s.parker.TestOnlyTakenOver("a") })
		if n := s.parker.TestOnlyReadBuffers("a"); n != 0 {
			t.Errorf("poll %d: the connection has read buffers of %d bytes", i, n)
		}
		want := fmt.Sprint("upgrade ", i)
		a.put(want, "a")
		s.parker.Wake("a")
		if got, _ := c.answer(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		c.poll()
	}
}

// An operator's action for one agent does not wait for one for all of them, also where
// that agent is in both.
func TestSmallWakeOvertakesBulkWake(t *testing.T) {
	a := &actions{delay: map[string]time.Duration{}}
	s := newPollServer(t, a, nil)
	ids := agentIDs(300) // more than one batch
	conns := map[string]*agentConn{}
	for _, id := range append(ids, "single") {
		conns[id] = s.dial(id)
	}
	s.parked(len(ids) + 1)
	a.mu.Lock()
	for _, id := range ids {
		a.delay[id] = 8 * time.Millisecond
	}
	a.mu.Unlock()
	a.put("bulk", ids...)
	s.parker.Wake(ids...)
	a.put("single", "single")
	begin := time.Now()
	s.parker.Wake("single")
	s.parker.Wake(ids[len(ids)-1])
	for id, want := range map[string]string{"single": "single", ids[len(ids)-1]: "bulk"} {
		if got, _ := conns[id].answer(); got != want {
			t.Errorf("agent %s got %q", id, got)
		}
	}
	if left, took := s.parker.Count(), time.Since(begin); left < len(ids)/4 || took > time.Second {
		t.Errorf("the single ones were answered after %s, when only %d of the bulk were left", took, left)
	}
	for _, id := range ids[:len(ids)-1] {
		if got, _ := conns[id].answer(); got != "bulk" {
			t.Fatalf("agent %s got %q", id, got)
		}
	}
}

func TestClientThatDoesNotReadIsDisconnected(t *testing.T) {
	t.Parallel() // it waits until the writes time out
	a := &actions{}
	s := newPollServer(t, a, nil)
	slow := agentIDs(6)
	for _, id := range slow {
		s.dial(id)
	}
	s.parked(len(slow))
	a.put(strings.Repeat("x", 8<<20), slow...) // more than any socket's buffer
	s.parker.Wake(slow...)
	s.eventually("they are disconnected", func() bool { return s.parker.TestOnlyLive() == 0 })
}

func TestCheckThatPanicsKeepsThePollParked(t *testing.T) {
	a := &actions{}
	s := newPollServer(t, a, nil)
	c := s.dial("a")
	s.eventually("the connection is taken over", func() bool { return s.parker.TestOnlyTakenOver("a") })
	a.mu.Lock()
	a.panic = true
	a.mu.Unlock()
	s.parker.Wake("a")
	s.eventually("the check has failed", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return !a.panic
	})
	a.put("upgrade", "a")
	s.parker.Wake("a")
	if got, _ := c.answer(); got != "upgrade" {
		t.Errorf("got %q", got)
	}
}

// wrapListener wraps each connection that it accepts.
type wrapListener struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (l wrapListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.wrap(c), nil
}

func TestConnectionWithoutDescriptorIsParkedByBlocking(t *testing.T) {
	a := &actions{}
	s := newPollServer(t, a, func(l net.Listener) net.Listener {
		return wrapListener{l, func(c net.Conn) net.Conn { return struct{ net.Conn }{c} }}
	})
	c := s.dial("a")
	s.eventually("a goroutine has parked it", func() bool { return s.parker.TestOnlyBlocked() == 1 })
	a.put("upgrade", "a")
	s.parker.Wake("a")
	if got, _ := c.answer(); got != "upgrade" {
		t.Errorf("got %q", got)
	}
}

// unwatchable shows the descriptor of a regular file, which epoll_ctl refuses with
// EPERM.
type unwatchable struct {
	net.Conn
	file *os.File
}

func (c unwatchable) SyscallConn() (syscall.RawConn, error) { return c.file.SyscallConn() }

func TestFailedEpollCtlConcernsOneConnection(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	var refused atomic.Bool
	a := &actions{}
	s := newPollServer(t, a, func(l net.Listener) net.Listener {
		return wrapListener{l, func(c net.Conn) net.Conn {
			if refused.Load() {
				return unwatchable{c, file}
			}
			return c
		}}
	})
	var conns []*agentConn
	dial := func(id string) {
		conns = append(conns, s.dial(id))
		s.parked(len(conns))
	}
	for _, id := range []string{"a", "b"} {
		dial(id)
		s.eventually(id+" is taken over", func() bool { return s.parker.TestOnlyTakenOver(id) })
	}
	refused.Store(true)
	for n, id := range []string{"refused", "refused too"} {
		dial(id)
		s.eventually(id+" is parked by a goroutine", func() bool { return s.parker.TestOnlyBlocked() == n+1 })
	}
	refused.Store(false)
	dial("c")
	s.eventually("a later connection is taken over", func() bool { return s.parker.TestOnlyTakenOver("c") })
	for _, id := range []string{"a", "b"} {
		if !s.parker.TestOnlyTakenOver(id) {
			t.Errorf("agent %s is no longer parked", id)
		}
	}
	if n := strings.Count(s.log.String(), "epoll does not watch it"); n != 1 {
		t.Errorf("it is logged %d times, want 1:\n%s", n, s.log.String())
	}
	for round := range 2 { // the connections stay usable
		for _, c := range conns {
			want := fmt.Sprint("upgrade ", round)
			a.put(want, c.id)
			s.parker.Wake(c.id)
			if got, last := c.answer(); got != want || last {
				t.Errorf("agent %s got %q, last %v", c.id, got, last)
			}
			c.poll()
		}
		s.parked(len(conns))
	}
	conns[2].Close() // a hang-up of the refused one is noticed, too
	s.parked(len(conns) - 1)
}

func TestCloseDrainsAtDrainRate(t *testing.T) {
	a := &actions{}
	s := newPollServer(t, a, nil)
	ids := agentIDs(300)
	var conns []*agentConn
	for _, id := range ids {
		conns = append(conns, s.dial(id))
	}
	s.parked(len(ids))
	begin := time.Now()
	done := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		done <- s.parker.Close(ctx)
	}()
	for _, c := range conns {
		got, last := c.answer()
		if got != string(checkin.Empty().Body) || !last {
			t.Fatalf("agent %s: answer %q, last %v", c.id, got, last)
		}
		c.Close()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	// The first 20 ms' worth go at once.
	if took, want := time.Since(begin), time.Duration(len(ids))*time.Second/checkin.DrainRate-20*time.Millisecond; took < want {
		t.Errorf("%d were answered in %s, want at least %s", len(ids), took, want)
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }
