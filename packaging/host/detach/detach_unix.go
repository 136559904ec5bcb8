//go:build unix

package detach

import (
	"os/exec"
	"syscall"
)

// Start starts a program in a new session, so that neither the end of a terminal nor a signal to
// the process group reaches it.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}
