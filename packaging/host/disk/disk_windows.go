package disk

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/windows"
)

const (
	// openTimeout is how long an operation is retried while another process has the file open:
	// virus scanners and indexers open every new file, and agent and watcher read each other's
	// files, each for well under a second.
	openTimeout = 3 * time.Second
	openPause   = 50 * time.Millisecond
)

// noWait is nothing: pipes are not in folders here.
const noWait = 0

// rename replaces to atomically: os.Rename uses MOVEFILE_REPLACE_EXISTING, which NTFS
// executes in one transaction of its journal. It replaces a link and not the link's
// target. Unlike on Unix, replacing an open file fails until the file is closed, which Windows
// reports as either error. A program that runs can be renamed, and not be replaced.
func rename(from, to string) error {
	return whileOpen(func() error { return os.Rename(from, to) }, windows.ERROR_SHARING_VIOLATION, windows.ERROR_ACCESS_DENIED)
}

// remove fails with ERROR_ACCESS_DENIED for a program that runs, which is not retried.
func remove(path string) error {
	return whileOpen(func() error { return os.Remove(path) }, windows.ERROR_SHARING_VIOLATION)
}

func whileOpen(do func() error, open ...windows.Errno) error {
	for deadline := time.Now().Add(openTimeout); ; time.Sleep(openPause) {
		err := do()
		if !slices.ContainsFunc(open, func(e windows.Errno) bool { return errors.Is(err, e) }) || !time.Now().Before(deadline) {
			return err
		}
	}
}

// IsFull reports whether an operation failed because the disk is full.
func IsFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// IsUnwritable reports whether an operation failed because nothing can be written: the disk is full, or
// protected.
func IsUnwritable(err error) bool { return IsFull(err) || errors.Is(err, windows.ERROR_WRITE_PROTECT) }

// syncDir does nothing: Windows has no call that flushes a folder. NTFS journals
// renames in order, so a power cut may undo the last renames but neither reorders nor
// halves them. Callers may rely on the order of two renames, but not on a rename being
// durable when syncDir returns.
func syncDir(string) error { return nil }

// setMode does nothing: there is no umask here.
func setMode(*os.File, fs.FileMode) error { return nil }

func openMade(open func(name string, flag int, perm fs.FileMode) (*os.File, error), name string) (*os.File, error) {
	return open(name, os.O_RDONLY, 0)
}

func syncDirIn(*os.Root, string) error { return nil }

func free(path string) (int64, error) {
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	var n uint64
	if err := windows.GetDiskFreeSpaceEx(p, &n, nil, nil); err != nil {
		return 0, err
	}
	return int64(n), nil //nolint:gosec // no disk has 2^63 bytes
}

func freeInodes(string) (int64, bool) { return 0, false }

// OwnerOf returns Own: files have no numbers of accounts here.
func OwnerOf(fs.FileInfo) Owner { return Own }
