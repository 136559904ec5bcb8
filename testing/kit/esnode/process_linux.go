package esnode

import "syscall"

// ownProcess keeps a terminal's Ctrl-C from the node, and makes the kernel kill the node
// when the thread that started it ends.
func ownProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
