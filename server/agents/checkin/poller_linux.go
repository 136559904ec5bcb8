package checkin

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// watchedEvents are requests and hang-ups. Each is reported once, whatever state its
	// connection is in: arming it again for each request took two system calls of six.
	watchedEvents = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET

	// eventBatch is how many events one call of epoll_wait returns.
	eventBatch = 256
)

// poller is an epoll instance with the connections that have no goroutine.
//
// Go's own poller watches them too, but wakes only goroutines. This instance is itself
// watched by Go's, as a file, so that waiting for it takes no thread.
type poller struct {
	fd   int
	file *os.File

	mu         sync.Mutex
	conns      []*parkedConn // by descriptor
	generation uint32
}

func (p *poller) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // otherwise os.File blocks a thread while it waits
		unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	p.fd, p.file = fd, os.NewFile(uintptr(fd), "epoll")
	return nil
}

// add starts to watch the descriptor of c, which must stay open until remove.
func (p *poller) add(c *parkedConn) error {
	p.mu.Lock()
	p.generation++
	c.generation = p.generation
	for int(c.fd) >= len(p.conns) {
		p.conns = append(p.conns, nil)
	}
	p.conns[c.fd] = c
	p.mu.Unlock()
	// The generation distinguishes events of this connection from those of an earlier one
	// with the same descriptor, which run may be about to handle.
	e := unix.EpollEvent{Events: watchedEvents, Fd: c.fd, Pad: int32(c.generation)} //nolint:gosec // the bits matter, not the number
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, int(c.fd), &e); err != nil {
		p.forget(c)
		return os.NewSyscallError("epoll_ctl", err)
	}
	return nil
}

// remove must be called before the connection is closed or given away, since its
// descriptor can be reused at once.
func (p *poller) remove(c *parkedConn) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, int(c.fd), nil) // cannot fail: the descriptor is watched, and open
	p.forget(c)
}

func (p *poller) forget(c *parkedConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[c.fd] == c {
		p.conns[c.fd] = nil
	}
}

// find returns the connection of an event, nil if it is no longer watched.
func (p *poller) find(e unix.EpollEvent) *parkedConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if int(e.Fd) >= len(p.conns) {
		return nil
	}
	if c := p.conns[e.Fd]; c != nil && c.generation == uint32(e.Pad) { //nolint:gosec // as in add
		return c
	}
	return nil
}

// all returns the connections that are watched.
func (p *poller) all() []*parkedConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*parkedConn
	for _, c := range p.conns {
		if c != nil {
			out = append(out, c)
		}
	}
	return out
}

// run calls handle for events until the file is closed.
func (p *poller) run(handle func(c *parkedConn, events uint32)) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	events := make([]unix.EpollEvent, eventBatch)
	for {
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, failed = unix.EpollWait(int(fd), events, 0)
			return n > 0 || failed != nil
		})
		switch {
		case err != nil:
			return nil //nolint:nilerr // closed
		case failed == unix.EINTR:
			continue
		case failed != nil:
			return os.NewSyscallError("epoll_wait", failed)
		}
		for _, e := range events[:n] {
			if c := p.find(e); c != nil {
				handle(c, e.Events)
			}
		}
		if n == len(events) {
			runtime.Gosched() // lets other goroutines run when all agents disconnect or poll at once
		}
	}
}
