package suite

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryPrefix begins the names of folders in memory, which end with the number of the process that
// uses them. It is short, since paths of sockets have at most 108 bytes.
const memoryPrefix = "m"

// memoryNeeded is how many bytes must be free for temporary files to be in memory. The files take up
// to 1 GB, the programs that tests start some 6 GB, and the cache of what is built the rest.
const memoryNeeded = 12 << 30

// useMemory moves the temporary files of tests into memory, if $TMPDIR names no other place and
// the machine has enough memory, and returns what removes them. Tests write and sync thousands of
// small files: on a disk the system spends more processor time on that than the tests on
// everything else. A test that cuts the power has a disk of its own, and no other test needs one.
//
// What the go command builds stays where it is: it takes gigabytes, and nobody syncs it.
func useMemory(out io.Writer) (remove func()) {
	top, free := memoryFolder()
	if os.Getenv("TMPDIR") != "" || free < memoryNeeded {
		return func() {}
	}
	removeLeft(top)
	dir, disk := filepath.Join(top, memoryPrefix+strconv.Itoa(os.Getpid())), os.TempDir()
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o777|os.ModeSticky) // as /tmp is: some tests act as another user
	}
	if err != nil {
		fmt.Fprintf(out, "Temporary files stay on the disk: %v\n", err)
		return func() {}
	}
	_ = os.Setenv("TMPDIR", dir) // it fails for invalid names only
	if os.Getenv("GOTMPDIR") == "" {
		_ = os.Setenv("GOTMPDIR", disk)
	}
	return func() { _ = os.RemoveAll(dir) }
}

// removeLeft removes the folders of processes that were killed, which would keep the memory.
func removeLeft(top string) {
	dirs, _ := filepath.Glob(filepath.Join(top, memoryPrefix+"[0-9]*"))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), memoryPrefix))
		if err == nil && !runs(pid) {
			_ = os.RemoveAll(dir)
		}
	}
}
