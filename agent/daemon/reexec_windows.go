package daemon

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows/svc"
)

// exitRestart is the exit code of a service that wants to be started again. The
// service manager does not look at it, only people in its log do.
const exitRestart = 75

// reexec ends this process so that the service manager starts the one the link
// leads to: Windows cannot replace a process in place. A service that ends
// without having said that it stops counts as failed, and is installed with the
// recovery action to start it again after a second (OnFailure in agent/setup).
// Where that action is missing nobody starts the new version, and the watcher,
// which runs by now, puts the one before back and starts it.
//
// By now nothing is left to be done here: components are stopped, the queue is
// handed over, the log is written through. An agent that is no service has nobody
// who would start it again, and one that it starts itself would find the lock
// still taken; so its upgrade fails here and is undone.
//
// Not tested on Windows.
func reexec(link string) error {
	service, err := svc.IsWindowsService()
	if err != nil {
		return fmt.Errorf("restart as %s: %w", link, err)
	}
	if !service {
		return fmt.Errorf("restart as %s: %w on Windows outside a service: install the agent as one", link, errors.ErrUnsupported)
	}
	os.Exit(exitRestart)
	return nil
}
