package host

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
}

// terminate is not supported: a detached process has no console to receive a signal, and is
// killed.
func terminate(*os.Process) error { return errors.ErrUnsupported }
