//go:build unix

package daemon

import (
	"fmt"
	"os"
	"syscall"
)

// reexec replaces this process by the program the link leads to, with the same
// arguments, environment and process id: to the service manager, and to whoever
// watches the process, the agent has not ended.
func reexec(link string) error {
	if err := syscall.Exec(link, os.Args, os.Environ()); err != nil {
		return fmt.Errorf("exec %s: %w", link, err)
	}
	return nil
}
