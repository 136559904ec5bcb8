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

// terminate is not supported: a detached process has no console to receive a signal, and is
// killed.
func terminate(*os.Process) error { return errors.ErrUnsupported }

// ownGroup keeps a console's Ctrl-C from reaching a check.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// killGroup kills only the check itself, since a group on Windows only shares signals.
func killGroup(leader *os.Process) error {
	err := leader.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
