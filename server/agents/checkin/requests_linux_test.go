package checkin_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// handlers answer requests other than polls.
func handlers() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		fmt.Fprintf(w, "%s %s %s %q %v", r.Method, r.URL, r.Host, b, err)
	})
	mux.HandleFunc("/no-content", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 200_000)) })
	mux.HandleFunc("/unread", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	mux.HandleFunc("/close", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	mux.HandleFunc("/abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	return mux
}

// readAnswers returns up to n answers as text, without the time of day.
func readAnswers(t *testing.T, c *tls.Conn, n int) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	var out strings.Builder
	in := bufio.NewReader(c)
	for range n {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return out.String() + "end"
		}
		b, err := io.ReadAll(resp.Body)
		resp.Header.Del("Date")
		fmt.Fprintf(&out, "%s %v %d close=%t %q %v\n", resp.Status, resp.Header, resp.ContentLength, resp.Close, b, err)
		if resp.Close {
			if n, err := in.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Error("the connection goes on after its last answer")
			}
			return out.String()
		}
	}
	return out.String()
}

// A connection that has been parked answers as one that has not: the same parser reads
// both, so that neither is open to request smuggling where the other is not.
func TestRequestAfterAPollIsAnsweredAsOnANewConnection(t *testing.T) {
	const head = " HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: 1\r\n"
	a := &actions{}
	s := newPollServer(t, a, nil)
	s.others = handlers()
	for i, c := range []struct {
		name, request string
		answers       int
		want          string // a part of the first answer
	}{
		{"body", "POST /echo?a=b" + head + "Content-Length: 3\r\n\r\nabc", 1, `\"abc\"`},
		{"no body", "POST /echo" + head + "Content-Length: 0\r\n\r\n", 1, "200"},
		{"absolute URL", "POST http://localhost/echo" + head + "Content-Length: 0\r\n\r\n", 1, "200"},
		{"answer without a body", "POST /no-content" + head + "Content-Length: 0\r\n\r\n", 1, "204"},
		{"body that the handler does not read", "POST /unread" + head + "Content-Length: 3\r\n\r\nabc", 1, "418"},
		{"large answer", "POST /large" + head + "Content-Length: 0\r\n\r\n", 1, "200"},
		{"handler closes the connection", "POST /close" + head + "Content-Length: 0\r\n\r\n", 2, "429"},
		{"client closes the connection", "POST /echo" + head + "Connection: close\r\nContent-Length: 0\r\n\r\n", 2, "close=true"},
		{"handler aborts", "POST /abort" + head + "Content-Length: 0\r\n\r\n", 1, "end"},
		{"GET", "GET /echo" + head + "\r\n", 1, "200"},
		{"chunked", "POST /echo" + head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 1, `\"abc\"`},
		{"chunked with a length", "POST /echo" + head + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 1, ""},
		{"two lengths", "POST /echo" + head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 1, "400"},
		{"negative length", "POST /echo" + head + "Content-Length: -3\r\n\r\nabc", 1, "400"},
		{"length with a sign", "POST /echo" + head + "Content-Length: +3\r\n\r\nabc", 1, "400"},
		{"folded header", "POST /echo" + head + "X-Long: a\r\n b\r\nContent-Length: 3\r\n\r\nabc", 1, ""},
		{"bare line feeds", "POST /echo HTTP/1.1\nHost: localhost\nContent-Length: 8\n\nabcd\r\n\r\n", 1, ""},
		{"control character", "POST /echo" + head + "X-Bell: \a\r\nContent-Length: 3\r\n\r\nabc", 1, "400"},
		{"space before the colon", "POST /echo" + head + "Content-Length : 3\r\n\r\nabc", 1, "400"},
		{"chunked behind a space", "POST /echo" + head + "Transfer-Encoding : chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 1, "400"},
		{"unknown coding", "POST /echo" + head + "Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc", 1, "501"},
		{"name that is not a token", "POST /echo" + head + "X Y: 1\r\nContent-Length: 3\r\n\r\nabc", 1, "400"},
		{"host with a space", "POST /echo HTTP/1.1\r\nHost: a b\r\nContent-Length: 3\r\n\r\nabc", 1, "400"},
		{"no host", "POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 1, "400"},
		{"no version", "POST /echo\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 1, "400"},
		{"HTTP/1.0", "POST /echo HTTP/1.0\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 1, `\"abc\"`},
		{"100-continue", "POST /echo" + head + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", 2, "100"},
		{"not HTTP", "\x16\x03\x01 POST\r\n\r\n", 2, "400"},
		{"two requests in one record", strings.Repeat("POST /echo"+head+"Content-Length: 3\r\n\r\nabc", 2), 2, `\"abc\"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			send := func(conn *tls.Conn) string {
				if _, err := io.WriteString(conn, c.request); err != nil {
					t.Fatal(err)
				}
				return readAnswers(t, conn, c.answers)
			}
			fresh, err := tls.Dial("tcp", s.addr, s.client)
			if err != nil {
				t.Fatal(err)
			}
			defer fresh.Close()
			want := send(fresh)
			if !strings.Contains(want, c.want) {
				t.Errorf("on a new connection the answer is\n%swithout %q", want, c.want)
			}
			if got := send(s.idle(a, fmt.Sprint(i)).Conn); got != want {
				t.Errorf("after a poll the answer is\n%son a new connection\n%s", got, want)
			}
		})
	}
}

// An agent with a new report disconnects without waiting for its answers. The requests
// that it has sent are handled.
func TestRequestSentBeforeDisconnectIsHandled(t *testing.T) {
	a := &actions{}
	s := newPollServer(t, a, nil)
	handled := make(chan string, 1)
	s.others = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		<-r.Context().Done() // the hang-up ends the request
		handled <- fmt.Sprint(string(b), " ", err)
	})
	c := s.idle(a, "hasty")
	fmt.Fprint(c, "POST /report HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nnews")
	c.Close()
	select {
	case got := <-handled:
		if got != "news <nil>" {
			t.Errorf("the handler reads %q", got)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the request is not handled")
	}
	s.eventually("its connection is closed", func() bool { return s.parker.TestOnlyLive() == 0 })
}

// A client may send its next requests before the last is answered, of any size: each is
// answered in turn, though epoll reports an event once.
func TestPipelinedRequestsOfAnySizeAreAnswered(t *testing.T) {
	const requests = 6
	a := &actions{}
	s := newPollServer(t, a, nil)
	s.others = handlers()
	for _, size := range []int{1, 700, 2000, 4000, 4096, 9000} {
		for _, together := range []bool{false, true} {
			name := fmt.Sprintf("size %d, together %t", size, together)
			c := s.idle(a, name)
			body := strings.Repeat("x", size)
			text := fmt.Sprint("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", len(body), "\r\n\r\n", body)
			if together {
				fmt.Fprint(c, strings.Repeat(text, requests))
			} else {
				for range requests {
					fmt.Fprint(c, text)
				}
			}
			for n := range requests {
				if got, _ := c.answer(); !strings.Contains(got, body) {
					t.Fatalf("%s: request %d is answered %.60q", name, n, got)
				}
			}
		}
	}
}

// An agent may disconnect at any moment between sending a poll and being parked.
func TestDisconnectWhileParkingLeavesNothing(t *testing.T) {
	a := &actions{}
	s := newPollServer(t, a, nil)
	const agents = 200
	conns := make([]*agentConn, agents)
	for i, id := range agentIDs(agents) {
		conns[i] = s.idle(a, id)
	}
	for i, c := range conns {
		c.poll()
		if i%4 == 0 { // these are parked before
			s.eventually(c.id+" is parked again", func() bool { return s.parker.TestOnlyTakenOver(c.id) })
		}
		for range (i % 8) * 50 {
			runtime.Gosched()
		}
		c.Close()
	}
	s.eventually("nothing is left", func() bool { return s.parker.Count() == 0 && s.parker.TestOnlyLive() == 0 })
}

// Many agents poll and report by turns: every request has its own answer.
func TestConcurrentAgentsGetTheirOwnAnswers(t *testing.T) {
	const agents, rounds = 100, 5
	a := &actions{}
	s := newPollServer(t, a, nil)
	s.others = handlers()
	conns := make([]*agentConn, agents)
	for i, id := range agentIDs(agents) {
		conns[i] = s.dial(id)
	}
	for round := range rounds {
		s.parked(agents)
		for _, id := range agentIDs(agents) {
			a.put(fmt.Sprint("round ", round, " for ", id), id)
		}
		s.parker.Wake(agentIDs(agents)...)
		var all sync.WaitGroup
		for _, c := range conns {
			all.Go(func() {
				if got, _ := c.answer(); got != fmt.Sprint("round ", round, " for ", c.id) {
					t.Errorf("agent %s got %q", c.id, got)
				}
				fmt.Fprintf(c, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(c.id), c.id)
				if got, _ := c.answer(); !strings.Contains(got, fmt.Sprintf("%q", c.id)) {
					t.Errorf("agent %s got %q", c.id, got)
				}
				c.poll()
			})
		}
		all.Wait()
	}
}
