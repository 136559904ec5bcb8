package host

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
}

// terminate: a detached process has no console to send a request to, so it is
// killed at once.
func terminate(*os.Process) error { return errors.ErrUnsupported }

// ownGroup keeps a console's Ctrl-C from reaching a check.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// killGroup ends the check alone: here a group only shares signals, what a check
// has started itself is its own to end.
func killGroup(leader *os.Process) error {
	err := leader.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
