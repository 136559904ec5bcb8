//go:build !linux && !windows

package host

// homeOf cannot tell: the system does not show the program of a process, so the agent's lock decides.
func homeOf(string, int) (string, finding) { return "", cannotTell }
