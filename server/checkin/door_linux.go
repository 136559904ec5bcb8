package checkin

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"time"
)

// trickle is how often a connection is given back while polls of a bulk wake wait for
// their answers. All who have theirs come back at once, with an acknowledgement that
// costs more than an answer: the last to be answered would wait for the first ones'
// acknowledgements. Some have to come, for the wake may last.
const trickle = time.Millisecond

// door is the listener through which net/http gets connections, new ones and those
// that were parked.
type door struct {
	net.Listener
	lot    *Lot
	begin  sync.Once
	fresh  chan arrival
	ready  chan struct{} // capacity 1: something is in back
	closed chan struct{}

	mu    sync.Mutex
	shut  bool
	back  []net.Conn // bounded by the connections that there are
	taken time.Time  // the last during a bulk wake
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
		c, wait := d.take()
		if c != nil {
			// Those that have begun go first: so many are at work together as there
			// is work for, and the others cost no goroutine yet.
			runtime.Gosched()
			return c, nil
		}
		var later <-chan time.Time
		if wait > 0 {
			later = time.After(wait)
		}
		select {
		case a := <-d.fresh:
			return a.conn, a.err
		case <-d.ready:
		case <-later:
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

// take returns a connection that was given back, or how long the next one has to
// wait; 0: there is none.
func (d *door) take() (net.Conn, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.back) == 0 {
		return nil, 0
	}
	if d.lot.queue.bulky() {
		now := time.Now()
		if wait := d.taken.Add(trickle).Sub(now); wait > 0 {
			return nil, wait
		}
		d.taken = now
	}
	c := d.back[0]
	d.back[0] = nil
	if d.back = d.back[1:]; len(d.back) == 0 {
		d.back = nil
	} else {
		d.signal()
	}
	return c, 0
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
