package disk

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

const (
	// renamePatience is how long a rename is tried again while somebody else
	// has one of the two files open: virus scanners and indexers look at every
	// new file, and let go of it in well under a second.
	renamePatience = 3 * time.Second
	renamePause    = 50 * time.Millisecond
)

// rename replaces to in one step: os.Rename asks for MOVEFILE_REPLACE_EXISTING,
// which NTFS carries out in one transaction of its journal. A link is replaced
// itself, not what it leads to. Elsewhere a file that is open can be replaced;
// here that fails until it is closed.
func rename(from, to string) error {
	for deadline := time.Now().Add(renamePatience); ; time.Sleep(renamePause) {
		err := os.Rename(from, to)
		if !errors.Is(err, windows.ERROR_SHARING_VIOLATION) && !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
			return err
		}
		if !time.Now().Before(deadline) {
			return err
		}
	}
}

// IsFull says whether an operation failed for want of room.
func IsFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// syncDir does nothing: Windows has no call that flushes a folder. NTFS journals
// renames in order, so a power cut may take back the last of them but never
// leaves one half done. What relies on the order of two names therefore holds;
// that a name is on the disk when the call returns does not, and whoever comes
// back after the power cut finds the step before it.
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
