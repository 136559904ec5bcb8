//go:build unix && !linux

package lab

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from programs that are to be stopped in
// order.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
