package upgrade

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// detach starts the watcher without a console and in a new process group.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

// terminate kills the process, since a detached process has no console to receive a
// signal.
func terminate(p *os.Process) error { return p.Kill() }

// Reap does nothing: Windows keeps no exited children, and no process is re-executed
// there.
func Reap(int) bool { return true }
