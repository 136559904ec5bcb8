//go:build unix

package daemon

import (
	"fmt"
	"os"
	"syscall"
)

// reexec replaces this process by the program that the link leads to, with the same
// arguments, environment and process id, so that the service manager does not see the
// agent exit.
func reexec(link string) error {
	if err := syscall.Exec(link, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("exec %s: %w", link, err)
	}
	return nil
}
