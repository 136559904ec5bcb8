package limit

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

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

// ThisMachine reads what this process has. What cannot be found out is 0.
func ThisMachine() Machine {
	// The runtime has counted what a container's quota leaves of the processors, and
	// has raised the soft limit of open files to the hard one.
	return Machine{Cores: runtime.GOMAXPROCS(0), Memory: memory(os.DirFS("/")), Descriptors: descriptors(), Blocking: runtime.GOOS != "linux"}
}

// memory is what the machine has, or the least that a control group over this
// process allows, in bytes; 0 where neither is known. Both generations of control
// groups are read.
func memory(fsys fs.FS) int64 {
	least := firstNumber(fsys, "proc/meminfo") // MemTotal, in KiB
	if least < math.MaxInt64 {
		least <<= 10
	}
	groups, _ := fs.ReadFile(fsys, "proc/self/cgroup") // absent: none
	for line := range strings.Lines(string(groups)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(line, ":")
		file := "sys/fs/cgroup%s/memory.max"
		if controllers != "" {
			ok = ok && slices.Contains(strings.Split(controllers, ","), "memory")
			file = "sys/fs/cgroup/memory%s/memory.limit_in_bytes"
		}
		// The groups it lies in count, too. In a container the path may be the host's,
		// and only the last, the top, is there.
		for at := path.Clean("/" + group); ok; at = path.Dir(at) {
			least = min(least, firstNumber(fsys, path.Clean(fmt.Sprintf(file, at))))
			ok = at != "/"
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// firstNumber returns the number in the first line of a file, and the largest there is
// for one that has none ("max") or is absent.
func firstNumber(fsys fs.FS, name string) int64 {
	text, _ := fs.ReadFile(fsys, name)
	first, _, _ := strings.Cut(string(text), "\n")
	for word := range strings.FieldsSeq(first) {
		if n, err := strconv.ParseInt(word, 10, 64); err == nil && n > 0 {
			return n
		}
	}
	return math.MaxInt64
}

const (
	// heapShare of the memory is the runtime's soft limit: the rest is for what it does
	// not count, and for the moment until a collection is done.
	heapShare = 0.9
)

// SetMemoryLimit sets the runtime's soft memory limit for a server that may use memory
// bytes, 0 if that is not known. GOMEMLIMIT of the environment takes precedence.
func SetMemoryLimit(memory int64, getenv func(string) string) {
	if getenv("GOMEMLIMIT") == "" && memory > 0 {
		debug.SetMemoryLimit(int64(heapShare * float64(memory)))
	}
}
