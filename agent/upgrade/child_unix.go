//go:build unix

package upgrade

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// Reap collects the exit status of a child that was started before this process was
// re-executed, so that it does not stay in the process table. It does not block.
func Reap(pid int) (gone bool) {
	got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid || err != nil // an error means that it is not a child, or no longer
}
