//go:build !linux && !windows

package host

// homeOf cannot tell without /proc: the agent's lock decides.
func homeOf(string, int) (string, finding) { return "", cannotTell }
