// Package disk provides the file-system operations whose result must survive a
// crash. The agent, the watcher and the unpacker use it.
//
// Every operation has a label (op) that gives its purpose, such as "marker" or
// "pointer". Errors include the label, and a test selects the call to fail by it. The
// package has no state, so a test may run many agents in one process, each with its
// own Disk.
//
// There are three durable writes: [WriteFile] for whole files, [WriteRecord] for
// small checksummed state with a previous copy, and [Point] for the symbolic link
// that determines which version runs.
package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Disk is the set of file-system calls that durable operations need.
// Paths are absolute or relative to the process, as for package os. An error
// wraps the cause and names op and path.
type Disk interface {
	ReadFile(op, path string) ([]byte, error)
	// OpenFile accepts the flags of os.OpenFile. A file that O_EXCL makes has the mode perm, and so
	// have the folders that MkdirAll makes, whatever the umask: accounts of components have to read
	// what a process of root with the umask 077 has made.
	OpenFile(op, path string, flag int, perm fs.FileMode) (File, error)
	MkdirAll(op, path string, perm fs.FileMode) error
	// Rename replaces to if it exists. It is durable only after SyncDir of
	// the folder that holds to.
	Rename(op, from, to string) error
	// Remove and RemoveAll return nil if path does not exist.
	Remove(op, path string) error
	RemoveAll(op, path string) error
	Symlink(op, target, link string) error
	Readlink(op, link string) (string, error)
	Lstat(op, path string) (fs.FileInfo, error)
	ReadDir(op, path string) ([]fs.DirEntry, error)
	// SyncDir makes the names in a folder durable: what was created, renamed
	// or removed in it before the call survives a power cut after it.
	SyncDir(op, path string) error
	// OpenRoot opens a folder that no name passed to the Root can leave.
	OpenRoot(op, path string) (Root, error)
	// OpenFolder opens a folder below which the caller goes down name by name.
	OpenFolder(op, path string) (Folder, error)
	// Free returns the number of bytes available to an unprivileged process on
	// the file system that holds path.
	Free(op, path string) (int64, error)
}

// SpaceMargin is how many bytes must stay free beside what is downloaded or unpacked, for the agent's
// state and log.
const SpaceMargin = 16 << 20

// ErrNoSpace is wrapped by the error of what does not fit on the disk, before or while it is written.
var ErrNoSpace = errors.New("not enough disk space")

// File is an open file.
type File interface {
	io.Reader
	io.Writer
	io.Seeker
	io.Closer
	Sync() error
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
	// Chmod and Chown are those of os.File.
	Chmod(mode fs.FileMode) error
	Chown(uid, gid int) error
}

// Root is an open folder whose methods refuse every path that leaves it, directly or
// through symbolic links; see os.Root.
type Root interface {
	MkdirAll(name string, perm fs.FileMode) error
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// SyncDir makes the names in the folder name (relative, "." for the root
	// itself) durable.
	SyncDir(name string) error
	Close() error
}

// OS is the operating system's file system.
type OS struct{}

var _ Disk = OS{}

func (OS) ReadFile(op, path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	return b, wrap(op, err)
}

func (OS) OpenFile(op, path string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, perm)
	return opened(op, f, err, flag, perm)
}

// opened returns a file that OpenFile has opened, with its mode if it was made.
func opened(op string, f *os.File, err error, flag int, perm fs.FileMode) (File, error) {
	if err == nil && flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0 {
		if err = setMode(f, perm); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, wrap(op, err)
	}
	return f, nil
}

func (OS) MkdirAll(op, path string, perm fs.FileMode) error {
	missing := missingFolders(path, os.Lstat)
	err := os.MkdirAll(path, perm)
	return wrap(op, setModes(missing, perm, err, func(name string) (*os.File, error) { return openMade(os.OpenFile, name) }))
}

// missingFolders returns the folders on a path that there are not, the highest first.
func missingFolders(path string, lstat func(string) (fs.FileInfo, error)) (missing []string) {
	for dir := filepath.Clean(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, dir)
	}
	slices.Reverse(missing)
	return missing
}

// setModes gives folders that were made their mode, unless making them has failed.
func setModes(made []string, perm fs.FileMode, err error, open func(string) (*os.File, error)) error {
	for _, dir := range made {
		if err != nil {
			return err
		}
		var f *os.File
		if f, err = open(dir); err == nil {
			err = errors.Join(setMode(f, perm), f.Close())
		}
	}
	return err
}

func (OS) Rename(op, from, to string) error { return wrap(op, rename(from, to)) }

func (OS) Remove(op, path string) error {
	err := remove(path)
	if os.IsNotExist(err) {
		return nil
	}
	return wrap(op, err)
}

func (OS) RemoveAll(op, path string) error { return wrap(op, os.RemoveAll(path)) }

func (OS) Symlink(op, target, link string) error { return wrap(op, os.Symlink(target, link)) }

func (OS) Readlink(op, link string) (string, error) {
	t, err := os.Readlink(link)
	return t, wrap(op, err)
}

func (OS) Lstat(op, path string) (fs.FileInfo, error) {
	fi, err := os.Lstat(path)
	return fi, wrap(op, err)
}

func (OS) ReadDir(op, path string) ([]fs.DirEntry, error) {
	e, err := os.ReadDir(path)
	return e, wrap(op, err)
}

func (OS) SyncDir(op, path string) error { return wrap(op, syncDir(path)) }

func (OS) OpenRoot(op, path string) (Root, error) {
	r, err := os.OpenRoot(path)
	if err != nil {
		return nil, wrap(op, err)
	}
	return osRoot{op, r}, nil
}

func (OS) Free(op, path string) (int64, error) {
	n, err := free(path)
	return n, wrap(op, err)
}

type osRoot struct {
	op   string
	root *os.Root
}

func (r osRoot) MkdirAll(name string, perm fs.FileMode) error {
	missing := missingFolders(name, r.root.Lstat)
	err := r.root.MkdirAll(name, perm)
	return wrap(r.op, setModes(missing, perm, err, func(name string) (*os.File, error) { return openMade(r.root.OpenFile, name) }))
}

func (r osRoot) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := r.root.OpenFile(name, flag, perm)
	return opened(r.op, f, err, flag, perm)
}

func (r osRoot) SyncDir(name string) error { return wrap(r.op, syncDirIn(r.root, name)) }
func (r osRoot) Close() error              { return wrap(r.op, r.root.Close()) }

// Error is a failed operation with its label. It wraps the cause, which names the
// path.
type Error struct {
	Op  string
	Err error
}

func (e *Error) Error() string { return e.Op + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Err: err}
}
