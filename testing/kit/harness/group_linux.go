package harness

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from programs, which the harness stops in order. The
// kernel kills them if the process that started them dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
