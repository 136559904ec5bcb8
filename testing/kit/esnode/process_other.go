//go:build !linux

package esnode

import "syscall"

// ownProcess returns nil: a node ends when its standard input is closed.
func ownProcess() *syscall.SysProcAttr { return nil }
