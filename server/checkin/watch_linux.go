package checkin

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// watchFor is for requests and hang-ups, each told once as it comes, whatever state
	// its slot has then: to ask anew for each request were two system calls of six.
	watchFor = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET

	// watchBatch is how many events one call of epoll_wait brings.
	watchBatch = 256
)

// watch is an epoll instance with the connections that have no goroutine.
//
// Go's own poller watches them too, but tells only goroutines. Ours is watched by
// Go's, as a file, so that waiting for it takes no thread.
type watch struct {
	fd   int
	file *os.File

	mu         sync.Mutex
	slots      []*slot // by descriptor
	generation uint32
}

func (w *watch) open() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else os.File takes a thread to wait
		unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	w.fd, w.file = fd, os.NewFile(uintptr(fd), "epoll")
	return nil
}

// add begins to watch s.conn, which must be open until remove.
func (w *watch) add(s *slot) error {
	w.mu.Lock()
	w.generation++
	s.generation = w.generation
	for int(s.fd) >= len(w.slots) {
		w.slots = append(w.slots, nil)
	}
	w.slots[s.fd] = s
	w.mu.Unlock()
	err := w.control(unix.EPOLL_CTL_ADD, s, watchFor)
	if err != nil {
		w.forget(s)
	}
	return err
}

// pass lets heir have the connection of s, and the events it is watched for.
func (w *watch) pass(s, heir *slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slots[s.fd] == s {
		w.slots[s.fd] = heir
	}
}

// remove must come before the connection is closed or given away: the descriptor
// may be another connection's at once.
func (w *watch) remove(s *slot) {
	_ = w.control(unix.EPOLL_CTL_DEL, s, 0) // it is there, and open
	w.forget(s)
}

func (w *watch) control(op int, s *slot, events uint32) error {
	// The generation tells an event of this connection from one of an earlier with
	// the same descriptor, which the poller may still have in its hand.
	e := unix.EpollEvent{Events: events, Fd: s.fd, Pad: int32(s.generation)} //nolint:gosec // the bits matter, not the number
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(w.fd, op, int(s.fd), &e))
}

func (w *watch) forget(s *slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slots[s.fd] == s {
		w.slots[s.fd] = nil
	}
}

// find is the slot an event is of, nil if that has left.
func (w *watch) find(e unix.EpollEvent) *slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	if int(e.Fd) >= len(w.slots) {
		return nil
	}
	if s := w.slots[e.Fd]; s != nil && s.generation == uint32(e.Pad) { //nolint:gosec // as in control
		return s
	}
	return nil
}

// all is every connection that is watched.
func (w *watch) all() []*slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*slot
	for _, s := range w.slots {
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}

// run tells of events until the file is closed.
func (w *watch) run(tell func(e unix.EpollEvent, s *slot)) error {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	events := make([]unix.EpollEvent, watchBatch)
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
			if s := w.find(e); s != nil {
				tell(e, s)
			}
		}
		if n == len(events) {
			runtime.Gosched() // a fleet hangs up, or comes: others have something to do, too
		}
	}
}
