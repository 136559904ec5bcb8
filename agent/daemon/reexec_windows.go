package daemon

import "os"

// exitReplaced is the exit code of an agent that another version replaces. To the service control
// manager it is a failure, since the service has not stopped before.
const exitReplaced = 75

// reexec ends this process, since Windows cannot replace the program of a process. The service's
// recovery action, or the watcher on a host without a service, starts the version that the link
// leads to. The watcher watches by then, and rolls back if nothing starts it.
func reexec(string) error {
	os.Exit(exitReplaced)
	return nil
}
