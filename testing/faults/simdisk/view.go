package simdisk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
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

// do calls the hook, and then act with mu locked.
func (v view) do(c Call, act func() error) error {
	err := v.hook(c)
	if errors.Is(err, ErrSkip) && c.Kind == Sync {
		return nil
	}
	if err == nil {
		v.fs.mu.Lock()
		err = act()
		v.fs.mu.Unlock()
	}
	if err != nil {
		return &fs.PathError{Op: c.Name, Path: c.Path, Err: err}
	}
	return nil
}

func label(op string, err error) error {
	if err == nil {
		return nil
	}
	return &disk.Error{Op: op, Err: err}
}

func (v view) ReadFile(op, p string) (data []byte, err error) {
	err = v.do(Call{Op: op, Name: "open", Path: p}, func() error {
		n, err := v.fs.get(p, true)
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
	v.fs.mu.Lock()
	at, err := v.fs.find(p, flag&os.O_EXCL == 0)
	v.fs.mu.Unlock()
	c := Call{Op: op, Name: "open", Path: p}
	switch {
	case err != nil:
	case at.node == nil && flag&os.O_CREATE != 0:
		c.Name, c.Kind = "create", Change
	case at.node != nil && flag&os.O_TRUNC != 0:
		c.Name, c.Kind = "truncate", Change
	}
	var n *node
	err = v.do(c, func() error {
		n, err = v.fs.openNode(p, flag, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &file{v: v, op: op, path: p, node: n, flag: flag}, nil
}

func (f *FS) openNode(p string, flag int, perm fs.FileMode) (*node, error) {
	at, err := f.find(p, flag&os.O_EXCL == 0)
	writing := flag&(os.O_WRONLY|os.O_RDWR) != 0
	switch {
	case err != nil:
		return nil, err
	case at.node == nil && flag&os.O_CREATE == 0:
		return nil, syscall.ENOENT
	case at.node == nil:
		at.node = &node{mode: perm.Perm(), mtime: time.Now()}
		at.dir.apply(change{{at.name, at.node}})
	case flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, syscall.EEXIST
	case at.node.isDir() && writing:
		return nil, syscall.EISDIR
	case flag&os.O_TRUNC != 0:
		at.node.truncate(0)
	}
	return at.node, nil
}

func (v view) MkdirAll(op, p string, perm fs.FileMode) error {
	return label(op, v.mkdirAll(op, p, perm))
}

func (v view) mkdirAll(op, p string, perm fs.FileMode) error {
	v.fs.mu.Lock()
	at, err := v.fs.find(p, true)
	v.fs.mu.Unlock()
	switch {
	case err == nil && at.node != nil && at.node.isDir():
		// The hook is called all the same, since the call fails for a dead process.
		return v.do(Call{Op: op, Name: "mkdir", Path: p}, func() error { return nil })
	case err == nil && at.node != nil:
		return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
	case errors.Is(err, syscall.ENOENT):
		if err := v.mkdirAll(op, path.Dir(p), perm); err != nil {
			return err
		}
	case err != nil:
		return &fs.PathError{Op: "mkdir", Path: p, Err: err}
	}
	return v.do(Call{Op: op, Name: "mkdir", Path: p, Kind: Change}, func() error { return v.fs.mkdir(p, perm) })
}

func (v view) Rename(op, from, to string) error {
	return label(op, v.do(Call{Op: op, Name: "rename", Path: to, Kind: Change}, func() error { return v.fs.rename(from, to) }))
}

func (v view) Remove(op, p string) error {
	// Removing a missing file changes nothing.
	v.fs.mu.Lock()
	_, err := v.fs.get(p, false)
	v.fs.mu.Unlock()
	c := Call{Op: op, Name: "remove", Path: p, Kind: Change}
	if errors.Is(err, syscall.ENOENT) {
		c.Kind = Read
	}
	err = v.do(c, func() error { return v.fs.remove(p) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return label(op, err)
}

func (v view) RemoveAll(op, p string) error {
	v.fs.mu.Lock()
	n, err := v.fs.get(p, false)
	var names []string
	if err == nil {
		for name := range n.names {
			names = append(names, name)
		}
	}
	v.fs.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		if err := v.RemoveAll(op, path.Join(p, name)); err != nil {
			return err
		}
	}
	return v.Remove(op, p)
}

func (v view) Symlink(op, target, link string) error {
	return label(op, v.do(Call{Op: op, Name: "symlink", Path: link, Kind: Change}, func() error { return v.fs.symlink(target, link) }))
}

func (v view) Readlink(op, link string) (target string, err error) {
	err = v.do(Call{Op: op, Name: "readlink", Path: link}, func() error {
		n, err := v.fs.get(link, false)
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
	err = v.do(Call{Op: op, Name: "lstat", Path: p}, func() error {
		n, err := v.fs.get(p, false)
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
	err = v.do(Call{Op: op, Name: "readdir", Path: p}, func() error {
		n, err := v.fs.get(p, true)
		if err != nil {
			return err
		}
		if !n.isDir() {
			return syscall.ENOTDIR
		}
		for name, child := range n.names {
			entries = append(entries, fs.FileInfoToDirEntry(child.info(name)))
		}
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		return nil
	})
	return entries, label(op, err)
}

func (v view) SyncDir(op, p string) error { return label(op, v.syncDir(op, p)) }

func (v view) syncDir(op, p string) error {
	return v.do(Call{Op: op, Name: "syncdir", Path: p, Kind: Sync}, func() error {
		n, err := v.fs.get(p, true)
		if err != nil {
			return err
		}
		if n.isDir() {
			n.syncNames()
		} else {
			n.syncFile()
		}
		return nil
	})
}

func (v view) Free(op, p string) (int64, error) {
	err := v.do(Call{Op: op, Name: "statfs", Path: p}, func() error {
		_, err := v.fs.get(p, true)
		return err
	})
	if err != nil {
		return 0, label(op, err)
	}
	return free, nil
}

func (v view) OpenRoot(op, p string) (disk.Root, error) {
	err := v.do(Call{Op: op, Name: "open", Path: p}, func() error {
		n, err := v.fs.get(p, true)
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

// file is an open file. It remains usable after its name is removed.
type file struct {
	v      view
	op     string
	path   string
	node   *node
	flag   int
	off    int64
	closed bool
}

var _ disk.File = (*file)(nil)

func (f *file) do(name string, kind Kind, half bool, act func() error) error {
	if f.closed {
		return &fs.PathError{Op: name, Path: f.path, Err: fs.ErrClosed}
	}
	return f.v.do(Call{Op: f.op, Name: name, Path: f.path, Kind: kind, Half: half}, act)
}

func (f *file) Read(p []byte) (n int, err error) {
	err = f.do("read", Read, false, func() error {
		if f.node.isDir() {
			return syscall.EISDIR
		}
		if f.off < int64(len(f.node.data)) {
			n = copy(p, f.node.data[f.off:])
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
	done := 0
	for i, part := range [][]byte{p[:len(p)/2], p[len(p)/2:]} {
		if len(part) == 0 {
			continue
		}
		err := f.do("write", Change, i == 1 && done > 0, func() error {
			if f.flag&os.O_APPEND != 0 {
				f.off = int64(len(f.node.data))
			}
			f.node.write(int(f.off), part)
			f.off += int64(len(part))
			// A power cut tears the whole write, not one half of it.
			f.node.lastOff, f.node.lastLen = f.node.lastOff-done, f.node.lastLen+done
			return nil
		})
		if err != nil {
			return done, err
		}
		done += len(part)
	}
	return done, nil
}

func (f *file) Seek(offset int64, whence int) (int64, error) {
	err := f.do("seek", Read, false, func() error {
		base := int64(0)
		switch whence {
		case io.SeekCurrent:
			base = f.off
		case io.SeekEnd:
			base = int64(len(f.node.data))
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
	return f.do("truncate", Change, false, func() error { f.node.truncate(int(size)); return nil })
}

func (f *file) Sync() error {
	return f.do("sync", Sync, false, func() error { f.node.syncFile(); return nil })
}

func (f *file) Stat() (fi fs.FileInfo, err error) {
	err = f.do("stat", Read, false, func() error { fi = f.node.info(path.Base(f.path)); return nil })
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
