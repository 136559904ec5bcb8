//go:build unix

package limit

import (
	"math"
	"syscall"
)

// descriptors returns how many files this process may have open, 0 if without limit.
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
