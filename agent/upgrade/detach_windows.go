package upgrade

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// detach gives the watcher a console and process group of its own.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

// terminate kills: a detached process has no console to get a signal on.
func terminate(p *os.Process) error { return p.Kill() }

// Reap has nothing to do: Windows keeps no table of ended children, and nothing
// is replaced in place there.
func Reap(int) bool { return true }
