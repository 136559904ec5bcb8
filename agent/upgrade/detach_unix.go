//go:build unix

package upgrade

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// detach gives the watcher a session of its own: neither the end of our terminal
// nor a signal to our group reaches it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// Reap collects the exit of a child that was started before this process was
// replaced in place; without it the ended watcher would stay in the process
// table. It never waits.
func Reap(pid int) (gone bool) {
	got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid || err != nil // an error: not, or no longer, our child
}
