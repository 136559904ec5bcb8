//go:build unix

package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// noWait has open return at once for a pipe without a writer.
const noWait = syscall.O_NONBLOCK

// syncDir syncs a folder. On macOS fsync stops at the drive's cache and only
// F_FULLFSYNC reaches the medium; Go's Sync makes that call there.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// setMode adds to what was just made what the umask has taken from its mode. File systems without
// modes refuse that.
func setMode(f *os.File, perm fs.FileMode) error {
	fi, err := f.Stat()
	if err != nil || fi.Mode().Perm()&perm == perm.Perm() {
		return err
	}
	if err := f.Chmod(perm); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// openMade opens a folder that was just made, and nothing that has been put in its place.
func openMade(open func(name string, flag int, perm fs.FileMode) (*os.File, error), name string) (*os.File, error) {
	return open(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
}

func syncDirIn(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func free(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	//nolint:unconvert,gosec // the field types differ between Unix systems
	return int64(st.Bavail) * int64(st.Bsize), nil
}

func freeInodes(path string) (int64, bool) {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil || st.Files == 0 {
		return 0, false
	}
	return int64(st.Ffree), true //nolint:gosec // the field types differ between Unix systems
}

// rename is atomic on every Unix file system.
func rename(from, to string) error { return os.Rename(from, to) }

func remove(path string) error { return os.Remove(path) }

// OwnerOf returns whose a file is, or Own if the file system does not say.
func OwnerOf(fi fs.FileInfo) Owner {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return Owner{int(st.Uid), int(st.Gid)}
	}
	return Own
}
