package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

const (
	op = "restore"
	// unpackedName is the folder in the data folder into which a backup is unpacked, and
	// verifiedName its name once it is verified. From then on the restore has happened:
	// Finish completes it, also after a crash.
	unpackedName, verifiedName = "restore.unpacked", "restore.verified"
	// replacedPrefix is the prefix of the folder that keeps what a restore replaced.
	replacedPrefix = "before-restore-"
)

// logs are the files beside the embedded store that belong to it.
var logs = []string{StoreFile + "-wal", StoreFile + "-shm"}

// Unpacked makes an empty folder in the data folder for Read, and removes that of an
// earlier restore that failed.
func Unpacked(d disk.Disk, data string) (string, error) {
	dir := filepath.Join(data, unpackedName)
	return dir, errors.Join(d.MkdirAll(op, data, 0o700), d.RemoveAll(op, dir), d.MkdirAll(op, dir, 0o700))
}

// Discard removes the folder of Unpacked.
func Discard(d disk.Disk, data string) error {
	return d.RemoveAll(op, filepath.Join(data, unpackedName))
}

// Interrupted reports whether a restore of the data folder has to be completed.
func Interrupted(d disk.Disk, data string) (bool, error) {
	return exists(d, filepath.Join(data, verifiedName))
}

// Occupied returns the parts of a backup that the data folder has.
func Occupied(d disk.Disk, data string) (names []string, err error) {
	for _, name := range append([]string{StoreFile}, folders...) {
		path := filepath.Join(data, name)
		info, err := d.Lstat(op, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case info.IsDir():
			entries, err := d.ReadDir(op, path)
			if err != nil {
				return nil, err
			}
			if len(entries) == 0 {
				continue
			}
		case info.Size() == 0:
			continue
		}
		names = append(names, name)
	}
	return names, nil
}

// Commit makes the unpacked files those that Finish puts into place.
func Commit(d disk.Disk, data string) error {
	dir := filepath.Join(data, unpackedName)
	folder := func(path string) error { return d.SyncDir(op, path) }
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = folder(path)
		}
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(d.Rename(op, dir, filepath.Join(data, verifiedName)), folder(data))
}

// Finish moves the verified files into place, and what they replace into a folder whose
// path it returns, empty if there was nothing. It can be repeated after a crash. The
// caller must hold the lock of the embedded store.
func Finish(d disk.Disk, data string, now time.Time) (replaced string, err error) {
	from := filepath.Join(data, verifiedName)
	entries, err := d.ReadDir(op, from)
	if err != nil {
		return "", err
	}
	keep := filepath.Join(data, replacedPrefix+now.UTC().Format("20060102T150405Z"))
	for _, e := range entries {
		old := []string{e.Name()}
		if e.Name() == StoreFile {
			old = append(old, logs...)
		}
		for _, name := range old {
			moved, err := keepOld(d, data, keep, name)
			if err != nil {
				return "", err
			}
			if moved {
				replaced = keep
			}
		}
		if err := d.SyncDir(op, data); err != nil { // an old log beside the new store would damage it
			return "", err
		}
		if err := d.Rename(op, filepath.Join(from, e.Name()), filepath.Join(data, e.Name())); err != nil {
			return "", err
		}
	}
	if replaced != "" {
		err = d.SyncDir(op, replaced)
	}
	return replaced, errors.Join(err, d.SyncDir(op, data), d.RemoveAll(op, from), d.SyncDir(op, data))
}

// keepOld moves a file or folder of the data folder to keep, if there is one.
func keepOld(d disk.Disk, data, keep, name string) (moved bool, err error) {
	path := filepath.Join(data, name)
	if there, err := exists(d, path); err != nil || !there {
		return false, err
	}
	if there, err := exists(d, filepath.Join(keep, name)); err != nil || there {
		return false, errors.Join(err, fmt.Errorf("%s exists already: move it away", filepath.Join(keep, name)))
	}
	if err := d.MkdirAll(op, keep, 0o700); err != nil {
		return false, err
	}
	return true, d.Rename(op, path, filepath.Join(keep, name))
}

func exists(d disk.Disk, path string) (bool, error) {
	_, err := d.Lstat(op, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
