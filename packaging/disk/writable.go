package disk

import (
	"errors"
	"os"
)

// writeCheckBytes is more than the state of an agent grows by at once, which is a few actions of its
// queue. A file system with less free space is of no use to it.
const writeCheckBytes = 16 << 10

// CheckWritable returns an error unless a file can be written at path: the file system may be full,
// have no inodes left, or be mounted read-only. It removes the file again. It does not sync it, so that
// on most file systems the medium sees nothing of it.
func CheckWritable(d Disk, op, path string) error {
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
