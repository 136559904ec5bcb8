//go:build linux

package herd

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// Instant is a moment on the machine's monotonic clock, in nanoseconds. All
// processes of a machine have the same one, so a moment in a child can be
// compared with one in its parent.
type Instant int64

// epoch joins Go's clock, which is cheap to read, with the machine's.
var epoch = func() (e struct {
	at   time.Time
	base Instant
},
) {
	var ts unix.Timespec
	e.at = time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err == nil { // it cannot fail on Linux
		e.base = Instant(ts.Nano())
	}
	return e
}()

// Now is this moment.
func Now() Instant { return epoch.base + Instant(time.Since(epoch.at)) }

// Since is how long it is since an earlier moment.
func (i Instant) Since(earlier Instant) time.Duration { return time.Duration(i - earlier) }

// Latency is a distribution of durations up to an hour, exact to one in a hundred.
// The zero value is empty. It travels between processes, and Join adds one to another.
type Latency struct {
	Snapshot *hdrhistogram.Snapshot // as it travels
	h        *hdrhistogram.Histogram
}

const (
	latencyMax = time.Hour
	// digits: a third one would make each distribution ten times as large.
	digits = 2
)

func (l *Latency) open() *hdrhistogram.Histogram {
	if l.h == nil {
		l.h = hdrhistogram.New(1, latencyMax.Microseconds(), digits)
		if l.Snapshot != nil {
			l.h = hdrhistogram.Import(l.Snapshot)
			l.Snapshot = nil
		}
	}
	return l.h
}

// Add takes in one duration; one that is too long counts as an hour.
func (l *Latency) Add(d time.Duration) {
	// In range by construction, so there is no error.
	_ = l.open().RecordValue(max(0, min(d, latencyMax).Microseconds()))
}

// Join takes in another distribution.
func (l *Latency) Join(other *Latency) {
	if other.h != nil || other.Snapshot != nil {
		l.open().Merge(other.open())
	}
}

// Count is how many durations there are.
func (l *Latency) Count() int64 { return l.open().TotalCount() }

// At is the duration below which a percentage of them is; 100 is the longest.
func (l *Latency) At(percent float64) time.Duration {
	return time.Duration(l.open().ValueAtPercentile(percent)) * time.Microsecond
}

// pack makes it ready to travel.
func (l *Latency) pack() {
	if l.h != nil {
		l.Snapshot = l.h.Export()
	}
}
