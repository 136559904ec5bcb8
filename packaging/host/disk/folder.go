package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Folder is an open folder. Each name is one name in it, without a slash, and no method follows a
// link at that name. So nobody who renames folders or puts links into them can have a call reach
// another folder: the caller goes down name by name.
type Folder interface {
	// Path is what the folder was opened by, for messages.
	Path() string
	// OpenFolder opens a folder in this one.
	OpenFolder(name string) (Folder, error)
	// MakeFolder makes a folder of mode 0700 and opens it. It fails if somebody has put another folder
	// in its place before it was opened.
	MakeFolder(name string) (Folder, error)
	// Open opens a regular file for reading.
	Open(name string) (File, error)
	// Create makes a file that does not exist.
	Create(name string, perm fs.FileMode) (File, error)
	// Rename replaces to if it exists.
	Rename(from, to string) error
	// Remove and RemoveAll return nil if the name does not exist.
	Remove(name string) error
	RemoveAll(name string) error
	Symlink(target, name string) error
	Readlink(name string) (string, error)
	Lstat(name string) (fs.FileInfo, error)
	Names() ([]string, error)
	// Stat, Chmod, Chown and Sync are about the folder itself.
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	Chown(uid, gid int) error
	Sync() error
	Close() error
}

// Why a name in a Folder is not opened.
var (
	ErrLink       = errors.New("is a symbolic link")
	ErrNotFolder  = errors.New("is no folder")
	ErrNotRegular = errors.New("is no regular file")
	ErrReplaced   = errors.New("was replaced while it was opened")
)

// SetOwner gives a folder its mode and its owner.
func SetOwner(f Folder, mode fs.FileMode, owner Owner) error {
	// The mode comes last, since a change of the owner removes setuid and setgid.
	if owner != Own {
		if err := f.Chown(owner.UID, owner.GID); err != nil {
			return err
		}
	}
	return f.Chmod(mode)
}

// WriteOwned is [WriteFile] in an open folder, with an owner, and with a mode that the umask does not
// change. The file has both before it has its name.
func WriteOwned(f Folder, op, name string, data []byte, perm fs.FileMode, owner Owner) error {
	return replace(f, op, name, data, 0o600, func(made File) error {
		if owner != Own {
			if err := made.Chown(owner.UID, owner.GID); err != nil {
				return err
			}
		}
		return made.Chmod(perm)
	})
}

// OpenFolder opens a folder by its path, whose links it follows.
func (OS) OpenFolder(op, path string) (Folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, wrap(op, err)
	}
	return &osFolder{op, path, root}, nil
}

// osFolder passes os.Root only one name at a time. A Root follows links that stay below it, which here
// may lead to a folder beside the wanted one. So what is opened is compared with what has the name.
type osFolder struct {
	op, path string
	root     *os.Root
}

func (f *osFolder) Path() string { return f.path }

// fail labels an error, and gives it the whole path.
func (f *osFolder) fail(name string, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = &fs.PathError{Op: pe.Op, Path: filepath.Join(f.path, name), Err: pe.Err}
	}
	return wrap(f.op, err)
}

func (f *osFolder) refuse(name string, err error) error {
	return f.fail(name, &fs.PathError{Op: "open", Path: name, Err: err})
}

// one returns an error unless name is one name.
func one(name string) error {
	if !filepath.IsLocal(name) || name == "." || filepath.Base(name) != name {
		return fmt.Errorf("%q is not one name in a folder", name)
	}
	return nil
}

func (f *osFolder) OpenFolder(name string) (Folder, error) {
	has, err := f.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case has.Mode()&fs.ModeSymlink != 0:
		return nil, f.refuse(name, ErrLink)
	case !has.IsDir():
		return nil, f.refuse(name, ErrNotFolder)
	}
	root, err := f.root.OpenRoot(name)
	if err != nil {
		return nil, f.fail(name, err)
	}
	opened, err := root.Stat(".")
	if err := f.sameOrClose(name, has, opened, err, root); err != nil {
		return nil, err
	}
	return &osFolder{f.op, filepath.Join(f.path, name), root}, nil
}

// sameOrClose returns nil if what was opened as c is what had the name. Otherwise it closes c and returns
// why; err is that of reading opened.
func (f *osFolder) sameOrClose(name string, has, opened fs.FileInfo, err error, c io.Closer) error {
	switch {
	case err != nil:
		err = f.fail(name, err)
	case !os.SameFile(has, opened):
		err = f.refuse(name, ErrReplaced)
	default:
		return nil
	}
	return errors.Join(err, c.Close())
}

func (f *osFolder) MakeFolder(name string) (Folder, error) {
	if err := one(name); err != nil {
		return nil, wrap(f.op, err)
	}
	if err := f.root.Mkdir(name, 0o700); err != nil {
		return nil, f.fail(name, err)
	}
	made, err := f.OpenFolder(name)
	if err != nil {
		return nil, err
	}
	if !made.(*osFolder).isNew() {
		return nil, errors.Join(f.refuse(name, ErrReplaced), made.Close())
	}
	return made, nil
}

// isNew reports whether the folder is empty and of this process's account. Somebody who owns the
// folder above may have put another one in its place, and if that is new as well, nothing is lost.
func (f *osFolder) isNew() bool {
	d, err := f.root.Open(".")
	if err != nil {
		return false
	}
	defer d.Close()
	fi, err := d.Stat()
	if err != nil {
		return false
	}
	if owner := OwnerOf(fi); owner != Own && owner.UID != os.Geteuid() {
		return false
	}
	_, err = d.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

func (f *osFolder) Open(name string) (File, error) {
	has, err := f.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case has.Mode()&fs.ModeSymlink != 0:
		return nil, f.refuse(name, ErrLink)
	case !has.Mode().IsRegular():
		return nil, f.refuse(name, ErrNotRegular)
	}
	// A pipe that has taken the name since would be waited for.
	file, err := f.root.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, f.fail(name, err)
	}
	opened, err := file.Stat()
	if err := f.sameOrClose(name, has, opened, err, file); err != nil {
		return nil, err
	}
	return file, nil
}

func (f *osFolder) Create(name string, perm fs.FileMode) (File, error) {
	if err := one(name); err != nil {
		return nil, wrap(f.op, err)
	}
	file, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm) // O_EXCL follows no link
	if err != nil {
		return nil, f.fail(name, err)
	}
	return file, nil
}

func (f *osFolder) Rename(from, to string) error {
	if err := errors.Join(one(from), one(to)); err != nil {
		return wrap(f.op, err)
	}
	return f.fail(to, f.root.Rename(from, to))
}

func (f *osFolder) Remove(name string) error {
	if err := one(name); err != nil {
		return wrap(f.op, err)
	}
	if err := f.root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return f.fail(name, err)
	}
	return nil
}

func (f *osFolder) RemoveAll(name string) error {
	if err := one(name); err != nil {
		return wrap(f.op, err)
	}
	return f.fail(name, f.root.RemoveAll(name))
}

func (f *osFolder) Symlink(target, name string) error {
	if err := one(name); err != nil {
		return wrap(f.op, err)
	}
	return f.fail(name, f.root.Symlink(target, name))
}

func (f *osFolder) Readlink(name string) (string, error) {
	if err := one(name); err != nil {
		return "", wrap(f.op, err)
	}
	target, err := f.root.Readlink(name)
	return target, f.fail(name, err)
}

func (f *osFolder) Lstat(name string) (fs.FileInfo, error) {
	if err := one(name); err != nil {
		return nil, wrap(f.op, err)
	}
	fi, err := f.root.Lstat(name)
	return fi, f.fail(name, err)
}

// self calls act with the folder as a file.
func (f *osFolder) self(act func(*os.File) error) error {
	d, err := f.root.Open(".")
	if err != nil {
		return f.fail(".", err)
	}
	return f.fail(".", errors.Join(act(d), d.Close()))
}

func (f *osFolder) Names() (names []string, err error) {
	err = f.self(func(d *os.File) error { names, err = d.Readdirnames(-1); return err })
	return names, err
}

func (f *osFolder) Stat() (fs.FileInfo, error) {
	fi, err := f.root.Stat(".")
	return fi, f.fail(".", err)
}

func (f *osFolder) Chmod(mode fs.FileMode) error {
	return f.self(func(d *os.File) error { return d.Chmod(mode) })
}

func (f *osFolder) Chown(uid, gid int) error {
	return f.self(func(d *os.File) error { return d.Chown(uid, gid) })
}

func (f *osFolder) Sync() error { return f.fail(".", syncDirIn(f.root, ".")) }

func (f *osFolder) Close() error { return f.root.Close() }
