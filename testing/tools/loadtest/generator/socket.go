//go:build linux

package generator

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
	// dialTimeout bounds a connection and its handshake. In a storm they queue at the
	// server: 20,000 handshakes of 0.5 ms take ten seconds.
	dialTimeout = time.Minute
	// writeTimeout bounds the write of a request to a server that does not read. A
	// request fits into an empty socket buffer, so this is rarely reached.
	writeTimeout = 5 * time.Second
)

// socket is the connection below a tls.Conn. During the handshake it is a blocking
// net.Conn. After detach it is a plain descriptor: a Read without data fails with
// errAgain, after which the tls.Conn is still usable, and the loop waits for epoll.
type socket struct {
	net.Conn // nil after detach
	fd       int
	// drained is set when a read has emptied the kernel's buffer. It saves the read
	// that would only return EAGAIN.
	drained bool
}

// again is the error of a Read for which there is no data yet.
type again struct{}

func (again) Error() string   { return "no bytes yet" }
func (again) Timeout() bool   { return true }
func (again) Temporary() bool { return true } // keeps crypto/tls from failing the connection for good

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

// detach takes the descriptor from the net package, whose poller would otherwise watch
// it as well as the loop.
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

// agentConn is an agent's connection.
type agentConn struct {
	*tls.Conn
	socket  *socket
	resumed bool
	took    time.Duration // to connect and to make the handshake
}

// dial connects from the local address to a server and makes the handshake.
func dial(ctx context.Context, local net.Addr, address string, config *tls.Config) (*agentConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	began := time.Now()
	d := net.Dialer{LocalAddr: local, KeepAlive: -1, Control: func(_, _ string, c syscall.RawConn) error {
		var opt error
		// The kernel then chooses a port that is free for this destination, not for all.
		err := c.Control(func(fd uintptr) { opt = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) })
		return errors.Join(err, opt)
	}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &socket{Conn: conn}
	l := &agentConn{Conn: tls.Client(s, config), socket: s}
	if err := l.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	l.resumed, l.took = l.ConnectionState().DidResume, time.Since(began)
	if err := s.detach(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return l, nil
}

// localAddr returns the agent's own loopback address, or nil if the server is not on
// loopback.
func localAddr(number int, loopback bool) net.Addr {
	if !loopback {
		return nil
	}
	// From 127.1.0.1 on; the last byte is never 0 or 255.
	return &net.TCPAddr{IP: net.IPv4(127, byte(1+number/254/256%250), byte(number/254), byte(1+number%254))}
}
