//go:build unix

package limit

import (
	"math"
	"syscall"
	"time"
)

// descriptors is how many files this process may have open, 0 if without limit.
func descriptors() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	// The fields are signed on some systems.
	if n := uint64(l.Cur); n < math.MaxInt32 { //nolint:unconvert // see above
		return int(n)
	}
	return 0
}

// processorTime is what the process has used so far, 0 if that is not known.
func processorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
