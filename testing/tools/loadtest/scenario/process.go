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

	"github.com/muster-fleet/muster/testing/tools/loadtest/generator"
)

const (
	// sampleEvery is how often the usage of processes is read.
	sampleEvery = 100 * time.Millisecond
	// clockTick is the unit of CPU time in /proc, a hundredth of a second on Linux.
	clockTick = 10 * time.Millisecond
)

// sample is what processes had used up to a time.
type sample struct {
	at  generator.MonoTime
	cpu time.Duration
	rss int64 // bytes
}

// usage reads what processes have used so far. It ignores processes that have ended.
func usage(pids []int) sample {
	s := sample{at: generator.Now()}
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The fields follow the program's name, which may contain any character.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 22 {
			continue
		}
		user, _ := strconv.ParseInt(fields[11], 10, 64) // the kernel writes only numbers
		system, _ := strconv.ParseInt(fields[12], 10, 64)
		pages, _ := strconv.ParseInt(fields[21], 10, 64)
		s.cpu += time.Duration(user+system) * clockTick
		s.rss += pages * int64(os.Getpagesize())
	}
	return s
}

// sampler reads the usage of processes every sampleEvery.
type sampler struct {
	pids func() []int
	mu   sync.Mutex
	all  []sample
}

// maxSamples bounds the samples of a sampler: a day.
const maxSamples = int(24 * time.Hour / sampleEvery)

func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.take()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *sampler) take() {
	got := usage(s.pids())
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) < maxSamples {
		s.all = append(s.all, got)
	}
}

// cpu returns the CPU time used between two times, interpolating between samples.
func (s *sampler) cpu(from, to generator.MonoTime) time.Duration {
	s.take()
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.cpuAt(to)-s.cpuAt(from))
}

func (s *sampler) cpuAt(at generator.MonoTime) time.Duration {
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

// rss returns the largest memory between two times, in bytes.
func (s *sampler) rss(from, to generator.MonoTime) (most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.all {
		if a.at >= from && a.at <= to {
			most = max(most, a.rss)
		}
	}
	return most
}

// descriptors returns how many files a process may open. Go raises the soft limit to
// the hard limit at start.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // the usual default
	}
	return int(min(limit.Cur, 1<<30))
}

// spareDescriptors are for everything but agents' connections: enrolments, and
// connections that are being made, which briefly have two.
const spareDescriptors = 1000

// agentsPerServer returns how many agents one server can hold on this machine.
func agentsPerServer() int {
	return max(1, min(descriptors()-spareDescriptors, descriptors()*9/10))
}

// agentsPerProcess returns how many agents one generator can have on this machine.
func agentsPerProcess() int { return min(generator.MaxAgents, agentsPerServer()) }

// memory returns the machine's available memory in bytes, or 0 if it is unknown.
func memory() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	_, value, _ := strings.Cut(string(text), "MemAvailable:")
	if fields := strings.Fields(value); len(fields) > 0 {
		kib, _ := strconv.ParseInt(fields[0], 10, 64)
		return kib << 10
	}
	return 0
}
