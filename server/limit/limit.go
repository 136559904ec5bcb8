// Package limit keeps one server alive when more is asked of it than it can do.
// It derives from the machine how many agents, handshakes and requests the server
// takes at once ([Derive]), makes new connections wait their turn ([Listener]),
// and tells requests that would wait too long to come again, each at another time
// ([Admission]). The replica builds it, the agents' routes ask it; the admin API
// passes none of it, has the processor time that this leaves, and bulk work steps
// aside for it ([Courtesy]).
package limit

import (
	"errors"
	"fmt"
	"runtime"
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
	// Overflow is how many connections beyond the limit are told so with a 429;
	// more than these at once are closed without a word.
	Overflow = 64
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

	// Latency of the client's network and of the store is waited for within these,
	// so they are many for each processor: what bounds them is memory.
	l.Handshakes = or(c.MaxHandshakes, within(memory/16/requestMemory, 16, 512*cores))
	l.HandshakesPerSecond = or(c.HandshakesPerSecond, max(1, int(handshakeShare*float64(cores)*float64(time.Second)/float64(handshake))))
	l.Checkins = or(c.MaxCheckins, within(memory/32/requestMemory, 16, 512*cores))
	l.Reports = or(c.MaxReports, within(memory/32/requestMemory, 16, 512*cores))
	l.Enrollments = or(c.MaxEnrollments, within(memory/64/requestMemory, 8, 64*cores))
	// A slow host downloads for an hour, so these are as many as the memory bears.
	l.Downloads = or(c.MaxDownloads, within(memory/16/requestMemory, 16, 1024))
	if m.Descriptors > 0 {
		l.Downloads = or(c.MaxDownloads, min(l.Downloads, max(8, m.Descriptors/50)))
	}
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
	l.Agents = or(c.MaxAgents, l.Agents)
	// All agents may say something at once, when an action has reached them all.
	l.Waiting = within(memory/16/waitingMemory, 64, l.Agents)
	return l, nil
}

func or(asked, derived int) int {
	if asked > 0 {
		return asked
	}
	return derived
}

// within is n, but at least low, and at most high where that is more than low.
func within(n int64, low, high int) int {
	return max(low, int(min(n, int64(high))))
}

// Machine is what a process has of its machine.
type Machine struct {
	Cores int
	// Memory is that of the machine, or the container's if that has less; 0 where
	// neither says. Bytes.
	Memory int64
	// Descriptors is how many files and connections the process may have open; 0
	// where there is no such limit.
	Descriptors int
	// Handshake is the processor time of one TLS handshake here; 0: not measured.
	Handshake time.Duration
	// Blocking says that a goroutine waits for each parked agent.
	Blocking bool
}

// errNoMachine is for systems that have no such files.
var errNoMachine = errors.New("no figure")

// ThisMachine reads what this process has. What cannot be found out is 0.
func ThisMachine() Machine {
	// The runtime has counted what a container's quota leaves of the processors, and
	// has raised the soft limit of open files to the hard one.
	m := Machine{Cores: runtime.GOMAXPROCS(0), Descriptors: descriptors(), Blocking: runtime.GOOS != "linux"}
	if n, err := memory(root); err == nil {
		m.Memory = n
	}
	return m
}
