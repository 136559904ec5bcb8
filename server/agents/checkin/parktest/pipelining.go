package parktest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// rawConn is a client's connection to which the test writes raw bytes.
type rawConn struct {
	s    *server
	wire *bufferedWire
	*tls.Conn
	answers *bufio.Reader
}

// bufferedWire buffers writes until flush, so that several TLS records are sent in one
// segment.
type bufferedWire struct {
	net.Conn
	buffering bool
	buffer    bytes.Buffer
}

func (w *bufferedWire) Write(b []byte) (int, error) {
	if w.buffering {
		return w.buffer.Write(b)
	}
	return w.Conn.Write(b)
}

func (w *bufferedWire) flush() error {
	w.buffering = false
	_, err := w.buffer.WriteTo(w.Conn)
	return err
}

func (s *server) dial() *rawConn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.http.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	w := &bufferedWire{Conn: conn}
	config := s.clientTLS()
	config.NextProtos = []string{"http/1.1"}
	c := &rawConn{s: s, wire: w, Conn: tls.Client(w, config)}
	c.answers = bufio.NewReader(c.Conn)
	if err := c.Handshake(); err != nil {
		s.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(waitLimit))
	return c
}

func (s *server) request(p *poll) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nPoll: %s\r\nContent-Length: %d\r\n\r\n%s", s.register(p), len(requestBody), requestBody)
}

func (c *rawConn) send(text string) {
	c.s.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.s.t.Fatal(err)
	}
}

// wantAnswer reads an answer.
func (c *rawConn) wantAnswer(body string) (last bool) {
	c.s.t.Helper()
	resp, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		c.s.t.Fatalf("no answer: %v; want %q", err, body)
	}
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != body {
		c.s.t.Fatalf("the answer is %q, error %v; want %q", got, err, body)
	}
	return resp.Close
}

func (s *server) checkedOnce(p *poll) {
	s.t.Helper()
	s.eventually(func() error {
		if p.checks.Load() == 0 || p.checking.Load() {
			return errors.New("the poll has not been checked")
		}
		return nil
	})
}

// A client may send its next request before it has the answer to the last. Depending on
// the timing it is in different buffers of the server. All requests are answered in order.
func pipelined(t *testing.T, s *server) {
	deliver := func(c *rawConn, p *poll, box *mailbox) {
		t.Helper()
		s.checkedOnce(p)
		box.put("for " + p.agent)
		s.parker.Wake(p.agent)
		c.wantAnswer("for " + p.agent)
	}
	ways := map[string]func(c *rawConn, first, second string) (rest string){
		"in one record": func(c *rawConn, first, second string) string {
			c.send(first + second)
			return ""
		},
		"in two records of one segment": func(c *rawConn, first, second string) string {
			c.wire.buffering = true
			c.send(first)
			c.send(second)
			if err := c.wire.flush(); err != nil {
				t.Fatal(err)
			}
			return ""
		},
		"a record and a part of one": func(c *rawConn, first, second string) string {
			c.wire.buffering = true
			c.send(first)
			c.send(second)
			all := append([]byte(nil), c.wire.buffer.Bytes()...)
			c.wire.buffer.Truncate(len(all) - 20)
			if err := c.wire.flush(); err != nil {
				t.Fatal(err)
			}
			return string(all[len(all)-20:])
		},
		"a request and the beginning of one": func(c *rawConn, first, second string) string {
			c.send(first + second[:10])
			c.send(second[10:])
			return ""
		},
	}
	for name, send := range ways {
		c := s.dial()
		var boxes [3]mailbox
		var polls [3]*poll
		var requests [3]string
		for i := range polls {
			polls[i] = &poll{agent: fmt.Sprint(name, " ", i), deadline: never, check: boxes[i].check}
			requests[i] = s.request(polls[i])
		}
		rest := send(c, requests[0], requests[1])
		deliver(c, polls[0], &boxes[0])
		if rest != "" {
			if _, err := io.WriteString(c.wire, rest); err != nil { // rest is already encrypted
				t.Fatal(err)
			}
		}
		deliver(c, polls[1], &boxes[1])
		c.send(requests[2])
		deliver(c, polls[2], &boxes[2])
		c.Close()
	}
	s.wantCount(0)
}

// A request that is sent while a poll is parked is answered after the poll.
func requestWhileParked(t *testing.T, s *server) {
	c := s.dial()
	defer c.Close()
	var box mailbox
	one := &poll{agent: "a", deadline: never, check: box.check}
	two := &poll{agent: "b", check: nothing}
	c.send(s.request(one))
	s.checkedOnce(one)
	s.wantCount(1)
	c.send(s.request(two))
	select {
	case <-time.After(quietPeriod):
	case <-t.Context().Done():
	}
	if two.checks.Load() != 0 {
		t.Error("the second poll overtook the first")
	}
	box.put("upgrade")
	s.parker.Wake("a")
	c.wantAnswer("upgrade")
	c.wantAnswer(emptyBody)
}

// The connection closes if a client asks for it with Connection: close, or uses HTTP/1.0.
func connectionClose(t *testing.T, s *server) {
	for _, text := range []string{
		"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nPoll: %s\r\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.0\r\nPoll: %s\r\nContent-Length: 0\r\n\r\n",
	} {
		c := s.dial()
		var box mailbox
		p := &poll{agent: "a", deadline: never, check: box.check}
		c.send(fmt.Sprintf(text, s.register(p)))
		s.checkedOnce(p)
		s.wantCount(1)
		box.put("upgrade")
		s.parker.Wake("a")
		if !c.wantAnswer("upgrade") {
			t.Error("the answer does not say that it is the last")
		}
		if b, err := c.answers.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("behind the last answer comes %q, %v; want the end", b, err)
		}
		c.Close()
		s.wantCount(0)
	}
}
