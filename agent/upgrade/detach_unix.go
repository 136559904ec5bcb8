//go:build unix

package upgrade

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// detach starts the watcher in a new session, so that neither the end of the terminal
// nor a signal to the process group reaches it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// Reap collects the exit status of a child that was started before this process was
// re-executed, so that it does not stay in the process table. It does not block.
func Reap(pid int) (gone bool) {
	got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid || err != nil // an error means that it is not a child, or no longer
}
