package simdisk

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// FS is one file system. Processes reach it through a [FS.View].
type FS struct {
	mu sync.Mutex
	// nodes are the files, folders and links, by number. A node is never modified but
	// replaced, so that file systems share nodes and copying one costs no more than
	// copying this list.
	nodes []*node
	// now is the time of the call that is being made.
	now  time.Time
	tape *Tape // nil unless it is recorded
}

// ino is the number of a node. It stays the same when the file is renamed.
type ino int

const (
	noIno ino = iota // no node
	rootIno
)

// node is one state of a file, a folder or a symbolic link. Its names are in folders.
type node struct {
	state
	hash atomic.Pointer[[sha256.Size]byte] // cached
}

// state is what a node consists of. Its slices are never modified.
type state struct {
	mode  fs.FileMode
	mtime time.Time

	// For files.
	data   []byte // what programs read
	synced []byte // what fsync has made durable; nil if nothing
	// lastOff and lastLen are the last write, the one a power cut tears.
	lastOff, lastLen int

	target string // for links

	// For folders.
	names names    // what programs see
	kept  names    // what SyncDir has made durable
	log   []change // later changes of names, oldest first
}

// names are the names in a folder, sorted.
type names []binding

type binding struct {
	name string
	ino  ino
}

// change is one atomic change to the names of a folder. With noIno a name is removed.
type change []binding

// New returns an empty file system whose root folder is durable.
func New() *FS {
	f := &FS{now: time.Now(), nodes: make([]*node, rootIno)}
	f.add(f.folder(0o755))
	return f
}

func (f *FS) folder(perm fs.FileMode) state { return state{mode: fs.ModeDir | perm, mtime: f.now} }

func (s *state) isDir() bool  { return s.mode.IsDir() }
func (s *state) isLink() bool { return s.mode&fs.ModeSymlink != 0 }
func (s *state) dirty() bool  { return string(s.data) != string(s.synced) }

// add adds a node that has no name yet.
func (f *FS) add(s state) ino {
	f.nodes = append(f.nodes, &node{state: s})
	return ino(len(f.nodes) - 1)
}

// edit replaces a node by a changed copy.
func (f *FS) edit(i ino, change func(*state)) {
	s := f.nodes[i].state
	change(&s)
	f.nodes[i] = &node{state: s}
}

// rebind changes the names of a folder as programs see them, and logs the change, which is
// not durable.
func (f *FS) rebind(dir ino, c change) {
	f.edit(dir, func(s *state) {
		s.log = append(slices.Clip(s.log), c)
		s.mtime = f.now
		s.names = s.names.with(c)
	})
}

// with returns the names after a change.
func (n names) with(c change) names {
	n = slices.Clone(n)
	for _, b := range c {
		i, found := n.search(b.name)
		switch {
		case b.ino == noIno && found:
			n = slices.Delete(n, i, i+1)
		case b.ino == noIno:
		case found:
			n[i] = b
		default:
			n = slices.Insert(n, i, b)
		}
	}
	return n
}

func (n names) search(name string) (int, bool) {
	return slices.BinarySearchFunc(n, name, func(b binding, name string) int { return cmp.Compare(b.name, name) })
}

func (n names) get(name string) ino {
	if i, found := n.search(name); found {
		return n[i].ino
	}
	return noIno
}

// write writes p into a file at off. A power cut tears the last write, whose first done
// bytes were written before.
func (f *FS) write(i ino, off int, p []byte, done int) {
	f.edit(i, func(s *state) {
		data := make([]byte, max(len(s.data), off+len(p)))
		copy(data, s.data)
		copy(data[off:], p)
		s.data, s.lastOff, s.lastLen, s.mtime = data, off-done, len(p)+done, f.now
	})
}

func (f *FS) truncate(i ino, size int) {
	f.edit(i, func(s *state) {
		data := make([]byte, size)
		copy(data, s.data)
		s.data, s.lastOff, s.lastLen, s.mtime = data, size, 0, f.now
	})
}

func (f *FS) chmod(i ino, mode fs.FileMode) {
	f.edit(i, func(s *state) { s.mode = s.mode.Type() | mode.Perm() })
}

// sync makes the content of a file or the names in a folder durable.
func (f *FS) sync(i ino) {
	f.edit(i, func(s *state) {
		if s.isDir() {
			s.kept, s.log = s.names, nil
		} else {
			s.synced = s.data
		}
	})
}

// sum returns a hash of a node as programs observe it, without the names of a folder. It
// includes the times of files only, since no program reads those of folders.
func (n *node) sum() [sha256.Size]byte {
	if h := n.hash.Load(); h != nil {
		return *h
	}
	head := binary.BigEndian.AppendUint32(nil, uint32(n.mode))
	if !n.isDir() && !n.isLink() {
		head = binary.BigEndian.AppendUint64(head, uint64(n.mtime.UnixNano()))
	}
	h := sha256.Sum256(slices.Concat(head, []byte(n.target), n.data))
	n.hash.Store(&h)
	return h
}

// maxLinks bounds how many links one path may go through, as Linux does.
const maxLinks = 40

// place is the result of looking up a path: the folder, the name in it, and its node, which
// is noIno if the name does not exist.
type place struct {
	dir  ino
	name string
	ino  ino
}

// find looks up p, and follows a link at its end if follow is set. mu must be locked.
func (f *FS) find(p string, follow bool) (place, error) {
	todo := p
	stack := make([]ino, 1, 8)
	stack[0] = rootIno
	links := 0
	for {
		name, rest := next(todo)
		if name == "" {
			return place{dir: noIno, ino: stack[len(stack)-1]}, nil
		}
		todo = rest
		last, _ := next(todo)
		dir := stack[len(stack)-1]
		if !f.nodes[dir].isDir() {
			return place{}, syscall.ENOTDIR
		}
		if name == ".." {
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		i := f.nodes[dir].names.get(name)
		switch {
		case i == noIno && last != "":
			return place{}, syscall.ENOENT
		case i == noIno, last == "" && (!follow || !f.nodes[i].isLink()):
			return place{dir, name, i}, nil
		case f.nodes[i].isLink():
			if links++; links > maxLinks {
				return place{}, syscall.ELOOP
			}
			target := f.nodes[i].target
			if path.IsAbs(target) {
				stack = stack[:1]
			}
			todo = target + "/" + todo
		default:
			stack = append(stack, i)
		}
	}
}

// next splits the first name off a path. It is empty at the end.
func next(p string) (name, rest string) {
	for p != "" && (name == "" || name == ".") {
		name, p, _ = strings.Cut(p, "/")
	}
	if name == "." {
		name = ""
	}
	return name, p
}

// get looks up a path that must exist.
func (f *FS) get(p string, follow bool) (ino, error) {
	at, err := f.find(p, follow)
	if err == nil && at.ino == noIno {
		err = syscall.ENOENT
	}
	return at.ino, err
}

// stat returns the node at a path that must exist.
func (f *FS) stat(p string, follow bool) (*node, error) {
	i, err := f.get(p, follow)
	if err != nil {
		return nil, err
	}
	return f.nodes[i], nil
}

func (f *FS) mkdir(p string, perm fs.FileMode) error { return f.create(p, f.folder(perm)) }

func (f *FS) symlink(target, link string) error {
	return f.create(link, state{mode: fs.ModeSymlink | 0o777, mtime: f.now, target: target})
}

// create adds a node under a name that does not exist.
func (f *FS) create(p string, s state) error {
	at, err := f.find(p, false)
	switch {
	case err != nil:
		return err
	case at.ino != noIno:
		return syscall.EEXIST
	}
	f.rebind(at.dir, change{{at.name, f.add(s)}})
	return nil
}

func (f *FS) remove(p string) error {
	at, err := f.find(p, false)
	switch {
	case err != nil:
		return err
	case at.ino == noIno:
		return syscall.ENOENT
	case at.dir == noIno:
		return syscall.EBUSY
	case len(f.nodes[at.ino].names) > 0:
		return syscall.ENOTEMPTY
	}
	f.rebind(at.dir, change{{at.name, noIno}})
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
	case a.ino == noIno:
		return syscall.ENOENT
	case a.dir == noIno || b.dir == noIno:
		return syscall.EBUSY
	case b.ino != noIno && f.nodes[b.ino].isDir():
		return syscall.EEXIST // as in package os
	case a.ino == b.ino:
		return nil
	case b.ino != noIno && f.nodes[a.ino].isDir():
		return syscall.ENOTDIR
	case f.holds(a.ino, b.dir):
		return syscall.EINVAL
	}
	if a.dir == b.dir {
		f.rebind(a.dir, change{{a.name, noIno}, {b.name, a.ino}})
		return nil
	}
	// With two folders, either change may become durable first.
	f.rebind(b.dir, change{{b.name, a.ino}})
	f.rebind(a.dir, change{{a.name, noIno}})
	return nil
}

// holds reports whether dir is the folder top or below it. Paths do not show it: links may lie on them.
func (f *FS) holds(top, dir ino) bool {
	return top == dir || slices.ContainsFunc(f.nodes[top].names, func(b binding) bool { return f.holds(b.ino, dir) })
}
