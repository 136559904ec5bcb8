package sqlite

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// turn is the right to write, which processes that share a file take in turn. SQLite
// has a lock for that, but waits for it by trying again after ever longer sleeps: with
// several busy servers the one that has just written takes it again, and another
// sleeps through every gap until its patience is over.
//
// Two bytes of an empty file beside the database are locked, as the two gates of a
// turnstile: who waits for the second holds the first, so that who has just written
// comes behind it. The kernel wakes who waits, and gives back what a process held that
// has died. The file stays: to remove it could part those that have it from those that make
// it anew. A nil turn is always there.
type turn struct {
	file     *os.File
	patience time.Duration
	asked    bool       // somebody waits, for whoever takes next
	got      chan error // of capacity 1
}

// The gates, and behind them what all may hold at once.
const (
	gateFirst = iota
	gateWrite
	byteHandOut
)

// newTurn makes the file of the database at path, if there is none.
func newTurn(path string, patience time.Duration) (*turn, error) {
	f, err := os.OpenFile(path+"-turn", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("database %s: the file by which servers take turns cannot be opened: %w", path, err)
	}
	return &turn{file: f, patience: patience, got: make(chan error, 1)}, nil
}

// take waits until nobody else writes, until errBusy. It is for one goroutine, as
// leave and close are.
func (t *turn) take() error {
	if t == nil {
		return nil
	}
	if !t.asked {
		first := t.lock(unix.F_OFD_SETLK, unix.F_WRLCK, gateFirst) == nil
		if first && t.lock(unix.F_OFD_SETLK, unix.F_WRLCK, gateWrite) == nil {
			return t.lock(unix.F_OFD_SETLK, unix.F_UNLCK, gateFirst)
		}
		t.asked = true
		go func() { t.got <- t.wait(first) }()
	}
	over := time.NewTimer(t.patience)
	defer over.Stop()
	select {
	case err := <-t.got:
		t.asked = false
		return err
	case <-over.C: // what it comes to is the next take's
		return errBusy
	}
}

// wait passes the gates; the first has been passed, or not. It takes a thread.
func (t *turn) wait(first bool) error {
	if !first {
		if err := t.lock(unix.F_OFD_SETLKW, unix.F_WRLCK, gateFirst); err != nil {
			return err
		}
	}
	if err := t.lock(unix.F_OFD_SETLKW, unix.F_WRLCK, gateWrite); err != nil {
		return err
	}
	return t.lock(unix.F_OFD_SETLK, unix.F_UNLCK, gateFirst)
}

func (t *turn) lock(command int, kind int16, gate int64) error {
	for {
		err := unix.FcntlFlock(t.file.Fd(), command, &unix.Flock_t{Type: kind, Start: gate, Len: 1})
		if err != unix.EINTR {
			return os.NewSyscallError("fcntl", err)
		}
	}
}

// leave lets the next one write.
func (t *turn) leave() {
	if t != nil {
		_ = t.lock(unix.F_OFD_SETLK, unix.F_UNLCK, gateWrite) // it is ours
	}
}

// handOut says that this process hands something out to a fleet, or no longer; see
// store.Neighbours. Without the lock nobody is told: it is a hint.
func (t *turn) handOut(on bool) {
	kind := int16(unix.F_UNLCK)
	if on {
		kind = unix.F_RDLCK
	}
	if t != nil {
		_ = t.lock(unix.F_OFD_SETLK, kind, byteHandOut)
	}
}

// handOutElsewhere says whether another process does.
func (t *turn) handOutElsewhere() bool {
	if t == nil {
		return false
	}
	against := unix.Flock_t{Type: unix.F_WRLCK, Start: byteHandOut, Len: 1}
	err := unix.FcntlFlock(t.file.Fd(), unix.F_OFD_GETLK, &against)
	return err == nil && against.Type != unix.F_UNLCK
}

// close gives back what it has, or will have.
func (t *turn) close() {
	switch {
	case t == nil:
	case t.asked:
		go func() { _ = errors.Join(<-t.got, t.file.Close()) }() // nobody writes any more
	default:
		_ = t.file.Close()
	}
}
