//go:build unix

package check

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup puts a check into a new process group, to be killed with its children.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(leader *os.Process) error {
	err := syscall.Kill(-leader.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
