package daemon

import (
	"errors"
	"fmt"
)

// reexec is not possible: Windows cannot replace a process in place. The way
// there is a helper that stops and starts the service, as the agent cannot wait
// for its own end. Until that exists an upgrade fails here, before anything has
// changed for the running version, and is undone.
func reexec(link string) error {
	return fmt.Errorf("restart as %s: %w on Windows", link, errors.ErrUnsupported)
}
