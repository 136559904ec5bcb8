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

// line is a connection of a client that net/http's would never be.
type line struct {
	y    *yard
	wire *wire
	*tls.Conn
	answers *bufio.Reader
}

// wire keeps what is written until it is let go, so that several TLS records leave
// in one segment.
type wire struct {
	net.Conn
	holding bool
	held    bytes.Buffer
}

func (w *wire) Write(b []byte) (int, error) {
	if w.holding {
		return w.held.Write(b)
	}
	return w.Conn.Write(b)
}

func (w *wire) let() error {
	w.holding = false
	_, err := w.held.WriteTo(w.Conn)
	return err
}

func (y *yard) dial() *line {
	y.t.Helper()
	c, err := net.Dial("tcp", y.server.Listener.Addr().String())
	if err != nil {
		y.t.Fatal(err)
	}
	w := &wire{Conn: c}
	config := y.clientTLS()
	config.NextProtos = []string{"http/1.1"}
	l := &line{y: y, wire: w, Conn: tls.Client(w, config)}
	l.answers = bufio.NewReader(l.Conn)
	if err := l.Handshake(); err != nil {
		y.t.Fatal(err)
	}
	_ = l.SetDeadline(time.Now().Add(patience))
	return l
}

func (y *yard) request(p *poll) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nPoll: %s\r\nContent-Length: %d\r\n\r\n%s", y.plan(p), len(requestBody), requestBody)
}

func (l *line) send(text string) {
	l.y.t.Helper()
	if _, err := io.WriteString(l, text); err != nil {
		l.y.t.Fatal(err)
	}
}

// wants reads an answer.
func (l *line) wants(body string) (last bool) {
	l.y.t.Helper()
	resp, err := http.ReadResponse(l.answers, nil)
	if err != nil {
		l.y.t.Fatalf("no answer: %v; want %q", err, body)
	}
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != body {
		l.y.t.Fatalf("the answer is %q, error %v; want %q", got, err, body)
	}
	return resp.Close
}

func (y *yard) looked(p *poll) {
	y.t.Helper()
	y.eventually(func() error {
		if p.looks.Load() == 0 || p.looking.Load() {
			return errors.New("the poll has not looked")
		}
		return nil
	})
}

// A client may send its next request before it has the answer to the last, in ways
// that leave it in different buffers of the server. Each is answered, in turn.
func earlyRequests(t *testing.T, y *yard) {
	deliver := func(l *line, p *poll, box *mailbox) {
		t.Helper()
		y.looked(p)
		box.put("for " + p.agent)
		y.parker.Wake(p.agent)
		l.wants("for " + p.agent)
	}
	ways := map[string]func(l *line, first, second string) (rest string){
		"in one record": func(l *line, first, second string) string {
			l.send(first + second)
			return ""
		},
		"in two records of one segment": func(l *line, first, second string) string {
			l.wire.holding = true
			l.send(first)
			l.send(second)
			if err := l.wire.let(); err != nil {
				t.Fatal(err)
			}
			return ""
		},
		"a record and a part of one": func(l *line, first, second string) string {
			l.wire.holding = true
			l.send(first)
			l.send(second)
			all := append([]byte(nil), l.wire.held.Bytes()...)
			l.wire.held.Truncate(len(all) - 20)
			if err := l.wire.let(); err != nil {
				t.Fatal(err)
			}
			return string(all[len(all)-20:])
		},
		"a request and the beginning of one": func(l *line, first, second string) string {
			l.send(first + second[:10])
			l.send(second[10:])
			return ""
		},
	}
	for name, send := range ways {
		l := y.dial()
		var boxes [3]mailbox
		var polls [3]*poll
		var requests [3]string
		for i := range polls {
			polls[i] = &poll{agent: fmt.Sprint(name, " ", i), deadline: long, look: boxes[i].look}
			requests[i] = y.request(polls[i])
		}
		rest := send(l, requests[0], requests[1])
		deliver(l, polls[0], &boxes[0])
		if rest != "" {
			if _, err := io.WriteString(l.wire, rest); err != nil { // it is encrypted
				t.Fatal(err)
			}
		}
		deliver(l, polls[1], &boxes[1])
		l.send(requests[2])
		deliver(l, polls[2], &boxes[2])
		l.Close()
	}
	y.count(0)
}

// While a poll is parked, its client sends the next: it is kept until its turn.
func requestWhileParked(t *testing.T, y *yard) {
	l := y.dial()
	defer l.Close()
	var box mailbox
	one := &poll{agent: "a", deadline: long, look: box.look}
	two := &poll{agent: "b", look: nothing}
	l.send(y.request(one))
	y.looked(one)
	y.count(1)
	l.send(y.request(two))
	select {
	case <-time.After(calm):
	case <-t.Context().Done():
	}
	if two.looks.Load() != 0 {
		t.Error("the second poll overtook the first")
	}
	box.put("upgrade")
	y.parker.Wake("a")
	l.wants("upgrade")
	l.wants(emptyBody)
}

// A client that says it is its last request gets the connection closed, and an old
// one expects it.
func lastRequest(t *testing.T, y *yard) {
	for _, text := range []string{
		"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nPoll: %s\r\nContent-Length: 0\r\n\r\n",
		"POST / HTTP/1.0\r\nPoll: %s\r\nContent-Length: 0\r\n\r\n",
	} {
		l := y.dial()
		var box mailbox
		p := &poll{agent: "a", deadline: long, look: box.look}
		l.send(fmt.Sprintf(text, y.plan(p)))
		y.looked(p)
		y.count(1)
		box.put("upgrade")
		y.parker.Wake("a")
		if !l.wants("upgrade") {
			t.Error("the answer does not say that it is the last")
		}
		if b, err := l.answers.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("behind the last answer comes %q, %v; want the end", b, err)
		}
		l.Close()
		y.count(0)
	}
}
