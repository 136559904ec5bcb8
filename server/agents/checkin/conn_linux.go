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

	"github.com/muster-fleet/muster/server/agents/checkin/tlstrim"
)

type connKey struct{}

// ConnContext is for http.Server. It lets Park find a request's connection before taking
// it over. Without it every poll is parked by Blocking.
func (p *EpollParker) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection of a request, nil if the server has no ConnContext.
func connOf(r *http.Request) net.Conn {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return c
}

// earlyConn is a connection whose client sent bytes of its next request before it got the
// last answer. net/http has read them, so Read returns them first.
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

// NetConn returns the connection below.
func (c *earlyConn) NetConn() net.Conn { return c.Conn }

// withEarly returns a hijacked connection with what net/http has read of the next
// request.
//
// Epoll reports everything else: net/http begins to read ahead when a request's body
// ends, and that read returns whatever tls.Conn has decrypted or buffered before Hijack
// ends it. So either the reader has a byte, and the connection is given back without
// waiting for epoll, or the next request is still in the kernel.
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

// withoutEarly returns the connection as net/http first accepted it.
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

// belowTLS returns the connection below TLS.
func belowTLS(c net.Conn) net.Conn {
	c = withoutEarly(c)
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}

// closeWrite tells the client that nothing follows, as net/http does.
func closeWrite(c net.Conn) {
	if h, ok := withoutEarly(c).(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite() // fails only if the client has disconnected
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

// hasRoom reports whether a third of the socket's write buffer is free.
func hasRoom(fd int32) bool {
	p := []unix.PollFd{{Fd: fd, Events: unix.POLLOUT}}
	_, err := unix.Poll(p, 0)
	return err == nil && p[0].Revents != 0 // also on an error, which the write then returns
}
