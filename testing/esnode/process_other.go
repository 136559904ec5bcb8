//go:build !linux

package esnode

import "syscall"

// ownProcess has nothing to add: a node ends when its standard input does.
func ownProcess() *syscall.SysProcAttr { return nil }
