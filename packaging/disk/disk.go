// Package disk is how Muster touches a file system when the outcome must
// survive a crash. The agent, the watcher and the unpacker call it; it calls
// nothing of ours.
//
// Every operation carries a label (op), the reason it is made, such as
// "marker" or "pointer". The label shows in errors, and it lets a test name the
// one call that is to fail. Nothing here keeps state of its own, so a test may
// hand each of many agents in one process a Disk of its own.
//
// Three shapes of durable write stand on the interface: [WriteFile] for whole
// files, [WriteRecord] for small checksummed state that keeps its previous
// copy, and [Point] for the one symbolic link that decides which version runs.
package disk

import (
	"io"
	"io/fs"
	"os"
)

// Disk is the set of file-system calls Muster makes where durability matters.
// Paths are absolute or relative to the process, as for package os. An error
// wraps the cause and names op and path.
type Disk interface {
	ReadFile(op, path string) ([]byte, error)
	// OpenFile takes the flags of os.OpenFile.
	OpenFile(op, path string, flag int, perm fs.FileMode) (File, error)
	MkdirAll(op, path string, perm fs.FileMode) error
	// Rename replaces to if it exists. It is durable only after SyncDir of
	// the folder that holds to.
	Rename(op, from, to string) error
	// Remove and RemoveAll: a path that is not there is no error.
	Remove(op, path string) error
	RemoveAll(op, path string) error
	Symlink(op, target, link string) error
	Readlink(op, link string) (string, error)
	Lstat(op, path string) (fs.FileInfo, error)
	ReadDir(op, path string) ([]fs.DirEntry, error)
	// SyncDir makes the names in a folder durable: what was created, renamed
	// or removed in it before the call survives a power cut after it.
	SyncDir(op, path string) error
	// OpenRoot opens a folder that writes cannot leave, whatever names are
	// asked for.
	OpenRoot(op, path string) (Root, error)
	// Free is the number of bytes an unprivileged writer can still put on
	// the file system that holds path.
	Free(op, path string) (int64, error)
}

// File is an open file.
type File interface {
	io.Reader
	io.Writer
	io.Seeker
	io.Closer
	Sync() error
	Truncate(size int64) error
	Stat() (fs.FileInfo, error)
}

// Root is an open folder whose methods refuse every path that leaves it, also
// through symbolic links; see os.Root.
type Root interface {
	MkdirAll(name string, perm fs.FileMode) error
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// SyncDir makes the names in the folder name (relative, "." for the root
	// itself) durable.
	SyncDir(name string) error
	Close() error
}

// OS is the machine's own file system.
type OS struct{}

var _ Disk = OS{}

func (OS) ReadFile(op, path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	return b, wrap(op, err)
}

func (OS) OpenFile(op, path string, flag int, perm fs.FileMode) (File, error) {
	f, err := os.OpenFile(path, flag, perm)
	if err != nil {
		return nil, wrap(op, err)
	}
	return f, nil
}

func (OS) MkdirAll(op, path string, perm fs.FileMode) error {
	return wrap(op, os.MkdirAll(path, perm))
}

func (OS) Rename(op, from, to string) error { return wrap(op, rename(from, to)) }

func (OS) Remove(op, path string) error {
	err := os.Remove(path)
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
	return wrap(r.op, r.root.MkdirAll(name, perm))
}

func (r osRoot) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := r.root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, wrap(r.op, err)
	}
	return f, nil
}

func (r osRoot) SyncDir(name string) error { return wrap(r.op, syncDirIn(r.root, name)) }
func (r osRoot) Close() error              { return wrap(r.op, r.root.Close()) }

// Error is a failed operation with the label it was made under. The cause,
// which names the path, is found by errors.Is and errors.As.
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
