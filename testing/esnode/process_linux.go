package esnode

import "syscall"

// ownProcess keeps a terminal's Ctrl-C from a node, which is stopped in order,
// and ends it when the thread that started it is gone.
func ownProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
