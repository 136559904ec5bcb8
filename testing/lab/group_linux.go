package lab

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from programs that are to be stopped in
// order. If the process that started them dies, the kernel kills them.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
