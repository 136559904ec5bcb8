//go:build unix

// Package processor measures the CPU time of a benchmark, which other load on the machine
// affects less than elapsed time.
package processor

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Spent returns the CPU time that this process has used.
func Spent(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
