// Package limit is the admission control of one server. It derives from the machine how
// many agents, handshakes and requests the server handles at once ([Derive]), starts TLS
// handshakes at a bounded rate ([Listener]), and refuses requests that would wait too
// long, with a jittered Retry-After ([Admission]). Package app builds it; the routes of
// agents and of the admin API use it.
package limit

import (
	"cmp"
	"fmt"
	"time"
)

// Config is the section limits of the server's configuration. A value of 0 is derived
// from the machine.
type Config struct {
	// MaxAgents is how many connections of agents may be open at once.
	MaxAgents int `yaml:"max_agents"`
	// MaxHandshakes is how many TLS handshakes may be in progress at once.
	MaxHandshakes int `yaml:"max_handshakes"`
	// HandshakesPerSecond is how many handshakes may start in a second.
	HandshakesPerSecond int `yaml:"handshakes_per_second"`
	// How many requests of a kind may be in progress at once. A parked check-in is not.
	MaxCheckins    int `yaml:"max_checkins"`
	MaxReports     int `yaml:"max_reports"` // acknowledgements, beacons, uninstall notices
	MaxEnrollments int `yaml:"max_enrollments"`
	MaxDownloads   int `yaml:"max_downloads"` // packages and trust files
	// How many hosts one enrollment token enrols at this server.
	EnrollmentsPerSecond int `yaml:"enrollments_per_second"`
	EnrollmentsPerHour   int `yaml:"enrollments_per_hour"`
	// MemoryBytes is how much memory the process may use.
	MemoryBytes int64 `yaml:"memory_bytes"`
}

// minMemory is enough for the program, a store and some agents.
const minMemory = 64 << 20

// Check calls bad for every value that is invalid on any machine.
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
		{"enrollments_per_second", c.EnrollmentsPerSecond},
		{"enrollments_per_hour", c.EnrollmentsPerHour},
	} {
		if k.value < 0 {
			bad("limits."+k.key, "is %d, want a number above 0, or 0 for what suits the machine", k.value)
		}
	}
	if c.MemoryBytes != 0 && c.MemoryBytes < minMemory {
		bad("limits.memory_bytes", "is %d, want at least %d, or 0 for what the machine or its container has", c.MemoryBytes, int64(minMemory))
	}
}

// Limits are how much a server handles at once.
type Limits struct {
	Agents              int // connections of agents
	Handshakes          int
	HandshakesPerSecond int
	Checkins            int
	Reports             int
	Enrollments         int
	Downloads           int
	// How many hosts one enrollment token enrols.
	EnrollmentsPerSecond, EnrollmentsPerHour int
	// Waiting is how many requests of one kind may be queued.
	Waiting int
	// BodyBytes bounds the memory of the bodies of requests that are queued or in progress.
	BodyBytes   int64
	MemoryBytes int64
}

const (
	// parkedMemory is the memory of an agent whose connection is parked without a
	// goroutine: 14 KiB in the process, 4 KiB in the kernel.
	parkedMemory = 18 << 10
	// blockedMemory is the same where each parked agent needs a goroutine.
	blockedMemory = 80 << 10
	// requestMemory is the memory of a request in progress: two goroutines, the buffers
	// of net/http and TLS, and its decoded body.
	requestMemory = 64 << 10
	// waitingMemory is the memory of a queued request, whose body is still compressed.
	waitingMemory = 32 << 10
	// baseMemory is the memory of the program with an open store.
	baseMemory = 48 << 20
	// unknownMemory is assumed if the machine's memory is unknown.
	unknownMemory = 1 << 30

	// How many may be in progress at once for each processor. Go's scheduler has no
	// priorities, and reads of the store share one queue: a request of the admin API
	// waits behind all of these, a few milliseconds of work of each kind.
	// Handshakes also wait for the client's network. One address, such as a load
	// balancer's, may have 32 of them.
	handshakesPerCore = 36
	checkinsPerCore   = 16
	// writesPerCore is for acknowledgements and enrolments: they mostly wait for a
	// transaction, which is cheaper the more of them share it.
	writesPerCore = 64
	// maxDownloads bounds downloads, which take hours on slow hosts but little CPU time.
	maxDownloads = 1024

	// handshakeShare is the share of the processors for handshakes in a storm of
	// reconnecting agents. The rest is for check-ins and the admin API.
	handshakeShare = 0.75
	// usualHandshake is the server's CPU time of a full TLS 1.3 handshake with ECDSA
	// P-256, used if it cannot be measured.
	usualHandshake = 530 * time.Microsecond

	// otherDescriptors are reserved for the admin API's connections, the store, and
	// files that are opened briefly.
	otherDescriptors = adminConnections + 64
)

// Derive returns the limits for a machine: the values of c, and for those that are 0
// values derived from the processors, memory and descriptors. It fails if c exceeds what
// the process can have.
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
	l := Limits{
		MemoryBytes:          memory,
		EnrollmentsPerSecond: cmp.Or(c.EnrollmentsPerSecond, enrollmentsPerSecond), EnrollmentsPerHour: cmp.Or(c.EnrollmentsPerHour, enrollmentsPerHour),
	}

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
	l.BodyBytes = max(32<<20, memory/16) // at least one uncompressed body of the maximum length

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
	// All agents may send something at once, after an action for all.
	l.Waiting = max(64, int(min(memory/16/waitingMemory, int64(l.Agents))))
	return l, nil
}
