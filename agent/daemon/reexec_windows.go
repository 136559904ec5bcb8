package daemon

import "github.com/muster-fleet/muster/agent/upgrade"

// reexec is not reached: preflight refuses every upgrade on Windows.
func reexec(string) error { return upgrade.ErrWindows }
