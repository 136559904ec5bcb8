package simdisk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// Kind is what a call does to the disk.
type Kind int

// Kinds of calls.
const (
	Read   Kind = iota // leaves the disk as it is
	Change             // changes what programs see
	Sync               // makes something durable
)

// Call is one call to the disk, before it is made.
type Call struct {
	Op   string // the label of package disk
	Name string // create, write, sync, rename, …
	Path string // for a rename, the new name
	Kind Kind
	// Half is the second half of a write, whose first is done.
	Half bool
}

// NeedsSpace reports whether the call fails on a full disk.
func (c Call) NeedsSpace() bool {
	return c.Kind == Change && c.Name != "remove" && c.Name != "truncate"
}

// Hook is called before each call. If it returns an error, the call is not made; the call
// returns the error, unless it is [ErrSkip].
type Hook func(Call) error

// ErrSkip makes a call of kind [Sync] do nothing and succeed.
var ErrSkip = errors.New("skip this sync")

// View returns the file system as one process sees it.
func (f *FS) View(hook Hook) disk.Disk { return view{f, hook} }

// free is the free space of every simulated disk, which never fills up.
const free = 1 << 40

type view struct {
	fs   *FS
	hook Hook
}

// do calls the hook, and then act with mu locked. An act that changes the file system
// depends on nothing else and changes nothing else, so that a [Tape] can repeat it.
func (v view) do(c Call, act func(*FS) error) error {
	err := v.hook(c)
	if errors.Is(err, ErrSkip) && c.Kind == Sync {
		return nil
	}
	if err == nil {
		err = v.fs.act(c, act)
	}
	if err != nil {
		return &fs.PathError{Op: c.Name, Path: c.Path, Err: err}
	}
	return nil
}

func (f *FS) act(c Call, act func(*FS) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Kind != Read {
		f.now = time.Now()
		f.tape.add(c, f.now, act)
	}
	return act(f)
}

// lookup returns what is at a path, before a call.
func (f *FS) lookup(p string, follow bool) (*node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, err := f.find(p, follow)
	if err != nil || at.ino == noIno {
		return nil, err
	}
	return f.nodes[at.ino], nil
}

func label(op string, err error) error {
	if err == nil {
		return nil
	}
	return &disk.Error{Op: op, Err: err}
}

func (v view) ReadFile(op, p string) (data []byte, err error) {
	err = v.do(Call{Op: op, Name: "open", Path: p}, func(f *FS) error {
		n, err := f.stat(p, true)
		if err != nil {
			return err
		}
		if n.isDir() {
			return syscall.EISDIR
		}
		data = slices.Clone(n.data)
		return nil
	})
	return data, label(op, err)
}

func (v view) OpenFile(op, p string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := v.open(op, p, flag, perm)
	if err != nil {
		return nil, label(op, err)
	}
	return f, nil
}

func (v view) open(op, p string, flag int, perm fs.FileMode) (*file, error) {
	n, err := v.fs.lookup(p, flag&os.O_EXCL == 0)
	c := Call{Op: op, Name: "open", Path: p}
	switch {
	case err != nil:
	case n == nil && flag&os.O_CREATE != 0:
		c.Name, c.Kind = "create", Change
	case n != nil && flag&os.O_TRUNC != 0:
		c.Name, c.Kind = "truncate", Change
	}
	if err := v.do(c, func(f *FS) error { return f.open(p, flag, perm) }); err != nil {
		return nil, err
	}
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	i, err := v.fs.get(p, flag&os.O_EXCL == 0)
	if err != nil {
		return nil, &fs.PathError{Op: c.Name, Path: p, Err: err} // removed in between
	}
	return &file{v: v, op: op, path: p, ino: i, flag: flag}, nil
}

// open creates or truncates a file as the flags say.
func (f *FS) open(p string, flag int, perm fs.FileMode) error {
	at, err := f.find(p, flag&os.O_EXCL == 0)
	writing := flag&(os.O_WRONLY|os.O_RDWR) != 0
	switch {
	case err != nil:
		return err
	case at.ino == noIno && flag&os.O_CREATE == 0:
		return syscall.ENOENT
	case at.ino == noIno:
		f.rebind(at.dir, change{{at.name, f.add(state{mode: perm.Perm(), mtime: f.now})}})
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return syscall.EEXIST
	case f.nodes[at.ino].isDir() && writing:
		return syscall.EISDIR
	case flag&os.O_TRUNC != 0:
		f.truncate(at.ino, 0)
	}
	return nil
}

func (v view) MkdirAll(op, p string, perm fs.FileMode) error {
	return label(op, v.mkdirAll(op, p, perm))
}

func (v view) mkdirAll(op, p string, perm fs.FileMode) error {
	n, err := v.fs.lookup(p, true)
	switch {
	case err == nil && n != nil && n.isDir():
		// The hook is called all the same, since the call fails for a dead process.
		return v.do(Call{Op: op, Name: "mkdir", Path: p}, func(*FS) error { return nil })
	case err == nil && n != nil:
		return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
	case errors.Is(err, syscall.ENOENT):
		if err := v.mkdirAll(op, path.Dir(p), perm); err != nil {
			return err
		}
	case err != nil:
		return &fs.PathError{Op: "mkdir", Path: p, Err: err}
	}
	return v.do(Call{Op: op, Name: "mkdir", Path: p, Kind: Change}, func(f *FS) error {
		err := f.mkdir(p, perm)
		if n, _ := f.stat(p, true); n != nil && n.isDir() {
			return nil // also if another process has made it meanwhile
		}
		return err
	})
}

func (v view) Rename(op, from, to string) error {
	return label(op, v.do(Call{Op: op, Name: "rename", Path: to, Kind: Change}, func(f *FS) error { return f.rename(from, to) }))
}

func (v view) Remove(op, p string) error {
	// Removing a missing file changes nothing.
	n, err := v.fs.lookup(p, false)
	c := Call{Op: op, Name: "remove", Path: p, Kind: Change}
	if n == nil && (err == nil || errors.Is(err, syscall.ENOENT)) {
		c.Kind = Read
	}
	err = v.do(c, func(f *FS) error { return f.remove(p) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return label(op, err)
}

func (v view) RemoveAll(op, p string) error {
	n, _ := v.fs.lookup(p, false) // Remove returns the error
	if n != nil {
		for _, b := range n.names {
			if err := v.RemoveAll(op, path.Join(p, b.name)); err != nil {
				return err
			}
		}
	}
	return v.Remove(op, p)
}

func (v view) Symlink(op, target, link string) error {
	return label(op, v.do(Call{Op: op, Name: "symlink", Path: link, Kind: Change}, func(f *FS) error { return f.symlink(target, link) }))
}

func (v view) Readlink(op, link string) (target string, err error) {
	err = v.do(Call{Op: op, Name: "readlink", Path: link}, func(f *FS) error {
		n, err := f.stat(link, false)
		if err == nil && !n.isLink() {
			err = syscall.EINVAL
		}
		if err == nil {
			target = n.target
		}
		return err
	})
	return target, label(op, err)
}

func (v view) Lstat(op, p string) (fi fs.FileInfo, err error) {
	err = v.do(Call{Op: op, Name: "lstat", Path: p}, func(f *FS) error {
		n, err := f.stat(p, false)
		if err == nil {
			fi = n.info(path.Base(p))
		}
		return err
	})
	if err != nil {
		return nil, label(op, err)
	}
	return fi, nil
}

func (v view) ReadDir(op, p string) (entries []fs.DirEntry, err error) {
	err = v.do(Call{Op: op, Name: "readdir", Path: p}, func(f *FS) error {
		n, err := f.stat(p, true)
		if err != nil {
			return err
		}
		if !n.isDir() {
			return syscall.ENOTDIR
		}
		for _, b := range n.names {
			entries = append(entries, fs.FileInfoToDirEntry(f.nodes[b.ino].info(b.name)))
		}
		return nil
	})
	return entries, label(op, err)
}

func (v view) SyncDir(op, p string) error { return label(op, v.syncDir(op, p)) }

func (v view) syncDir(op, p string) error {
	return v.do(Call{Op: op, Name: "syncdir", Path: p, Kind: Sync}, func(f *FS) error {
		i, err := f.get(p, true)
		if err == nil {
			f.sync(i)
		}
		return err
	})
}

func (v view) Free(op, p string) (int64, error) {
	err := v.do(Call{Op: op, Name: "statfs", Path: p}, func(f *FS) error {
		_, err := f.get(p, true)
		return err
	})
	if err != nil {
		return 0, label(op, err)
	}
	return free, nil
}

func (v view) OpenRoot(op, p string) (disk.Root, error) {
	err := v.do(Call{Op: op, Name: "open", Path: p}, func(f *FS) error {
		n, err := f.stat(p, true)
		if err == nil && !n.isDir() {
			err = syscall.ENOTDIR
		}
		return err
	})
	if err != nil {
		return nil, label(op, err)
	}
	return root{v, op, p}, nil
}

// root is a folder that names cannot escape. It checks only names, since the unpacker
// creates no links in it.
type root struct {
	v    view
	op   string
	path string
}

func (r root) in(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &disk.Error{Op: r.op, Err: &fs.PathError{Op: "openat", Path: name, Err: errors.New("path escapes from parent")}}
	}
	return path.Join(r.path, name), nil
}

func (r root) MkdirAll(name string, perm fs.FileMode) error {
	p, err := r.in(name)
	if err != nil {
		return err
	}
	return r.v.MkdirAll(r.op, p, perm)
}

func (r root) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	p, err := r.in(name)
	if err != nil {
		return nil, err
	}
	return r.v.OpenFile(r.op, p, flag, perm)
}

func (r root) SyncDir(name string) error {
	p, err := r.in(name)
	if err != nil {
		return err
	}
	return r.v.SyncDir(r.op, p)
}

func (r root) Close() error { return nil }

func (v view) OpenFolder(op, p string) (disk.Folder, error) { return v.openFolder(op, p, true) }

func (v view) openFolder(op, p string, follow bool) (disk.Folder, error) {
	err := v.do(Call{Op: op, Name: "open", Path: p}, func(f *FS) error {
		n, err := f.stat(p, follow)
		switch {
		case err != nil:
			return err
		case n.isLink():
			return disk.ErrLink
		case !n.isDir():
			return disk.ErrNotFolder
		}
		return nil
	})
	if err != nil {
		return nil, label(op, err)
	}
	return folder{v, op, p}, nil
}

// folder is an open folder. It goes by its path, since nobody here renames a folder that another
// has open.
type folder struct {
	v    view
	op   string
	path string
}

func (d folder) Path() string             { return d.path }
func (d folder) at(name string) string    { return path.Join(d.path, name) }
func (d folder) Close() error             { return nil }
func (d folder) Sync() error              { return d.v.SyncDir(d.op, d.path) }
func (d folder) Remove(name string) error { return d.v.Remove(d.op, d.at(name)) }

func (d folder) OpenFolder(name string) (disk.Folder, error) {
	return d.v.openFolder(d.op, d.at(name), false)
}

func (d folder) MakeFolder(name string) (disk.Folder, error) {
	p := d.at(name)
	err := d.v.do(Call{Op: d.op, Name: "mkdir", Path: p, Kind: Change}, func(f *FS) error { return f.mkdir(p, 0o700) })
	if err != nil {
		return nil, label(d.op, err)
	}
	return d.OpenFolder(name)
}

func (d folder) Open(name string) (disk.File, error) {
	fi, err := d.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case fi.Mode()&fs.ModeSymlink != 0:
		err = disk.ErrLink
	case !fi.Mode().IsRegular():
		err = disk.ErrNotRegular
	}
	if err != nil {
		return nil, label(d.op, &fs.PathError{Op: "open", Path: d.at(name), Err: err})
	}
	return d.v.OpenFile(d.op, d.at(name), os.O_RDONLY, 0)
}

func (d folder) Create(name string, perm fs.FileMode) (disk.File, error) {
	return d.v.OpenFile(d.op, d.at(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
}

func (d folder) Rename(from, to string) error {
	return d.v.Rename(d.op, d.at(from), d.at(to))
}

func (d folder) RemoveAll(name string) error {
	return d.v.RemoveAll(d.op, d.at(name))
}

func (d folder) Symlink(target, name string) error {
	return d.v.Symlink(d.op, target, d.at(name))
}

func (d folder) Readlink(name string) (string, error)   { return d.v.Readlink(d.op, d.at(name)) }
func (d folder) Lstat(name string) (fs.FileInfo, error) { return d.v.Lstat(d.op, d.at(name)) }

// Stat follows a link by which the folder was opened.
func (d folder) Stat() (fi fs.FileInfo, err error) {
	err = d.self(func(f disk.File) error { fi, err = f.Stat(); return err })
	return fi, err
}

func (d folder) Names() (names []string, err error) {
	entries, err := d.v.ReadDir(d.op, d.path)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// self calls act with the folder as a file.
func (d folder) self(act func(disk.File) error) error {
	f, err := d.v.OpenFile(d.op, d.path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(act(f), f.Close())
}

func (d folder) Chmod(mode fs.FileMode) error {
	return d.self(func(f disk.File) error { return f.Chmod(mode) })
}

func (d folder) Chown(uid, gid int) error {
	return d.self(func(f disk.File) error { return f.Chown(uid, gid) })
}

// file is an open file. It remains usable after its name is removed.
type file struct {
	v      view
	op     string
	path   string
	ino    ino
	flag   int
	off    int64
	closed bool
}

var _ disk.File = (*file)(nil)

func (f *file) do(name string, kind Kind, half bool, act func(*FS) error) error {
	if f.closed {
		return &fs.PathError{Op: name, Path: f.path, Err: fs.ErrClosed}
	}
	return f.v.do(Call{Op: f.op, Name: name, Path: f.path, Kind: kind, Half: half}, act)
}

func (f *file) Read(p []byte) (n int, err error) {
	err = f.do("read", Read, false, func(disk *FS) error {
		node := disk.nodes[f.ino]
		if node.isDir() {
			return syscall.EISDIR
		}
		if f.off < int64(len(node.data)) {
			n = copy(p, node.data[f.off:])
		}
		f.off += int64(n)
		return nil
	})
	if err == nil && n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// Write is two calls, so that a process can die between them.
func (f *file) Write(p []byte) (int, error) {
	if f.flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return 0, &fs.PathError{Op: "write", Path: f.path, Err: syscall.EBADF}
	}
	if f.flag&os.O_APPEND != 0 && len(p) > 0 {
		if _, err := f.Seek(0, io.SeekEnd); err != nil {
			return 0, err
		}
	}
	// The caller may change p after the call, and a tape repeats it later.
	p = slices.Clone(p)
	done := 0
	for i, part := range [][]byte{p[:len(p)/2], p[len(p)/2:]} {
		if len(part) == 0 {
			continue
		}
		node, off, before := f.ino, int(f.off), done
		err := f.do("write", Change, i == 1 && done > 0, func(disk *FS) error {
			// A power cut tears the whole write, not one half of it.
			disk.write(node, off, part, before)
			return nil
		})
		if err != nil {
			return done, err
		}
		done += len(part)
		f.off += int64(len(part))
	}
	return done, nil
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	err := f.do("seek", Read, false, func(disk *FS) error {
		base := int64(0)
		switch whence {
		case io.SeekCurrent:
			base = f.off
		case io.SeekEnd:
			base = int64(len(disk.nodes[f.ino].data))
		}
		if base+offset < 0 {
			return syscall.EINVAL
		}
		f.off = base + offset
		return nil
	})
	return f.off, err
}

func (f *file) Truncate(size int64) error {
	node := f.ino
	return f.do("truncate", Change, false, func(disk *FS) error { disk.truncate(node, int(size)); return nil })
}

func (f *file) Chmod(mode fs.FileMode) error {
	node := f.ino
	return f.do("chmod", Change, false, func(disk *FS) error { disk.chmod(node, mode); return nil })
}

// Chown changes nothing: all files are of one account.
func (f *file) Chown(int, int) error {
	return f.do("chown", Change, false, func(*FS) error { return nil })
}

func (f *file) Sync() error {
	node := f.ino
	return f.do("sync", Sync, false, func(disk *FS) error { disk.sync(node); return nil })
}

func (f *file) Stat() (fi fs.FileInfo, err error) {
	err = f.do("stat", Read, false, func(disk *FS) error { fi = disk.nodes[f.ino].info(path.Base(f.path)); return nil })
	return fi, err
}

func (f *file) Close() error {
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.path, Err: fs.ErrClosed}
	}
	f.closed = true
	return nil
}

// info is the state of a node at the time of the call.
type info struct {
	name  string
	size  int64
	mode  fs.FileMode
	mtime time.Time
}

func (n *node) info(name string) info {
	size := len(n.data)
	if n.isLink() {
		size = len(n.target)
	}
	return info{name, int64(size), n.mode, n.mtime}
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.mtime }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }
