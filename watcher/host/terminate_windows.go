package host

import (
	"errors"
	"os"
)

// terminate is not supported: a detached process has no console to receive a signal, and is
// killed.
func terminate(*os.Process) error { return errors.ErrUnsupported }
