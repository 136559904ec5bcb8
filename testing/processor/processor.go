//go:build unix

// Package processor tells benchmarks what they took of the processor's time, which
// another load on the machine changes less than what they took of the clock's.
package processor

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Spent is the time that this process has had so far.
func Spent(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
