package simdisk

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// FS is one file system. Processes reach it through a [FS.View].
type FS struct {
	mu   sync.Mutex
	root *node
}

// node is a file, a folder or a symbolic link. Its names are in folders.
type node struct {
	mode  fs.FileMode
	mtime time.Time

	// For files. Slices are never modified, so clones may share them.
	data   []byte // what programs read
	synced []byte // what fsync has made durable; nil if nothing
	// lastOff and lastLen are the last write, the one a power cut tears.
	lastOff, lastLen int

	target string // for links

	// For folders.
	names map[string]*node // what programs see
	kept  map[string]*node // what SyncDir has made durable
	log   []change         // later changes of names, oldest first
}

// change is one atomic change to the names of a folder. A nil node means that the name is
// removed.
type change []binding

type binding struct {
	name string
	node *node
}

// New returns an empty file system whose root folder is durable.
func New() *FS { return &FS{root: folder(0o755)} }

func folder(perm fs.FileMode) *node {
	return &node{mode: fs.ModeDir | perm, mtime: time.Now(), names: map[string]*node{}, kept: map[string]*node{}}
}

func (n *node) isDir() bool  { return n.mode.IsDir() }
func (n *node) isLink() bool { return n.mode&fs.ModeSymlink != 0 }

// apply changes names as programs see them, and logs the change, which is not durable.
func (n *node) apply(c change) {
	n.log = append(slices.Clip(n.log), c)
	n.mtime = time.Now()
	bind(n.names, c)
}

func bind(names map[string]*node, c change) {
	for _, b := range c {
		if b.node == nil {
			delete(names, b.name)
		} else {
			names[b.name] = b.node
		}
	}
}

// write writes p into a file at off.
func (n *node) write(off int, p []byte) {
	data := make([]byte, max(len(n.data), off+len(p)))
	copy(data, n.data)
	copy(data[off:], p)
	n.data, n.lastOff, n.lastLen, n.mtime = data, off, len(p), time.Now()
}

func (n *node) truncate(size int) {
	data := make([]byte, size)
	copy(data, n.data)
	n.data, n.lastOff, n.lastLen, n.mtime = data, size, 0, time.Now()
}

func (n *node) syncFile() { n.synced = n.data }

func (n *node) syncNames() { n.kept, n.log = maps.Clone(n.names), nil }

// maxLinks bounds how many links one path may go through, as Linux does.
const maxLinks = 40

// place is the result of looking up a path: the folder, the name in it, and its node, which
// is nil if the name does not exist.
type place struct {
	dir  *node
	name string
	node *node
}

// find looks up p, and follows a link at its end if follow is set. mu must be locked.
func (f *FS) find(p string, follow bool) (place, error) {
	todo := parts(p)
	stack := []*node{f.root}
	links := 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		dir := stack[len(stack)-1]
		if !dir.isDir() {
			return place{}, syscall.ENOTDIR
		}
		if name == ".." {
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		next := dir.names[name]
		switch {
		case next == nil && len(todo) > 0:
			return place{}, syscall.ENOENT
		case next == nil, len(todo) == 0 && (!follow || !next.isLink()):
			return place{dir, name, next}, nil
		case next.isLink():
			if links++; links > maxLinks {
				return place{}, syscall.ELOOP
			}
			if path.IsAbs(next.target) {
				stack = stack[:1]
			}
			todo = append(parts(next.target), todo...)
		default:
			stack = append(stack, next)
		}
	}
	return place{dir: nil, name: "", node: stack[len(stack)-1]}, nil
}

func parts(p string) []string {
	return slices.DeleteFunc(strings.Split(p, "/"), func(s string) bool { return s == "" || s == "." })
}

// get looks up a path that must exist.
func (f *FS) get(p string, follow bool) (*node, error) {
	at, err := f.find(p, follow)
	if err == nil && at.node == nil {
		err = syscall.ENOENT
	}
	return at.node, err
}

func (f *FS) mkdir(p string, perm fs.FileMode) error {
	at, err := f.find(p, false)
	switch {
	case err != nil:
		return err
	case at.node != nil:
		return syscall.EEXIST
	}
	at.dir.apply(change{{at.name, folder(perm)}})
	return nil
}

func (f *FS) symlink(target, link string) error {
	at, err := f.find(link, false)
	switch {
	case err != nil:
		return err
	case at.node != nil:
		return syscall.EEXIST
	}
	at.dir.apply(change{{at.name, &node{mode: fs.ModeSymlink | 0o777, mtime: time.Now(), target: target}}})
	return nil
}

func (f *FS) remove(p string) error {
	at, err := f.find(p, false)
	switch {
	case err != nil:
		return err
	case at.node == nil:
		return syscall.ENOENT
	case at.dir == nil:
		return syscall.EBUSY
	case len(at.node.names) > 0:
		return syscall.ENOTEMPTY
	}
	at.dir.apply(change{{at.name, nil}})
	return nil
}

func (f *FS) rename(from, to string) error {
	a, err := f.find(from, false)
	if err != nil {
		return err
	}
	b, err := f.find(to, false)
	switch {
	case err != nil:
		return err
	case a.node == nil:
		return syscall.ENOENT
	case a.dir == nil || b.dir == nil:
		return syscall.EBUSY
	case b.node != nil && b.node.isDir():
		return syscall.EEXIST // as in package os
	case a.node == b.node:
		return nil
	case b.node != nil && a.node.isDir():
		return syscall.ENOTDIR
	case strings.HasPrefix(path.Clean(to)+"/", path.Clean(from)+"/"):
		return syscall.EINVAL
	}
	if a.dir == b.dir {
		a.dir.apply(change{{a.name, nil}, {b.name, a.node}})
		return nil
	}
	// With two folders, either change may become durable first.
	b.dir.apply(change{{b.name, a.node}})
	a.dir.apply(change{{a.name, nil}})
	return nil
}
