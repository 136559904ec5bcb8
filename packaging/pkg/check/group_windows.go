package check

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// isolate keeps a console's Ctrl-C from reaching a program.
func isolate(cmd *exec.Cmd, as disk.Owner) error {
	if as != disk.Own {
		return errors.New("a program is run as another account on Unix only")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
	return nil
}

// killGroup kills only the program itself, since a group on Windows only shares signals.
func killGroup(leader *os.Process) error {
	err := leader.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}
