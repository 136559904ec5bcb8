package limit

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

var root = os.DirFS("/")

// memory is what the machine has, or the least that a control group over this
// process allows, in bytes. Both generations of control groups are read; files
// that are missing say nothing.
func memory(fsys fs.FS) (int64, error) {
	least := int64(math.MaxInt64)
	if text, err := fs.ReadFile(fsys, "proc/meminfo"); err == nil {
		if n, ok := memTotal(text); ok {
			least = n
		}
	}
	groups, _ := fs.ReadFile(fsys, "proc/self/cgroup") // absent: none
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch controllers, group := fields[1], fields[2]; {
		case fields[0] == "0" && controllers == "":
			least = min(least, groupLimit(fsys, "sys/fs/cgroup", group, "memory.max"))
		case strings.Contains(","+controllers+",", ",memory,"):
			least = min(least, groupLimit(fsys, "sys/fs/cgroup/memory", group, "memory.limit_in_bytes"))
		}
	}
	if least == math.MaxInt64 {
		return 0, errNoMachine
	}
	return least, nil
}

// groupLimit is the least that a group and those it lies in allow. Inside a
// container the group's path may be that of the host, and only the last, the
// top, is there.
func groupLimit(fsys fs.FS, mount, group, file string) int64 {
	least := int64(math.MaxInt64)
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		if text, err := fs.ReadFile(fsys, path.Join(mount, at, file)); err == nil {
			// "max" and the old generation's 2^63 less a page both mean no limit: the
			// machine's own memory is less.
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				least = min(least, n)
			}
		}
		if at == "/" {
			return least
		}
	}
}

// memTotal reads the first figure of /proc/meminfo.
func memTotal(text []byte) (int64, bool) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return n << 10, err == nil && n > 0
		}
	}
	return 0, false
}

// heapShare of the memory is the runtime's soft limit: the rest is for what it does not
// count, and for the moment until a collection is done.
const heapShare = 0.9

// TuneMemory sets the runtime's garbage collector for a server that may use memory
// bytes, 0 if that is not known. What the environment sets with GOGC or GOMEMLIMIT
// stays; with GOGC there is no Heap.
func TuneMemory(memory int64, getenv func(string) string) *Heap {
	if getenv("GOMEMLIMIT") == "" && memory > 0 {
		debug.SetMemoryLimit(int64(heapShare * float64(memory)))
	}
	if getenv("GOGC") != "" {
		return nil
	}
	return newHeap()
}
