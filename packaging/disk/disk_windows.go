package disk

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

const (
	// renameTimeout is how long a rename is retried while another process has
	// one of the two files open: virus scanners and indexers open every new file
	// for well under a second.
	renameTimeout = 3 * time.Second
	renamePause   = 50 * time.Millisecond
)

// rename replaces to atomically: os.Rename uses MOVEFILE_REPLACE_EXISTING, which NTFS
// executes in one transaction of its journal. It replaces a link and not the link's
// target. Unlike on Unix, replacing an open file fails until the file is closed.
func rename(from, to string) error {
	for deadline := time.Now().Add(renameTimeout); ; time.Sleep(renamePause) {
		err := os.Rename(from, to)
		if !errors.Is(err, windows.ERROR_SHARING_VIOLATION) && !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
			return err
		}
		if !time.Now().Before(deadline) {
			return err
		}
	}
}

// IsFull reports whether an operation failed because the disk is full.
func IsFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// syncDir does nothing: Windows has no call that flushes a folder. NTFS journals
// renames in order, so a power cut may undo the last renames but neither reorders nor
// halves them. Callers may rely on the order of two renames, but not on a rename being
// durable when syncDir returns.
func syncDir(string) error { return nil }

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

// OwnerOf returns Own: files have no numbers of accounts here.
func OwnerOf(fs.FileInfo) Owner { return Own }
