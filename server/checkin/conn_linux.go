package checkin

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/server/checkin/tlstrim"
)

// early is a connection whose client has sent something of its next request while
// the last one was answered. net/http has read that, and it must be read before what
// the connection brings.
type early struct {
	net.Conn
	sent []byte
}

func (e *early) Read(p []byte) (int, error) {
	if len(e.sent) > 0 {
		n := copy(p, e.sent)
		e.sent = e.sent[n:]
		return n, nil
	}
	return e.Conn.Read(p)
}

// NetConn is the connection below.
func (e *early) NetConn() net.Conn { return e.Conn }

// ours is a hijacked connection, with what net/http has read of the next request.
//
// That is all there is: net/http begins to read ahead when a request's body ends, and
// that read finds whatever tls.Conn has decrypted or buffered; Hijack ends it only
// then. So what the reader has not got is still to come as far as epoll knows, and
// where it has got something, the connection is given back without asking epoll.
func ours(c net.Conn, r *bufio.Reader) (net.Conn, error) {
	sent := make([]byte, r.Buffered())
	if len(sent) > 0 {
		if _, err := r.Read(sent); err != nil {
			return c, err
		}
	}
	if e, ok := c.(*early); ok {
		c, sent = e.Conn, slices.Concat(sent, e.sent)
	}
	if len(sent) == 0 {
		return c, nil
	}
	return &early{Conn: c, sent: sent}, nil
}

// trim gives back the buffers of a connection that nobody reads from for minutes.
// What is in them stays. Until its next request a connection reads nothing, so once
// is enough.
func trim(c net.Conn) {
	if t := secure(c); t != nil {
		tlstrim.Trim(t)
	}
}

// secure is the TLS connection that c is; nil: it is none.
func secure(c net.Conn) *tls.Conn {
	if e, ok := c.(*early); ok {
		c = e.Conn
	}
	t, _ := c.(*tls.Conn)
	return t
}

// holds says whether c may have what has been taken from the kernel and not been read.
func holds(c net.Conn) bool {
	if e, ok := c.(*early); ok && len(e.sent) > 0 {
		return true
	}
	t := secure(c)
	return t != nil && tlstrim.Holds(t)
}

// systemConn is the connection that the kernel knows, nil if c does not show it.
func systemConn(c net.Conn) syscall.Conn {
	for {
		switch v := c.(type) {
		case syscall.Conn:
			return v
		case interface{ NetConn() net.Conn }:
			c = v.NetConn()
		default:
			return nil
		}
	}
}

var errOpaque = fmt.Errorf("has neither SyscallConn nor NetConn: %w", errors.ErrUnsupported)

// descriptor is valid until c is closed.
func descriptor(c net.Conn) (fd int32, err error) {
	sc := systemConn(c)
	if sc == nil {
		return 0, fmt.Errorf("connection of type %T: %w", c, errOpaque)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = raw.Control(func(d uintptr) { fd = int32(d) }) //nolint:gosec // descriptors are ints
	return fd, err
}

// below is what is under TLS.
func below(c net.Conn) net.Conn {
	if e, ok := c.(*early); ok {
		c = e.Conn
	}
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}

// sayFarewell tells the client that nothing follows.
func sayFarewell(c net.Conn) {
	if e, ok := c.(*early); ok {
		c = e.Conn
	}
	for _, c := range []net.Conn{c, below(c)} {
		if h, ok := c.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite() // gone already
		}
	}
}

// roomAsked is what fits into a socket's buffer that has room: of the smallest that
// Linux makes for a TCP connection, 16 KB, that is a third.
const roomAsked = 4 << 10

// hasRoom says whether n bytes, up to largeAnswer, can be written at once. It is for
// the one that answers s, and asks the kernel once for some small answers.
func (s *slot) hasRoom(n int) bool {
	if n <= int(s.room) {
		s.room -= int32(n) //nolint:gosec // it is less than room
		return true
	}
	s.room = int32(max(roomAsked-n, 0)) //nolint:gosec // it is less than roomAsked
	return ready(s.fd, unix.POLLOUT)
}

// readable says whether there is something to read, or an end.
func readable(fd int32) bool { return ready(fd, unix.POLLIN) }

// ready asks the kernel about a socket: of POLLOUT it says so if a third of the buffer
// is free.
func ready(fd int32, events int16) bool {
	p := []unix.PollFd{{Fd: fd, Events: events}}
	_, err := unix.Poll(p, 0)
	return err == nil && p[0].Revents != 0 // an error is for who reads or writes to find
}

// ownHeaders are those that are written here, whatever handlers say.
var ownHeaders = map[string]bool{"Content-Length": true, "Connection": true, "Date": true}

// parkedHeaders are those of an answer that are not kept while a poll is parked.
var parkedHeaders = map[string]bool{"Content-Type": true, "Content-Length": true, "Connection": true, "Date": true}

// headRoom is for the two header lines that handlers set.
const headRoom = 96

// headOf keeps what the handlers have said in header lines, such as the id of the
// request, without what encode writes itself.
func headOf(h http.Header) string {
	var b strings.Builder
	b.Grow(headRoom)
	_ = h.WriteSubset(&b, parkedHeaders)
	return b.String()
}

// encode appends the answer of a slot as it goes over the connection.
func (l *Lot) encode(b []byte, s *slot, a Answer) []byte {
	b = statusLine(b, a.Status)
	b = append(b, "Content-Type: application/json\r\n"...)
	b = append(b, s.head...)
	b = l.endHead(b, len(a.Body), true, s.last)
	return append(b, a.Body...)
}

func statusLine(b []byte, status int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	return append(b, "\r\n"...)
}

// endHead appends what the head ends with: the headers that are the server's.
func (l *Lot) endHead(b []byte, length int, hasBody, last bool) []byte {
	b = append(b, "Date: "...)
	b = append(b, *l.date.Load()...)
	if hasBody {
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(length), 10)
	}
	if last {
		b = append(b, "\r\nConnection: close"...)
	}
	return append(b, "\r\n\r\n"...)
}
