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

// terminate: a detached process has no console to send a request to, so it is
// killed at once.
func terminate(*os.Process) error { return errors.ErrUnsupported }
