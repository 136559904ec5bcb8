package checkin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/server/checkin/tlstrim"
)

type connKey struct{}

// ConnContext is for http.Server: it lets Park find a request's connection before
// taking that over. Without it every poll is parked as Blocking does.
func (p *EpollParker) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request; nil: the server has no ConnContext.
func connOf(r *http.Request) net.Conn {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return c
}

// earlyConn is a connection whose client sent bytes of its next request before it had
// the last answer. net/http has read them; they come before what the connection brings.
type earlyConn struct {
	net.Conn
	early []byte
}

func (c *earlyConn) Read(b []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(b, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// NetConn is the connection below.
func (c *earlyConn) NetConn() net.Conn { return c.Conn }

// withEarly returns a hijacked connection with what net/http has read of the next
// request.
//
// That is all that epoll does not report: net/http begins to read ahead when a
// request's body ends, and that read returns whatever tls.Conn has decrypted or
// buffered before Hijack ends it. So either the reader has a byte, and the connection
// is given back without waiting for epoll, or the rest is still to come from the
// kernel.
func withEarly(c net.Conn, r *bufio.Reader) net.Conn {
	early, _ := r.Peek(r.Buffered()) // no error: it is buffered
	if is, ok := c.(*earlyConn); ok {
		c, early = is.Conn, slices.Concat(early, is.early)
	}
	if len(early) == 0 {
		return c
	}
	return &earlyConn{Conn: c, early: bytes.Clone(early)}
}

// withoutEarly is the connection as net/http got it first.
func withoutEarly(c net.Conn) net.Conn {
	if e, ok := c.(*earlyConn); ok {
		return e.Conn
	}
	return c
}

// trim frees the buffers of a connection that is not read from for minutes, except
// those that hold bytes. A connection reads nothing until its next request, so once is
// enough.
func trim(c net.Conn) {
	if t, ok := withoutEarly(c).(*tls.Conn); ok {
		tlstrim.Trim(t)
	}
}

// belowTLS is the connection without TLS.
func belowTLS(c net.Conn) net.Conn {
	c = withoutEarly(c)
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}

// closeWrite tells the client that nothing follows.
func closeWrite(c net.Conn) {
	for _, c := range []net.Conn{withoutEarly(c), belowTLS(c)} {
		if h, ok := c.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite() // an error: the client has gone already
		}
	}
}

// descriptor returns the file descriptor of a connection, valid until that is closed,
// or false for one that does not show it by SyscallConn, itself or below its NetConn.
func descriptor(c net.Conn) (fd int32, ok bool) {
	for {
		switch v := c.(type) {
		case syscall.Conn:
			raw, err := v.SyscallConn()
			if err != nil {
				return 0, false
			}
			err = raw.Control(func(d uintptr) { fd = int32(d) }) //nolint:gosec // descriptors are ints
			return fd, err == nil
		case interface{ NetConn() net.Conn }:
			c = v.NetConn()
		default:
			return 0, false
		}
	}
}

// hasRoom says whether a third of the socket's write buffer is free.
func hasRoom(fd int32) bool {
	p := []unix.PollFd{{Fd: fd, Events: unix.POLLOUT}}
	_, err := unix.Poll(p, 0)
	return err == nil && p[0].Revents != 0 // the write finds an error of the connection
}
