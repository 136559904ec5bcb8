package simdisk

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// Windows is a disk that treats programs that run as Windows does: they are neither removed nor
// overwritten, and another file does not take their name, but they can be renamed. A
// folder with one in it cannot be renamed: NTFS does not promise it. Links are removed and renamed
// whatever they lead to.
type Windows struct {
	disk.Disk
	// Running returns the paths of the programs that run, without links.
	Running func() []string
}

// refuse returns an error if a program that runs is at path, or below it if folders is set.
func (w Windows) refuse(op, name, path string, folders bool) error {
	path = filepath.Clean(path)
	used := slices.ContainsFunc(w.Running(), func(program string) bool {
		return program == path || folders && strings.HasPrefix(program, path+string(filepath.Separator))
	})
	if !used {
		return nil
	}
	return label(op, &fs.PathError{Op: name, Path: path, Err: syscall.EACCES})
}

// OpenFile refuses to write to a program that runs.
func (w Windows) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_TRUNC) != 0 {
		if err := w.refuse(op, "open", path, false); err != nil {
			return nil, err
		}
	}
	return w.Disk.OpenFile(op, path, flag, perm)
}

// Rename refuses a folder with a program that runs, and to replace such a program.
func (w Windows) Rename(op, from, to string) error {
	fi, err := w.Disk.Lstat(op, from)
	if err == nil && fi.IsDir() {
		err = w.refuse(op, "rename", from, true)
	}
	if err == nil {
		err = w.refuse(op, "rename", to, false)
	}
	if err != nil {
		return err
	}
	return w.Disk.Rename(op, from, to)
}

// Remove refuses a program that runs.
func (w Windows) Remove(op, path string) error {
	if err := w.refuse(op, "remove", path, false); err != nil {
		return err
	}
	return w.Disk.Remove(op, path)
}

// RemoveAll removes nothing if a program below path runs; Windows removes an undefined part.
func (w Windows) RemoveAll(op, path string) error {
	if err := w.refuse(op, "remove", path, true); err != nil {
		return err
	}
	return w.Disk.RemoveAll(op, path)
}
