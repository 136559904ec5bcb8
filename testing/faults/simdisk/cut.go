package simdisk

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"path"
	"slices"
)

// Cut is one outcome of a power cut.
type Cut struct {
	names nameRule
	data  dataRule
	at    string // the folder of namesAt and namesNotAt
}

type nameRule int

const (
	noNames    nameRule = iota // changes that were not synced are lost
	allNames                   // all changes survive
	firstNames                 // the earliest change in each folder survives
	lastNames                  // the latest change in each folder survives
	namesAt                    // all changes in one folder survive, and no others
	namesNotAt                 // all changes except those in one folder survive
)

type dataRule int

const (
	noData    dataRule = iota // writes that were not synced are lost
	cutData                   // the file ends in the middle of the last write
	halfData                  // zeros from the middle of the last write on
	zeroData                  // zeros in place of writes that were not synced
	wholeData                 // all writes survive
)

var (
	nameWords = [...]string{"no-names", "all-names", "first-name", "last-name", "names-of", "names-not-of"}
	dataWords = [...]string{"no-data", "cut-data", "half-data", "zero-data", "whole-data"}
)

// Lose is the cut that undoes everything that was not synced.
var Lose = Cut{}

// String returns a name for tests, such as last-name+zero-data.
func (c Cut) String() string {
	if c == Lose {
		return "lose"
	}
	s := nameWords[c.names]
	if c.at != "" {
		s += "-" + path.Base(c.at)
	}
	return s + "+" + dataWords[c.data]
}

// Cuts returns the possible outcomes of a power cut now, Lose first, without those that
// cannot differ from an earlier one.
func (f *FS) Cuts() []Cut {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := dirt{folders: map[string]bool{}}
	d.look(f.root, "/", map[*node]bool{})
	names := []Cut{{names: noNames}}
	if len(d.folders) > 0 {
		names = append(names, Cut{names: allNames})
	}
	if d.several {
		names = append(names, Cut{names: firstNames}, Cut{names: lastNames})
	}
	if len(d.folders) > 1 {
		for _, at := range slices.Sorted(maps.Keys(d.folders)) {
			names = append(names, Cut{names: namesAt, at: at}, Cut{names: namesNotAt, at: at})
		}
	}
	datas := []dataRule{noData}
	if d.data {
		datas = []dataRule{noData, cutData, halfData, zeroData, wholeData}
	}
	var out []Cut
	for _, n := range names {
		for _, data := range datas {
			out = append(out, Cut{n.names, data, n.at})
		}
	}
	return out
}

// dirt describes the changes that are not durable.
type dirt struct {
	folders map[string]bool // with changed names
	several bool            // one of them was changed more than once
	data    bool
}

// look adds the changes to everything that programs see or that may reappear after a cut.
func (d *dirt) look(n *node, at string, seen map[*node]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	if !n.isDir() {
		d.data = d.data || !bytes.Equal(n.data, n.synced)
		return
	}
	if len(n.log) > 0 {
		d.folders[at] = true
		d.several = d.several || len(n.log) > 1
	}
	for _, names := range n.generations() {
		for name, child := range names {
			d.look(child, path.Join(at, name), seen)
		}
	}
}

// generations returns the possible maps of a folder's names after a cut.
func (n *node) generations() []map[string]*node {
	all := []map[string]*node{n.names, n.kept}
	for _, c := range n.log {
		m := map[string]*node{}
		bind(m, c)
		all = append(all, m)
	}
	return all
}

// After returns a new file system with the outcome c. Everything on it is durable.
func (f *FS) After(c Cut) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	made := map[*node]*node{}
	var build func(n *node, at string) *node
	build = func(n *node, at string) *node {
		if m := made[n]; m != nil {
			return m
		}
		m := &node{mode: n.mode, mtime: n.mtime, target: n.target}
		made[n] = m
		if !n.isDir() {
			m.data = c.content(n)
			m.synced = m.data
			return m
		}
		m.names = map[string]*node{}
		for name, child := range c.namesOf(n, at) {
			m.names[name] = build(child, path.Join(at, name))
		}
		m.kept = maps.Clone(m.names)
		return m
	}
	return &FS{root: build(f.root, "/")}
}

func (c Cut) namesOf(n *node, at string) map[string]*node {
	rule := c.names
	switch {
	case len(n.log) == 0:
		return n.kept
	case rule == namesAt && at == c.at, rule == namesNotAt && at != c.at:
		rule = allNames
	}
	switch rule {
	case allNames:
		return n.names
	case firstNames, lastNames:
		m := maps.Clone(n.kept)
		if rule == firstNames {
			bind(m, n.log[0])
		} else {
			bind(m, n.log[len(n.log)-1])
		}
		return m
	}
	return n.kept
}

func (c Cut) content(n *node) []byte {
	if bytes.Equal(n.data, n.synced) {
		return n.data
	}
	torn := min(n.lastOff+n.lastLen/2, len(n.data))
	switch c.data {
	case wholeData:
		return n.data
	case cutData:
		return n.data[:torn]
	case halfData:
		out := make([]byte, len(n.data))
		copy(out, n.data[:torn])
		return out
	case zeroData:
		out := make([]byte, len(n.data))
		// Synced data that was not overwritten is on the disk.
		for i := range min(len(n.synced), len(n.data)) {
			if n.synced[i] == n.data[i] {
				out[i] = n.data[i]
			}
		}
		return out
	}
	return n.synced
}

// Clone returns an independent copy, in which the same changes are durable.
func (f *FS) Clone() *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	made := map[*node]*node{}
	var clone func(n *node) *node
	cloneNames := func(names map[string]*node) map[string]*node {
		if names == nil {
			return nil
		}
		out := make(map[string]*node, len(names))
		for name, child := range names {
			out[name] = clone(child)
		}
		return out
	}
	clone = func(n *node) *node {
		if n == nil {
			return nil
		}
		if m := made[n]; m != nil {
			return m
		}
		m := &node{}
		*m = *n
		made[n] = m
		m.names, m.kept = cloneNames(n.names), cloneNames(n.kept)
		m.log = make([]change, len(n.log))
		for i, c := range n.log {
			m.log[i] = slices.Clone(c)
			for j := range m.log[i] {
				m.log[i][j].node = clone(m.log[i][j].node)
			}
		}
		return m
	}
	return &FS{root: clone(f.root)}
}

// Killed returns a new file system after the death of every process: the system's cache
// reaches the disk.
func (f *FS) Killed() *FS { return f.After(Cut{names: allNames, data: wholeData}) }

// SyncAll makes everything durable.
func (f *FS) SyncAll() {
	synced := f.Killed()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.root = synced.root
}

// Sum returns a hash of everything that programs can observe. It includes the times of
// files only, since no program reads those of folders.
func (f *FS) Sum() [sha256.Size]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := sha256.New()
	f.walk(func(p string, n *node) {
		fmt.Fprintf(h, "%q %v %q %x", p, n.mode, n.target, n.data)
		if !n.isDir() && !n.isLink() {
			fmt.Fprintf(h, " %d", n.mtime.UnixNano())
		}
		fmt.Fprintln(h)
	})
	return [sha256.Size]byte(h.Sum(nil))
}

// walk visits everything that programs see, parents first. mu must be locked.
func (f *FS) walk(visit func(p string, n *node)) {
	var walk func(p string, n *node)
	walk = func(p string, n *node) {
		visit(p, n)
		for _, name := range slices.Sorted(maps.Keys(n.names)) {
			walk(path.Join(p, name), n.names[name])
		}
	}
	walk("/", f.root)
}

// Tree returns everything that programs see below dir, by relative path: files as their
// mode and content, folders as "dir", links as "-> target".
func (f *FS) Tree(dir string) map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	top, err := f.get(dir, true)
	if err != nil {
		return out
	}
	(&FS{root: top}).walk(func(p string, n *node) {
		switch {
		case p == "/":
		case n.isDir():
			out[p[1:]] = "dir"
		case n.isLink():
			out[p[1:]] = "-> " + n.target
		default:
			out[p[1:]] = fmt.Sprintf("%04o %s", n.mode.Perm(), n.data)
		}
	})
	return out
}
