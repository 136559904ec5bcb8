//go:build unix

package check

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// isolate puts a program into a new process group, to be killed with its children, and has it run
// as an account.
func isolate(cmd *exec.Cmd, as disk.Owner) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if as == disk.Own || as.UID == os.Geteuid() && as.GID == os.Getegid() {
		return nil
	}
	uid, gid := as.UID, as.GID
	if uid < 0 {
		uid = os.Geteuid()
	}
	if gid < 0 {
		gid = os.Getegid()
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // numbers of accounts
	return nil
}

func killGroup(leader *os.Process) error {
	err := syscall.Kill(-leader.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
