//go:build unix

package toolchain

import "syscall"

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func interruptGroup(leader int) error { return syscall.Kill(-leader, syscall.SIGINT) }

func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) } // it fails if the group has ended
