package upgrade

import "os"

// terminate kills the process, since a detached process has no console to receive a
// signal.
func terminate(p *os.Process) error { return p.Kill() }

// Reap does nothing: Windows keeps no exited children, and no process is re-executed
// there.
func Reap(int) bool { return true }
