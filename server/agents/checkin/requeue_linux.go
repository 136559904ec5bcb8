package checkin

import (
	"net"
	"sync"
)

// requeueListener gives an http.Server new connections, and those whose poll has been
// answered and whose client has sent another request.
type requeueListener struct {
	net.Listener
	parker *EpollParker
	begin  sync.Once
	fresh  chan accepted
	ready  chan struct{} // capacity 1: requeued has connections
	closed chan struct{}

	mu       sync.Mutex
	shut     bool
	requeued []net.Conn // bounded by the number of open connections
}

type accepted struct {
	conn net.Conn
	err  error
}

// Listener accepts connections from inner, the TLS listener if there is TLS, and
// returns to the http.Server those that were parked and have another request. A
// parker has one; without it, connections end with the answer of a poll. Closing it
// closes inner.
//
// Connections of inner must have NetConn, as *tls.Conn does, or SyscallConn, as
// *net.TCPConn does. Polls of others are parked by Blocking.
func (p *EpollParker) Listener(inner net.Listener) net.Listener {
	l := &requeueListener{Listener: inner, parker: p, fresh: make(chan accepted), ready: make(chan struct{}, 1), closed: make(chan struct{})}
	p.requeue.Store(l)
	return l
}

// Accept returns a connection from which a request can be read.
func (l *requeueListener) Accept() (net.Conn, error) {
	l.begin.Do(func() { go l.acceptAll() })
	for {
		if c := l.take(); c != nil {
			return c, nil
		}
		select {
		case a := <-l.fresh:
			return a.conn, a.err
		case <-l.ready:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// acceptAll accepts a new connection for each one that Accept returns.
func (l *requeueListener) acceptAll() {
	for {
		c, err := l.Listener.Accept()
		select {
		case l.fresh <- accepted{c, err}:
		case <-l.closed:
			if err == nil {
				c.Close()
			}
			return
		}
	}
}

// give makes Accept return a connection again. It returns false if the listener is
// closed.
func (l *requeueListener) give(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return false
	}
	l.requeued = append(l.requeued, c)
	l.signal()
	return true
}

func (l *requeueListener) take() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.requeued) == 0 {
		return nil
	}
	c := l.requeued[0]
	l.requeued[0] = nil
	if l.requeued = l.requeued[1:]; len(l.requeued) == 0 {
		l.requeued = nil
	} else {
		l.signal()
	}
	return c
}

func (l *requeueListener) signal() {
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// Close closes inner and the connections that Accept has not returned.
func (l *requeueListener) Close() error {
	l.mu.Lock()
	if l.shut {
		l.mu.Unlock()
		return nil
	}
	l.shut = true
	left := l.requeued
	l.requeued = nil
	close(l.closed)
	l.mu.Unlock()
	l.parker.requeue.CompareAndSwap(l, nil)
	for _, c := range left {
		belowTLS(c).Close()
	}
	return l.Listener.Close()
}
