package launch

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// Detached starts a program without a console, in a new process group, and outside of the job of this
// process, with which it would be killed. If the job lets no process leave it the program stays in
// it.
func Detached(cmd *exec.Cmd) error {
	const detached = windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS
	inJob := exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: detached | windows.CREATE_BREAKAWAY_FROM_JOB}
	err := cmd.Start()
	if !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return err
	}
	*cmd = inJob // a command is started once
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: detached}
	return cmd.Start()
}
