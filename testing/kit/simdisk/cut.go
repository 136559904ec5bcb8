package simdisk

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
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
	d.look(f, rootIno, "/", make([]bool, len(f.nodes)))
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
func (d *dirt) look(f *FS, i ino, at string, seen []bool) {
	if seen[i] {
		return
	}
	seen[i] = true
	n := f.nodes[i]
	if !n.isDir() {
		d.data = d.data || n.dirty()
		return
	}
	if len(n.log) > 0 {
		d.folders[at] = true
		d.several = d.several || len(n.log) > 1
	}
	for _, names := range n.generations() {
		for _, b := range names {
			if b.ino != noIno {
				d.look(f, b.ino, path.Join(at, b.name), seen)
			}
		}
	}
}

// generations returns the possible names in a folder after a cut.
func (n *node) generations() []names {
	all := []names{n.names}
	if len(n.log) > 0 {
		all = append(all, n.kept)
	}
	for _, c := range n.log {
		all = append(all, names(c))
	}
	return all
}

// After returns a new file system with the outcome c. Everything on it is durable.
func (f *FS) After(c Cut) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := &FS{nodes: make([]*node, len(f.nodes)), now: f.now}
	var build func(i ino, at string)
	build = func(i ino, at string) {
		if left.nodes[i] != nil {
			return
		}
		n := f.nodes[i]
		left.nodes[i] = n.after(c, at)
		for _, b := range left.nodes[i].names {
			build(b.ino, path.Join(at, b.name))
		}
	}
	build(rootIno, "/")
	return left
}

// after returns the node at a path after a cut, which is the same one if it was durable.
func (n *node) after(c Cut, at string) *node {
	if len(n.log) == 0 && !n.dirty() {
		return n
	}
	s := state{mode: n.mode, mtime: n.mtime, target: n.target}
	if n.isDir() {
		s.names = c.namesOf(n, at)
		s.kept = s.names
	} else {
		s.data = c.content(n)
		s.synced = s.data
	}
	return &node{state: s}
}

func (c Cut) namesOf(n *node, at string) names {
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
	case firstNames:
		return n.kept.with(n.log[0])
	case lastNames:
		return n.kept.with(n.log[len(n.log)-1])
	}
	return n.kept
}

func (c Cut) content(n *node) []byte {
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
	copied, _ := f.Snapshot()
	return copied
}

// Killed returns a new file system after the death of every process: the system's cache
// reaches the disk.
func (f *FS) Killed() *FS { return f.After(Cut{names: allNames, data: wholeData}) }

// SyncAll makes everything durable.
func (f *FS) SyncAll() {
	synced := f.Killed()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes = synced.nodes
}

// Sum returns a hash of everything that programs can observe.
func (f *FS) Sum() [sha256.Size]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []byte
	f.walk(rootIno, "/", func(p string, n *node) {
		sum := n.sum()
		all = append(append(append(all, p...), 0), sum[:]...)
	})
	return sha256.Sum256(all)
}

// walk visits everything that programs see from a node on, parents first. mu must be locked.
func (f *FS) walk(i ino, p string, visit func(p string, n *node)) {
	n := f.nodes[i]
	visit(p, n)
	for _, b := range n.names {
		f.walk(b.ino, strings.TrimSuffix(p, "/")+"/"+b.name, visit)
	}
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
	f.walk(top, "/", func(p string, n *node) {
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
