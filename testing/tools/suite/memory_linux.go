package suite

import (
	"errors"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// memoryFolder returns a folder whose files are in memory, and how many bytes may be put there. They
// are 0 where there is no such folder.
func memoryFolder() (dir string, free uint64) {
	const shared = "/dev/shm"
	var fs unix.Statfs_t
	if err := unix.Statfs(shared, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC || fs.Flags&unix.ST_NOEXEC != 0 {
		return "", 0
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return "", 0
	}
	memory, err := proc.Meminfo()
	if err != nil || memory.MemAvailableBytes == nil {
		return "", 0
	}
	return shared, min(fs.Bavail*uint64(fs.Bsize), *memory.MemAvailableBytes) //nolint:gosec // block sizes are positive
}

func runs(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
