// Package limit is the admission control of one server. It derives from the machine
// how many agents, handshakes and requests the server takes at once ([Derive]), starts
// TLS handshakes at a bounded rate ([Listener]), and refuses requests that would wait
// too long, with a Retry-After that differs from one to the next ([Admission]). The
// replica builds it; the routes of agents and of the admin API ask it.
package limit

import (
	"cmp"
	"fmt"
	"time"
)

// Config is the section limits of the server's configuration. What is 0 is
// derived from the machine.
type Config struct {
	// MaxAgents is how many connections of agents are open at once.
	MaxAgents int `yaml:"max_agents"`
	// MaxHandshakes is how many TLS handshakes are under way at once.
	MaxHandshakes int `yaml:"max_handshakes"`
	// HandshakesPerSecond is how many are begun in a second.
	HandshakesPerSecond int `yaml:"handshakes_per_second"`
	// Requests of a kind that are worked on at once. A parked check-in is not.
	MaxCheckins    int `yaml:"max_checkins"`
	MaxReports     int `yaml:"max_reports"` // acknowledgements, beacons, and that an agent was uninstalled
	MaxEnrollments int `yaml:"max_enrollments"`
	MaxDownloads   int `yaml:"max_downloads"` // packages and trust files
	// MemoryBytes is what the process may use of the machine's memory.
	MemoryBytes int64 `yaml:"memory_bytes"`
}

// minMemory holds the program, a store and some agents.
const minMemory = 64 << 20

// Check calls bad for every key that makes no sense on any machine.
func (c Config) Check(bad func(key, format string, args ...any)) {
	for _, k := range []struct {
		key   string
		value int
	}{
		{"max_agents", c.MaxAgents},
		{"max_handshakes", c.MaxHandshakes},
		{"handshakes_per_second", c.HandshakesPerSecond},
		{"max_checkins", c.MaxCheckins},
		{"max_reports", c.MaxReports},
		{"max_enrollments", c.MaxEnrollments},
		{"max_downloads", c.MaxDownloads},
	} {
		if k.value < 0 {
			bad("limits."+k.key, "is %d, want a number above 0, or 0 for what suits the machine", k.value)
		}
	}
	if c.MemoryBytes != 0 && c.MemoryBytes < minMemory {
		bad("limits.memory_bytes", "is %d, want at least %d, or 0 for what the machine or its container has", c.MemoryBytes, int64(minMemory))
	}
}

// Limits are what a server takes at once.
type Limits struct {
	Agents              int // connections of agents
	Handshakes          int
	HandshakesPerSecond int
	Checkins            int
	Reports             int
	Enrollments         int
	Downloads           int
	// Waiting is how many requests of one kind may wait for their turn.
	Waiting int
	// BodyBytes is what the bodies of requests take that are read or worked on.
	BodyBytes   int64
	MemoryBytes int64
}

const (
	// parkedMemory is what an agent costs whose connection is parked without a
	// goroutine, in steady use: 14 KiB of the process, 4 KiB of the kernel.
	parkedMemory = 18 << 10
	// blockedMemory is what it costs where a goroutine waits for each.
	blockedMemory = 80 << 10
	// requestMemory is a request that is worked on: two goroutines, the buffers of
	// net/http and TLS, and what its body became.
	requestMemory = 64 << 10
	// waitingMemory is one that waits for its turn, with its body still packed.
	waitingMemory = 32 << 10
	// baseMemory is the program itself with a store that is open.
	baseMemory = 48 << 20
	// unknownMemory is assumed where the machine does not say what it has.
	unknownMemory = 1 << 30

	// How many are under way at once for each processor. Go's scheduler has no
	// priorities, and reads of the store wait in one line: a request of the admin API
	// waits behind these, some milliseconds of work of each kind.
	handshakesPerCore = 32 // they also wait for the client's network
	checkinsPerCore   = 16
	// writesPerCore is for acknowledgements and enrolments: they mostly wait for one
	// transaction, which costs less the more of them share it.
	writesPerCore = 64
	// maxDownloads bounds downloads, which take hours from slow hosts and little of a
	// processor.
	maxDownloads = 1024

	// handshakeShare is the part of the processors that a storm of reconnecting
	// agents gets. The rest is for check-ins of those that have come back, and for
	// the admin API.
	handshakeShare = 0.75
	// usualHandshake is a full handshake of TLS 1.3 with ECDSA P-256 on the server's
	// side, where it cannot be measured.
	usualHandshake = 530 * time.Microsecond

	// otherDescriptors are kept for the admin API's connections, the store, and
	// files that are read or written for a moment.
	otherDescriptors = 256
)

// Derive says what a machine can take: what c asks for, and else what its
// processors, memory and descriptors give. It fails where c asks for what the
// process cannot have.
func Derive(m Machine, c Config) (Limits, error) {
	cores, memory, handshake := max(m.Cores, 1), m.Memory, m.Handshake
	if memory <= 0 {
		memory = unknownMemory
	}
	if c.MemoryBytes > 0 {
		memory = c.MemoryBytes
	}
	if handshake <= 0 {
		handshake = usualHandshake
	}
	l := Limits{MemoryBytes: memory}

	l.Handshakes = cmp.Or(c.MaxHandshakes, handshakesPerCore*cores)
	l.HandshakesPerSecond = cmp.Or(c.HandshakesPerSecond, max(1, int(handshakeShare*float64(cores)*float64(time.Second)/float64(handshake))))
	l.Checkins = cmp.Or(c.MaxCheckins, checkinsPerCore*cores)
	l.Reports = cmp.Or(c.MaxReports, writesPerCore*cores)
	l.Enrollments = cmp.Or(c.MaxEnrollments, writesPerCore*cores)
	l.Downloads = int(min(max(memory/16/requestMemory, 16), maxDownloads))
	if m.Descriptors > 0 {
		l.Downloads = min(l.Downloads, max(8, m.Descriptors/50))
	}
	l.Downloads = cmp.Or(c.MaxDownloads, l.Downloads)
	l.BodyBytes = max(32<<20, memory/16) // at least one that is as long as may be, unpacked

	perAgent := int64(parkedMemory)
	if m.Blocking {
		perAgent = blockedMemory
	}
	l.Agents = max(16, int((memory*3/4-baseMemory)/perAgent))
	if m.Descriptors > 0 {
		left := m.Descriptors - min(otherDescriptors+Overflow+l.Downloads, m.Descriptors/2)
		if c.MaxAgents > left {
			return l, fmt.Errorf("limits.max_agents: is %d, but of the %d files that this process may have open %d are left for agents: raise its limit (LimitNOFILE= in a systemd unit, `ulimit -n` in a shell), or ask for fewer", c.MaxAgents, m.Descriptors, left)
		}
		l.Agents = min(l.Agents, left)
	}
	l.Agents = cmp.Or(c.MaxAgents, l.Agents)
	// All agents may say something at once, when an action has reached them all.
	l.Waiting = max(64, int(min(memory/16/waitingMemory, int64(l.Agents))))
	return l, nil
}
