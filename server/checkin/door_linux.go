package checkin

import (
	"errors"
	"net"
	"sync"
)

// door is the listener through which net/http gets connections, new ones and those
// that were parked.
type door struct {
	net.Listener
	lot    *Lot
	begin  sync.Once
	fresh  chan arrival
	ready  chan struct{} // capacity 1: something is in back
	closed chan struct{}

	mu   sync.Mutex
	shut bool
	back []net.Conn // bounded by the connections that there are
}

type arrival struct {
	conn net.Conn
	err  error
}

// Listener takes connections from inner, which is the TLS listener if there is TLS,
// and gives those back to the http.Server that were parked and have another request.
// A lot has one; without it, connections end with the answer of a poll. Closing it
// closes inner. Connections of inner must show what is below them with NetConn, as
// *tls.Conn does, or SyscallConn, as *net.TCPConn does: others are parked as Blocking
// does.
func (l *Lot) Listener(inner net.Listener) net.Listener {
	d := &door{Listener: inner, lot: l, fresh: make(chan arrival), ready: make(chan struct{}, 1), closed: make(chan struct{})}
	l.door.Store(d)
	return d
}

// Accept returns a connection from which a request can be read.
func (d *door) Accept() (net.Conn, error) {
	d.begin.Do(func() { go d.accept() })
	for {
		if c := d.take(); c != nil {
			return c, nil
		}
		select {
		case a := <-d.fresh:
			return a.conn, a.err
		case <-d.ready:
		case <-d.closed:
			return nil, net.ErrClosed
		}
	}
}

// accept takes new connections as they are asked for.
func (d *door) accept() {
	for {
		c, err := d.Listener.Accept()
		if err == nil {
			if _, err := descriptor(c); errors.Is(err, errors.ErrUnsupported) {
				d.lot.useless(err)
			}
		}
		select {
		case d.fresh <- arrival{c, err}:
		case <-d.closed:
			if err == nil {
				c.Close()
			}
			return
		}
	}
}

// give hands a connection over. false: the server does not take any more.
func (d *door) give(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		return false
	}
	d.back = append(d.back, c)
	d.signal()
	return true
}

func (d *door) take() net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.back) == 0 {
		return nil
	}
	c := d.back[0]
	d.back[0] = nil
	if d.back = d.back[1:]; len(d.back) == 0 {
		d.back = nil
	} else {
		d.signal()
	}
	return c
}

func (d *door) signal() {
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

// Close closes inner and the connections that nobody will accept.
func (d *door) Close() error {
	d.mu.Lock()
	if d.shut {
		d.mu.Unlock()
		return nil
	}
	d.shut = true
	back := d.back
	d.back = nil
	close(d.closed)
	d.mu.Unlock()
	d.lot.door.CompareAndSwap(d, nil)
	for _, c := range back {
		below(c).Close()
	}
	return d.Listener.Close()
}
