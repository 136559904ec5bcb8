package checkin_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/checkin"
)

// sights are what there is to see in the street beside polls.
func sights() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		fmt.Fprintf(w, "%s %s %s %q %v", r.Method, r.URL, r.Host, b, err)
	})
	mux.HandleFunc("/nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/silence", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/sniff", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
	mux.HandleFunc("/unread", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", "200000")
		_, _ = io.WriteString(w, strings.Repeat("x", 200_000))
	})
	mux.HandleFunc("/last", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	return mux
}

// withLane notes which requests were answered in the lane.
func (s *street) withLane(h http.Handler) func() (lane, all int) {
	var mu sync.Mutex
	var lane, all int
	s.others = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		all++
		if r.Context().Value(http.ServerContextKey) == nil {
			lane++
		}
		mu.Unlock()
		h.ServeHTTP(w, r)
	})
	return func() (int, int) {
		mu.Lock()
		defer mu.Unlock()
		defer func() { lane, all = 0, 0 }()
		return lane, all
	}
}

// parkedOnce is a connection whose poll has been answered.
func (s *street) parkedOnce(p *post, id string) *car {
	s.t.Helper()
	c := s.drive(id)
	s.eventually(id+" is parked", func() bool { return s.lot.TestOnlyAside(id) })
	p.put("go", id)
	s.lot.Wake(id)
	if got, _ := c.answer(); got != "go" {
		s.t.Fatalf("agent %s got %q", id, got)
	}
	return c
}

// everything is what the server says until it is silent for long or hangs up, but for
// the time of day.
func everything(t *testing.T, c *tls.Conn, answers int) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	var out strings.Builder
	in := bufio.NewReader(c)
	for range answers {
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

// A client cannot see whether its request was answered in the lane, which takes plain
// ones alone.
func TestTheLaneAnswersAsNetHTTPDoes(t *testing.T) {
	const head = " HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: 1\r\n"
	p := &post{}
	s := newStreet(t, p, nil)
	used := s.withLane(sights())
	for i, c := range []struct {
		name, request string
		answers, lane int
	}{
		{"a body", "POST /echo?a=b" + head + "Content-Length: 3\r\n\r\nabc", 1, 1},
		{"no body", "POST /echo" + head + "Content-Length: 0\r\n\r\n", 1, 1},
		{"another spelling", "POST /echo" + head + "content-LENGTH:  3 \r\n\r\nabc", 1, 1},
		{"an absolute address", "POST http://localhost/echo" + head + "Content-Length: 0\r\n\r\n", 1, 1},
		{"an answer without a body", "POST /nothing" + head + "Content-Length: 0\r\n\r\n", 1, 1},
		{"an empty answer", "POST /silence" + head + "Content-Length: 0\r\n\r\n", 1, 1},
		{"an answer without a type", "POST /sniff" + head + "Content-Length: 0\r\n\r\n", 1, 1},
		{"a body that nobody reads", "POST /unread" + head + "Content-Length: 3\r\n\r\nabc", 1, 1},
		{"a large answer", "POST /large" + head + "Content-Length: 0\r\n\r\n", 1, 1},
		{"a handler that ends the connection", "POST /last" + head + "Content-Length: 0\r\n\r\n", 2, 1},
		{"a client that ends the connection", "POST /echo" + head + "Connection: close\r\nContent-Length: 0\r\n\r\n", 2, 1},
		{"a handler that breaks off", "POST /panic" + head + "Content-Length: 0\r\n\r\n", 1, 1},
		{"a path that is none", "POST /elsewhere" + head + "Content-Length: 0\r\n\r\n", 1, 1},
		{"another method", "GET /echo" + head + "\r\n", 1, 0},
		{"no length", "POST /echo" + head + "\r\n", 1, 0},
		{"chunks", "POST /echo" + head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 1, 0},
		{"chunks and a length", "POST /echo" + head + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 1, 0},
		{"two lengths", "POST /echo" + head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 1, 0},
		{"a negative length", "POST /echo" + head + "Content-Length: -3\r\n\r\nabc", 1, 0},
		{"a length with a sign", "POST /echo" + head + "Content-Length: +3\r\n\r\nabc", 1, 0},
		{"a continuation", "POST /echo" + head + "X-Long: a\r\n b\r\nContent-Length: 3\r\n\r\nabc", 1, 0},
		{"lone ends of lines", "POST /echo HTTP/1.1\nHost: localhost\nContent-Length: 8\n\nabcd\r\n\r\n", 1, 0},
		{"a control character", "POST /echo" + head + "X-Bell: \a\r\nContent-Length: 3\r\n\r\nabc", 1, 0},
		{"a space before the colon", "POST /echo" + head + "Content-Length : 3\r\n\r\nabc", 1, 0},
		{"no host", "POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 1, 0},
		{"no version", "POST /echo\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 1, 0},
		{"HTTP/1.0", "POST /echo HTTP/1.0\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 1, 0},
		{"a wait for leave", "POST /echo" + head + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", 2, 0},
		{"a long body", "POST /echo" + head + "Content-Length: 20000\r\n\r\n" + strings.Repeat("x", 20_000), 1, 0},
		{"no HTTP", "\x16\x03\x01 POST\r\n\r\n", 2, 0},
		{"two requests at once", strings.Repeat("POST /echo"+head+"Content-Length: 3\r\n\r\nabc", 2), 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			send := func(conn *tls.Conn) string {
				if _, err := io.WriteString(conn, c.request); err != nil {
					t.Fatal(err)
				}
				return everything(t, conn, c.answers)
			}
			fresh, err := tls.Dial("tcp", s.addr, s.client)
			if err != nil {
				t.Fatal(err)
			}
			defer fresh.Close()
			want := send(fresh)
			if lane, _ := used(); lane != 0 {
				t.Fatal("a connection that never parked is in the lane")
			}
			if got := send(s.parkedOnce(p, fmt.Sprint(i)).Conn); got != want {
				t.Errorf("after a poll the answer is\n%sand net/http's is\n%s", got, want)
			}
			if lane, _ := used(); lane != c.lane {
				t.Errorf("%d answers came from the lane, want %d", lane, c.lane)
			}
		})
	}
}

// A request may come in as many pieces as its client likes, and others wait neither
// for it nor for its handler.
func TestTheLaneWaitsForNobodyForLong(t *testing.T) {
	p := &post{}
	s := newStreet(t, p, nil)
	hold := make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/", sights())
	mux.HandleFunc("/hold", func(w http.ResponseWriter, _ *http.Request) {
		<-hold
		_, _ = io.WriteString(w, "held")
	})
	used := s.withLane(mux)
	const text = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
	for i, pause := range []time.Duration{0, 300 * time.Millisecond} { // the lane's patience is 100 ms and two ticks of the wheel
		c := s.parkedOnce(p, fmt.Sprint("slow", i))
		for _, piece := range []string{text[:5], text[5:40], text[40 : len(text)-1], text[len(text)-1:]} {
			if _, err := io.WriteString(c, piece); err != nil {
				t.Fatal(err)
			}
			time.Sleep(pause)
		}
		if got, _ := c.answer(); !strings.Contains(got, `"abc"`) {
			t.Errorf("after pieces the answer is %q", got)
		}
		if lane, all := used(); all != 1 || pause > 0 && lane != 0 {
			t.Errorf("%d requests, %d in the lane", all, lane)
		}
	}
	held := s.parkedOnce(p, "held")
	fmt.Fprint(held, "POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
	other := s.parkedOnce(p, "other")
	fmt.Fprint(other, text)
	if got, _ := other.answer(); !strings.Contains(got, `"abc"`) {
		t.Errorf("beside a handler that waits the answer is %q", got)
	}
	other.poll()
	s.parked(1)
	// The lot ends with the request: it is answered, and told that nothing follows.
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		ended <- s.lot.Close(ctx)
	}()
	if got, last := other.answer(); got != string(checkin.Empty().Body) || !last {
		t.Errorf("at the end a poll is answered %q, last %t", got, last)
	}
	select {
	case err := <-ended:
		t.Fatalf("the lot has ended before its last request was answered: %v", err)
	default:
	}
	close(hold)
	if got, last := held.answer(); got != "held" || !last {
		t.Errorf("at the end a request is answered %q, last %t", got, last)
	}
	held.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// As many requests as are worked on together have goroutines, and who is not needed
// for a while goes.
func TestTheLaneHasNoMoreHandsThanItNeeds(t *testing.T) {
	const together = 20
	p := &post{}
	s := newStreet(t, p, nil)
	hold := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/hold", func(http.ResponseWriter, *http.Request) { <-hold })
	mux.HandleFunc("/pass", func(http.ResponseWriter, *http.Request) {})
	used := s.withLane(mux)
	ask := func(c *car, where string) {
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", where)
	}
	var cars []*car
	for i := range together {
		cars = append(cars, s.parkedOnce(p, fmt.Sprint("held ", i)))
	}
	used()
	for _, c := range cars {
		ask(c, "/hold")
	}
	s.eventually("each has a goroutine", func() bool { return s.lot.TestOnlyTurns() == together })
	close(hold)
	for _, c := range cars {
		c.answer()
	}
	for range together { // one after the other
		ask(cars[0], "/pass")
		cars[0].answer()
	}
	s.eventually("nobody waits for a request", func() bool { return s.lot.TestOnlyTurns() == 0 })
	ask(cars[0], "/pass")
	cars[0].answer()
	if lane, all := used(); lane != all || lane != 2*together+1 {
		t.Errorf("%d of %d were answered in the lane", lane, all)
	}
}

// An agent that has something new to say does not wait for the answer to what it said
// before: it hangs up. What it had sent by then is heard.
func TestTheLaneHearsThoseWhoHaveGone(t *testing.T) {
	p := &post{}
	s := newStreet(t, p, nil)
	hold, heard := make(chan struct{}), make(chan string, 2)
	mux := http.NewServeMux()
	mux.HandleFunc("/hold", func(http.ResponseWriter, *http.Request) { <-hold })
	mux.HandleFunc("/say", func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		<-r.Context().Done() // as net/http tells it
		heard <- fmt.Sprint(string(b), " ", err)
	})
	s.withLane(mux)
	say := func(c *car, what string) {
		fmt.Fprintf(c, "POST /say HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(what), what)
	}
	for _, first := range []bool{true, false} {
		c := s.parkedOnce(p, fmt.Sprint("hasty ", first))
		if !first { // while it is answered, it says the next and goes
			fmt.Fprint(c, "POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
			s.eventually("it is answered", func() bool { return s.lot.TestOnlyServing() == 1 })
		}
		say(c, "news")
		c.Close()
		if !first {
			close(hold)
		}
		select {
		case got := <-heard:
			if got != "news <nil>" {
				t.Errorf("heard is %q", got)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("not heard; it was its first request: %t", first)
		}
		s.eventually("its connection is closed", func() bool { return s.lot.TestOnlyLive() == 0 })
	}
}

// A client may send its next requests before the last is answered, as many as it likes
// and of any size: each is answered in its turn, though the kernel tells once of what
// has come.
func TestTheLaneMissesNothingThatComesEarly(t *testing.T) {
	const requests = 6
	p := &post{}
	s := newStreet(t, p, nil)
	used := s.withLane(sights())
	inLane := 0
	for _, size := range []int{1, 700, 1000, 1365, 2000, 3300, 3990, 4000, 4010, 4020, 4030, 4050, 4096, 9000} {
		for _, together := range []bool{false, true} {
			name := fmt.Sprintf("size %d, together %t", size, together)
			c := s.parkedOnce(p, name)
			head := "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
			body := strings.Repeat("x", max(size-len(head)-len("1000\r\n\r\n"), 1))
			text := fmt.Sprint(head, len(body), "\r\n\r\n", body)
			if together {
				text = strings.Repeat(text, requests)
			}
			for range requests {
				fmt.Fprint(c, text)
				if together {
					break
				}
			}
			for n := range requests {
				if got, _ := c.answer(); !strings.Contains(got, body) {
					t.Fatalf("%s: request %d is answered %.60q", name, n, got)
				}
			}
			lane, _ := used()
			inLane += lane
		}
	}
	if inLane == 0 {
		t.Error("none was answered in the lane")
	}
}

// An agent may go at any moment between sending its next poll and being parked with it:
// nothing is kept of it.
func TestTheLaneForgetsThoseWhoGoAsTheyPark(t *testing.T) {
	p := &post{}
	s := newStreet(t, p, nil)
	s.withLane(sights())
	const agents = 200
	cars := make([]*car, agents)
	for i, id := range many(agents) {
		cars[i] = s.parkedOnce(p, id)
	}
	for i, c := range cars {
		c.poll()
		if i%4 == 0 { // these are parked before
			s.eventually(c.id+" is parked again", func() bool { return s.lot.TestOnlyAside(c.id) })
		}
		for range (i % 8) * 50 {
			runtime.Gosched()
		}
		c.Close()
	}
	s.eventually("nobody is there", func() bool { return s.lot.Count() == 0 && s.lot.TestOnlyLive() == 0 })
}

// Many agents that poll and report by turns: every request has its own answer.
func TestTheLaneKeepsAgentsApart(t *testing.T) {
	const agents, rounds = 100, 5
	p := &post{}
	s := newStreet(t, p, nil)
	used := s.withLane(sights())
	cars := make([]*car, agents)
	for i, id := range many(agents) {
		cars[i] = s.drive(id)
	}
	for round := range rounds {
		s.eventually("all are parked", func() bool { return s.lot.Count() == agents })
		p.put(fmt.Sprint("round ", round), many(agents)...)
		s.lot.Wake(many(agents)...)
		var all sync.WaitGroup
		for _, c := range cars {
			all.Go(func() {
				if got, _ := c.answer(); got != fmt.Sprint("round ", round) {
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
	if lane, all := used(); lane != all || all != agents*rounds {
		t.Errorf("%d of %d requests were answered in the lane", lane, all)
	}
}

// However a request is written: where the lane says that it ends, it ends for
// net/http.
func TestTheLaneMeasuresAsNetHTTPReads(t *testing.T) {
	lines := []string{
		"Host: localhost", "host: x", "Content-Length: 3", "Content-Length: 0", "Content-Length:3", "content-length: 03", "Content-Length: 3, 3", "Content-Length: ",
		"Content-Length : 3", " Content-Length: 9", "\tx", "Transfer-Encoding: chunked", "X-A: b", "X-A", ": b", "X-A: \x00", "X-A: b\rContent-Length: 7", "X-A: b\nContent-Length: 7",
		"Connection: close", "Content-Encoding: gzip", "Trailer: x", "Content_Length: 4", "CONTENT-LENGTH: 2",
	}
	plain := []string{"Host: localhost", "Content-Length: 3", "Content-Length: 0", "X-A: b"} // else next to none is whole
	measured := 0
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.SampledFrom([]string{"POST / HTTP/1.1", "POST /a HTTP/1.1", "POST  / HTTP/1.1", "POST / HTTP/2.0", "POST /\n", "POST"}).Draw(t, "first")
		end := rapid.SampledFrom([]string{"\r\n", "\r\n", "\r\n", "\n"}).Draw(t, "ends")
		text := first + end + strings.Join(rapid.SliceOfN(rapid.SampledFrom(rapid.SampledFrom([][]string{lines, plain}).Draw(t, "of")), 0, 5).Draw(t, "lines"), end) + end + end + rapid.SampledFrom([]string{"", "abc", "abcabc", "\r\n\r\n"}).Draw(t, "behind")
		size, err := checkin.MeasureForTest([]byte(text))
		if err != nil || size == 0 {
			return
		}
		measured++
		in := bufio.NewReader(bytes.NewReader([]byte(text)))
		r, err := http.ReadRequest(in)
		if err != nil {
			return // it goes to net/http, to be refused
		}
		body, err := io.ReadAll(r.Body)
		rest, _ := io.ReadAll(in)
		if err != nil || len(text)-len(rest) != size || r.ContentLength != int64(len(body)) {
			t.Fatalf("%q has %d bytes, net/http reads %d: %v", text, size, len(text)-len(rest), err)
		}
	})
	if measured == 0 {
		t.Error("no request was whole")
	}
}
