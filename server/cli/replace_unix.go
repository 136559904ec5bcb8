//go:build unix

package cli

import (
	"os"
	"syscall"
)

// canReplace says that a process can be replaced by another program.
const canReplace = true

// execute replaces this process by a program, with the same arguments and environment.
func execute(program string) error { return syscall.Exec(program, os.Args, os.Environ()) }
