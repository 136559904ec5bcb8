//go:build unix

package detach

import "syscall"

// Attributes puts a program into a new session, so that neither the end of a terminal nor a signal
// to the process group reaches it.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
