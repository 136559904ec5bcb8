//go:build unix

package launch

import (
	"os/exec"
	"syscall"
)

// Detached starts a program in a new session, so that neither the end of a terminal nor a signal to
// the process group reaches it.
func Detached(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}
