// Package child starts programs that end when the test that has started them is killed.
package child

import (
	"os/exec"
	"runtime"
)

// Start starts a program, and returns a channel that is closed when it has ended. Unless the
// command has attributes of its own, the program is kept from a terminal's Ctrl-C, and Linux
// kills it when this process dies. If read is not nil, it reads the program's output to the end.
func Start(c *exec.Cmd, read func()) (<-chan struct{}, error) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = attributes()
	}
	ended, started := make(chan struct{}), make(chan error, 1)
	go func() {
		// The kernel sends the parent-death signal when the thread that started the process
		// ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := c.Start()
		started <- err
		if err != nil {
			return
		}
		if read != nil {
			read()
		}
		_ = c.Wait() // the program's log has the reason of its end
	}()
	return ended, <-started
}
