//go:build unix && !linux

package harness

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from programs, which the harness stops in order.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
