package app

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

const (
	// reserveFile is a file in the data folder that only occupies space.
	reserveFile = "reserve"
	// reserveSize is twice what the log of the embedded store grows to before it is copied
	// into the file. A start needs 40 KB.
	reserveSize = 8 << 20
	// fullBelow is how much space is left at most on a disk that counts as full.
	fullBelow = 1 << 20

	opReserve = "reserve"
)

// HoldReserve creates the reserve, if there is none and the disk has room for more than
// that.
func HoldReserve(d disk.Disk, data string) error {
	path := filepath.Join(data, reserveFile)
	if _, err := d.Lstat(opReserve, path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if free, err := d.Free(opReserve, data); err != nil || free < 2*reserveSize {
		return err
	}
	random := make([]byte, reserveSize) // a file system may compress anything else
	_, _ = rand.Read(random)            // never fails
	return disk.WriteFile(d, opReserve, path, random, 0o600)
}

// ReleaseReserve removes the reserve if the disk is full, and reports whether it did. A
// server that could not start then can, so that packages can be withdrawn.
func ReleaseReserve(d disk.Disk, data string) (bool, error) {
	path := filepath.Join(data, reserveFile)
	if _, err := d.Lstat(opReserve, path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	free, err := d.Free(opReserve, data)
	if err != nil || free >= fullBelow {
		return false, err
	}
	return true, d.Remove(opReserve, path)
}
