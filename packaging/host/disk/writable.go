package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// writeCheckBytes is more than the state of an agent grows by at once, which is a few actions of its
// queue. A file system with less free space is of no use to it.
const writeCheckBytes = 16 << 10

// CheckWritable returns an error unless a file can be written at path: the file system may be full,
// have no inodes left, or be mounted read-only. It removes the file again. It does not sync it, so that
// on most file systems the medium sees nothing of it. A simulated disk, on which every change is a place
// for a fault, is not checked unless it has the method.
func CheckWritable(d Disk, op, path string) error {
	c, ok := d.(interface {
		CheckWritable(op, path string) error
	})
	if !ok {
		return nil
	}
	return c.CheckWritable(op, path)
}

// IsHostFault reports whether an operation failed because of the host, whoever had tried it: nothing can be
// written, the medium is damaged, or the host has no file handles left.
func IsHostFault(err error) bool {
	return IsUnwritable(err) || errors.Is(err, syscall.EIO) || errors.Is(err, syscall.ENFILE)
}

// CheckDurable is [CheckWritable] for a file in dir, and syncs dir, so that the medium is asked too.
func CheckDurable(d Disk, op, dir, name string) error {
	if _, ok := d.(interface {
		CheckWritable(op, path string) error
	}); !ok {
		return nil
	}
	if err := CheckWritable(d, op, filepath.Join(dir, name)); err != nil {
		return err
	}
	return d.SyncDir(op, dir)
}

// CheckWritable is for the function of that name.
func (OS) CheckWritable(op, path string) error { return WriteCheck(OS{}, op, path) }

// WriteCheck makes the check of [CheckWritable] with the calls of d.
func WriteCheck(d Disk, op, path string) error {
	if err := d.Remove(op, path); err != nil {
		return err
	}
	f, err := d.OpenFile(op, path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, writeCheckBytes))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return errors.Join(wrapOnce(op, err), d.Remove(op, path))
}

// FreeInodes returns how many files can still be made on the file system that holds path. known is
// false if it has no such number, as btrfs, and on Windows.
func FreeInodes(d Disk, op, path string) (n int64, known bool) {
	c, ok := d.(interface {
		FreeInodes(op, path string) (int64, bool)
	})
	if !ok {
		return 0, false // a disk of a test
	}
	return c.FreeInodes(op, path)
}

// FreeInodes is for the function of that name.
func (OS) FreeInodes(_, path string) (int64, bool) { return freeInodes(path) }

// Inodes returns the number of files and folders in a folder, the folder itself included.
func Inodes(d Disk, op, dir string) (n int64, err error) {
	entries, err := d.ReadDir(op, dir)
	if err != nil {
		return 0, err
	}
	n = 1
	for _, e := range entries {
		below := int64(1)
		if e.IsDir() {
			if below, err = Inodes(d, op, filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return 0, err
			}
		}
		n += below
	}
	return n, nil
}
