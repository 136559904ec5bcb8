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

// Machine describes the resources of a process.
type Machine struct {
	Cores int
	// Memory is the memory of the machine, or of the container if that has less, in
	// bytes; 0 if unknown.
	Memory int64
	// Descriptors is how many files and connections the process may have open; 0 means
	// no limit.
	Descriptors int
	// Handshake is the CPU time of one TLS handshake; 0 if not measured.
	Handshake time.Duration
	// Blocking means that a goroutine waits for each parked agent.
	Blocking bool
}

// ThisMachine returns the resources of this process. Unknown values are 0.
func ThisMachine() Machine {
	// GOMAXPROCS respects a container's CPU quota, and the runtime has raised the soft
	// limit of open files to the hard one.
	return Machine{Cores: runtime.GOMAXPROCS(0), Memory: memory(os.DirFS("/")), Descriptors: descriptors(), Blocking: runtime.GOOS != "linux"}
}

// memory returns the machine's memory, or the lowest limit of this process's control
// groups if that is less, in bytes; 0 if neither is known. It reads control groups of
// both versions.
func memory(fsys fs.FS) int64 {
	least := firstNumber(fsys, "proc/meminfo") // MemTotal, in KiB
	if least < math.MaxInt64 {
		least <<= 10
	}
	groups, _ := fs.ReadFile(fsys, "proc/self/cgroup") // if the file is absent there are no groups
	for line := range strings.Lines(string(groups)) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(line, ":")
		file := "sys/fs/cgroup%s/memory.max"
		if controllers != "" {
			ok = ok && slices.Contains(strings.Split(controllers, ","), "memory")
			file = "sys/fs/cgroup/memory%s/memory.limit_in_bytes"
		}
		// The parent groups count, too. In a container the path may be the host's, and
		// then only the last, the root, exists.
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

// firstNumber returns the number in the first line of a file, or the largest integer if
// the line has none ("max") or the file is absent.
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
	// heapShare is the share of the memory that is the runtime's soft limit. The rest is
	// for memory that the runtime does not count, and for the duration of a collection.
	heapShare = 0.9
)

// SetMemoryLimit sets the runtime's soft memory limit for a server that may use memory
// bytes, 0 if that is not known. GOMEMLIMIT of the environment takes precedence.
func SetMemoryLimit(memory int64, getenv func(string) string) {
	if getenv("GOMEMLIMIT") == "" && memory > 0 {
		debug.SetMemoryLimit(int64(heapShare * float64(memory)))
	}
}
