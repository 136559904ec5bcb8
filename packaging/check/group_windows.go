package check

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

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
