//go:build unix

package host

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// detached puts the agent into a new session, so that it outlives the watcher's terminal and
// process group.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }

// ownGroup puts a check into a new process group, to be killed with its children.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(leader *os.Process) error {
	err := syscall.Kill(-leader.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
