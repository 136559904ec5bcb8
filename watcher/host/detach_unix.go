//go:build unix

package host

import (
	"os"
	"syscall"
)

// detached puts the agent into a new session, so that it outlives the watcher's terminal and
// process group.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
