package daemon

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows/svc"
)

// exitRestart is the exit code of a service that must be started again. The service
// manager only logs it.
const exitRestart = 75

// reexec ends this process so that the service manager starts the program that the link
// leads to, since Windows cannot replace a process. A service that exits without a stop
// has failed, and its recovery action starts it again after a second (OnFailure in
// agent/setup). Without that action the new version is not started, and the watcher,
// which runs by now, rolls back.
//
// Components are stopped and the queue is copied by now. Outside a service reexec returns
// an error, and the upgrade is undone: nothing would start the new version, and a process
// started from here would find the agent's lock held.
//
// reexec is not tested on Windows.
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
