//go:build linux

package herd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dialTimeout bounds a connection and its handshake. In a storm a server takes
	// them one after the other: 20,000 at half a millisecond are ten seconds.
	dialTimeout = time.Minute
	// writeTimeout bounds what a request waits for a server that does not read.
	// Requests of an agent fit into an empty socket, so it is rarely needed.
	writeTimeout = 5 * time.Second
)

// socket is a connection in two lives. For the handshake it is the net package's,
// in which a goroutine waits. Then detach takes the descriptor out: a Read without
// bytes fails with errAgain, which leaves a tls.Conn as it was, and the loop waits.
type socket struct {
	net.Conn // nil after detach
	fd       int
	// drained: the kernel has said that it has nothing more. It saves the read that
	// would only say so again.
	drained bool
}

// again is the error of a Read for which there are no bytes yet.
type again struct{}

func (again) Error() string   { return "no bytes yet" }
func (again) Timeout() bool   { return true }
func (again) Temporary() bool { return true } // what crypto/tls asks before it gives a connection up

var errAgain net.Error = again{}

func (s *socket) Read(p []byte) (int, error) {
	if s.Conn != nil {
		return s.Conn.Read(p)
	}
	if s.drained {
		return 0, errAgain
	}
	for {
		n, err := unix.Read(s.fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			s.drained = true
			return 0, errAgain
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		s.drained = n < len(p)
		return n, nil
	}
}

func (s *socket) Write(p []byte) (int, error) {
	if s.Conn != nil {
		return s.Conn.Write(p)
	}
	written := 0
	for written < len(p) {
		n, err := unix.Write(s.fd, p[written:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			ready, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, int(writeTimeout.Milliseconds()))
			if err != nil && !errors.Is(err, unix.EINTR) {
				return written, err
			}
			if err == nil && ready == 0 {
				return written, fmt.Errorf("the server has read nothing for %s", writeTimeout)
			}
		case err != nil:
			return written, err
		default:
			written += n
		}
	}
	return written, nil
}

func (s *socket) Close() error {
	if s.Conn != nil {
		return s.Conn.Close()
	}
	return unix.Close(s.fd)
}

// detach takes the connection away from the net package, whose poller would watch
// it beside the loop.
func (s *socket) detach() error {
	raw, err := s.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	fd := -1
	var dup error
	err = raw.Control(func(old uintptr) { fd, dup = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dup); err != nil {
		return fmt.Errorf("take over a connection: %w", err)
	}
	err = s.Conn.Close() // the descriptor's copy keeps the connection open
	s.Conn, s.fd = nil, fd
	return err
}

// link is an agent's connection.
type link struct {
	*tls.Conn
	socket  *socket
	resumed bool
	took    time.Duration // connection and handshake
}

// dial connects from an address of the agent's own to a server, and makes the
// handshake.
func dial(ctx context.Context, local net.Addr, address string, config *tls.Config) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	began := time.Now()
	d := net.Dialer{LocalAddr: local, KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		var opt error
		// The kernel then looks for a port that is free for this server, not for all.
		err := c.Control(func(fd uintptr) { opt = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) })
		return errors.Join(err, opt)
	}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &socket{Conn: conn}
	l := &link{Conn: tls.Client(s, config), socket: s}
	if err := l.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l.resumed, l.took = l.ConnectionState().DidResume, time.Since(began)
	if err := s.detach(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return l, nil
}

// localAddr is the address of the agent of a number: each has one of its own, as
// hosts have. nil for servers that are elsewhere.
func localAddr(number int, loopback bool) net.Addr {
	if !loopback {
		return nil
	}
	// From 127.1.0.1 on; the last byte is never 0 or 255.
	return &net.TCPAddr{IP: net.IPv4(127, byte(1+number/254/256%250), byte(number/254), byte(1+number%254))}
}
