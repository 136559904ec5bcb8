package disk

import (
	"os"

	"golang.org/x/sys/windows"
)

// syncDir does nothing: Windows has no call that flushes a folder, and NTFS
// journals renames.
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
