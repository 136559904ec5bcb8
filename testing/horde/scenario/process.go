//go:build linux

package scenario

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/testing/horde/herd"
)

const (
	// sampleEvery is how often processes are looked at.
	sampleEvery = 100 * time.Millisecond
	// clockTick is the unit of processor time in /proc: 100 a second on Linux.
	clockTick = 10 * time.Millisecond
)

// sample is what some processes had used at a moment.
type sample struct {
	at  herd.Instant
	cpu time.Duration
	rss int64 // bytes
}

// usage reads what processes have used so far. Those that have ended are passed
// over.
func usage(pids []int) sample {
	s := sample{at: herd.Now()}
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// Behind the program's name, which may hold anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 22 {
			continue
		}
		user, _ := strconv.ParseInt(fields[11], 10, 64) // numbers, as the kernel writes them
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		pages, _ := strconv.ParseInt(fields[21], 10, 64)
		s.cpu += time.Duration(user+system) * clockTick
		s.rss += pages * int64(os.Getpagesize())
	}
	return s
}

// sampler looks at processes all the time.
type sampler struct {
	pids func() []int
	mu   sync.Mutex
	all  []sample
}

// maxSamples bounds what is kept: a day.
const maxSamples = int(24 * time.Hour / sampleEvery)

func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.look()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *sampler) look() {
	got := usage(s.pids())
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) < maxSamples {
		s.all = append(s.all, got)
	}
}

// cpu is the processor time from one moment to another, read between samples.
func (s *sampler) cpu(from, to herd.Instant) time.Duration {
	s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.cpuAt(to)-s.cpuAt(from))
}

func (s *sampler) cpuAt(at herd.Instant) time.Duration {
	for i := len(s.all) - 1; i >= 0; i-- {
		a := s.all[i]
		if a.at > at {
			continue
		}
		if i+1 == len(s.all) {
			return a.cpu
		}
		b := s.all[i+1]
		return a.cpu + time.Duration(float64(b.cpu-a.cpu)*float64(at-a.at)/float64(b.at-a.at))
	}
	return 0
}

// rss is the most memory from one moment to another, in bytes.
func (s *sampler) rss(from, to herd.Instant) (most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.all {
		if a.at >= from && a.at <= to {
			most = max(most, a.rss)
		}
	}
	return most
}

// descriptors is how many files a process may open. Go raises the soft limit to the
// hard one when it starts.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // what every system gives
	}
	return int(min(limit.Cur, 1<<30))
}

// spareDescriptors are for everything but agents' connections: those that are being
// made, which have two for a moment, and enrolments.
const spareDescriptors = 1000

// agentsPerServer is how many agents one server can hold here.
func agentsPerServer() int {
	return max(1, min(descriptors()-spareDescriptors, descriptors()*9/10))
}

// agentsPerProcess is how many agents one process of the generator can have here.
func agentsPerProcess() int { return min(herd.MaxAgents, agentsPerServer()) }

// memory is the machine's memory that can be had, in bytes; 0: not known.
func memory() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	_, value, _ := strings.Cut(string(text), "MemAvailable:")
	if fields := strings.Fields(value); len(fields) > 0 {
		kib, _ := strconv.ParseInt(fields[0], 10, 64)
		return kib << 10
	}
	return 0
}
