//go:build linux

package generator

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// MonoTime is a time on the machine's monotonic clock, in nanoseconds. All processes
// of a machine share this clock, so a parent can compare its own times with those
// of a child.
type MonoTime int64

// epoch relates Go's clock, which is cheap to read, to the machine's.
var epoch = func() (e struct {
	at   time.Time
	base MonoTime
},
) {
	var ts unix.Timespec
	e.at = time.Now()
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err == nil { // it cannot fail on Linux
		e.base = MonoTime(ts.Nano())
	}
	return e
}()

// Now returns the current time.
func Now() MonoTime { return epoch.base + MonoTime(time.Since(epoch.at)) }

// Sub returns the duration i-earlier.
func (i MonoTime) Sub(earlier MonoTime) time.Duration { return time.Duration(i - earlier) }

// Latency is a distribution of durations up to an hour, exact to 1 %. The zero value
// is empty. It can be sent to another process after export.
type Latency struct {
	Snapshot *hdrhistogram.Snapshot // what is sent; set by export
	h        *hdrhistogram.Histogram
}

const (
	latencyMax = time.Hour
	// digits is the number of significant digits: a third one would make each
	// distribution ten times as large.
	digits = 2
)

func (l *Latency) histogram() *hdrhistogram.Histogram {
	if l.h == nil {
		l.h = hdrhistogram.New(1, latencyMax.Microseconds(), digits)
		if l.Snapshot != nil {
			l.h = hdrhistogram.Import(l.Snapshot)
			l.Snapshot = nil
		}
	}
	return l.h
}

// Add records d; a duration above an hour counts as an hour.
func (l *Latency) Add(d time.Duration) {
	// In range by construction, so there is no error.
	_ = l.histogram().RecordValue(max(0, min(d, latencyMax).Microseconds()))
}

// Merge adds the durations of other to l.
func (l *Latency) Merge(other *Latency) {
	if other.h != nil || other.Snapshot != nil {
		l.histogram().Merge(other.histogram())
	}
}

// Count returns the number of durations.
func (l *Latency) Count() int64 { return l.histogram().TotalCount() }

// Percentile returns the duration below which percent of them lie; 100 is the longest.
func (l *Latency) Percentile(percent float64) time.Duration {
	return time.Duration(l.histogram().ValueAtPercentile(percent)) * time.Microsecond
}

// export sets Snapshot, so that l can be sent to another process.
func (l *Latency) export() {
	if l.h != nil {
		l.Snapshot = l.h.Export()
	}
}
