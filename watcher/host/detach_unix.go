//go:build unix

package host

import (
	"os"
	"syscall"
)

// detached: a session of its own, so that no terminal and no group takes the
// agent along when the watcher ends.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
