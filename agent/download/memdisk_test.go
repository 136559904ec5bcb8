package download

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// memDisk is a disk in memory that can fail, or simulate a kill or a power cut, at any call.
// It guarantees no more than POSIX: the content of a file is durable once the file was
// synced, and a name once its folder was. Each later change may survive or be lost.
type memDisk struct {
	disk.Disk // nil, so that a call without an implementation here panics
	t         testing.TB

	names, durable map[string]*inode
	folders        map[string]bool
	calls          []string
	failAt         int  // number of the call that fails, from 1; 0 for none
	dead           bool // every later call fails too
	// skip selects calls that return success without being executed.
	skip func(call string) bool
}

type inode struct {
	data, synced []byte
	changed      time.Time
	link         string
}

func newMemDisk(t testing.TB) *memDisk {
	return &memDisk{t: t, names: map[string]*inode{}, durable: map[string]*inode{}, folders: map[string]bool{"/": true}}
}

var errIO = &fs.PathError{Op: "test", Path: "p", Err: syscall.EIO}

// call records a call. skipped reports whether the call must do nothing.
func (m *memDisk) call(op, what, path string) (skipped bool, err error) {
	if op != op0 && op != opCheckpoint && op != opSource {
		m.t.Errorf("%s of %s has the label %q", what, path, op)
	}
	name := what + " " + filepath.Base(path)
	m.calls = append(m.calls, name)
	if n := len(m.calls); n == m.failAt || m.dead && m.failAt > 0 && n > m.failAt {
		return false, &disk.Error{Op: op, Err: errIO}
	}
	return m.skip != nil && m.skip(name), nil
}

const op0 = op // where a parameter shadows it

func (m *memDisk) put(path string, data []byte) {
	i := &inode{data: bytes.Clone(data), synced: bytes.Clone(data)}
	m.names[path], m.durable[path] = i, i
	m.folders[filepath.Dir(path)] = true
}

func notExist(op, path string) error {
	return &disk.Error{Op: op, Err: &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}}
}

func (m *memDisk) ReadFile(op, path string) ([]byte, error) {
	if _, err := m.call(op, "read", path); err != nil {
		return nil, err
	}
	if i := m.names[path]; i != nil {
		return bytes.Clone(i.data), nil
	}
	return nil, notExist(op, path)
}

func (m *memDisk) OpenFile(op, path string, flag int, _ fs.FileMode) (disk.File, error) {
	if _, err := m.call(op, "open", path); err != nil {
		return nil, err
	}
	i := m.names[path]
	switch {
	case i == nil && (flag&os.O_CREATE == 0 || !m.folders[filepath.Dir(path)]):
		return nil, notExist(op, path)
	case i == nil:
		i = &inode{}
		m.names[path] = i
	case flag&os.O_EXCL != 0:
		return nil, &disk.Error{Op: op, Err: fs.ErrExist}
	}
	return &memFile{disk: m, inode: i, op: op, path: path}, nil
}

func (m *memDisk) MkdirAll(op, path string, _ fs.FileMode) error {
	if _, err := m.call(op, "mkdir", path); err != nil {
		return err
	}
	m.folders[path] = true
	return nil
}

func (m *memDisk) Rename(op, from, to string) error {
	if _, err := m.call(op, "rename", to); err != nil {
		return err
	}
	if m.names[from] == nil {
		return notExist(op, from)
	}
	m.names[to] = m.names[from]
	delete(m.names, from)
	return nil
}

func (m *memDisk) Remove(op, path string) error {
	if _, err := m.call(op, "remove", path); err != nil {
		return err
	}
	delete(m.names, path)
	return nil
}

func (m *memDisk) Lstat(op, path string) (fs.FileInfo, error) {
	if _, err := m.call(op, "lstat", path); err != nil {
		return nil, err
	}
	if m.folders[path] {
		return memInfo{inode: &inode{}, dir: true}, nil
	}
	if i := m.names[path]; i != nil {
		return memInfo{inode: i}, nil
	}
	return nil, notExist(op, path)
}

func (m *memDisk) Readlink(op, path string) (string, error) {
	if _, err := m.call(op, "readlink", path); err != nil {
		return "", err
	}
	return m.names[path].link, nil
}

func (m *memDisk) SyncDir(op, path string) error {
	skipped, err := m.call(op, "syncdir", path)
	if err != nil || skipped {
		return err
	}
	maps.DeleteFunc(m.durable, func(name string, _ *inode) bool { return filepath.Dir(name) == path })
	for name, i := range m.names {
		if filepath.Dir(name) == path {
			m.durable[name] = i
		}
	}
	return nil
}

func (m *memDisk) Free(op, path string) (int64, error) {
	_, err := m.call(op, "free", path)
	return 1 << 40, err
}

// list returns every name in a folder.
func (m *memDisk) list(dir string) []string {
	var out []string
	for name := range m.names {
		if filepath.Dir(name) == dir {
			out = append(out, filepath.Base(name))
		}
	}
	slices.Sort(out)
	return out
}

// models are the possible states of a disk after a kill or a power cut.
var models = []string{"kill", "lose", "torn", "odd names", "even names"}

// after returns the disk as the next process finds it.
func (m *memDisk) after(model string) *memDisk {
	next := newMemDisk(m.t)
	next.folders = m.folders
	// A rename is done or not done: a file does not lose its old name without
	// getting the new one.
	moved := map[*inode]string{}
	for name, i := range m.names {
		if slices.Contains(slices.Collect(maps.Values(m.durable)), i) {
			moved[i] = name
		}
	}
	changed := 0
	for _, name := range slices.Sorted(maps.Keys(union(m.names, m.durable))) {
		now, safe := m.names[name], m.durable[name]
		keep := now // the file that the name refers to now
		if now != safe {
			changed++
			if model == "lose" || model == "odd names" && changed%2 == 0 || model == "even names" && changed%2 == 1 {
				keep = safe
			}
		}
		if keep != nil {
			next.put(name, keep.after(model))
			delete(moved, keep)
		}
	}
	for i, name := range moved {
		next.put(name, i.after(model))
	}
	return next
}

func (i *inode) after(model string) []byte {
	switch model {
	case "kill":
		return i.data
	case "torn":
		const sector = 512
		torn := make([]byte, len(i.data)) // zeros where nothing was synced
		for at := 0; at < min(len(i.data), len(i.synced)); at += sector {
			now, safe := i.data[at:min(at+sector, len(i.data))], i.synced[at:min(at+sector, len(i.synced))]
			if bytes.HasPrefix(safe, now) || bytes.HasPrefix(now, safe) {
				copy(torn[at:], safe[:min(len(now), len(safe))])
			}
		}
		return torn
	}
	return i.synced
}

func union(a, b map[string]*inode) map[string]*inode {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

type memFile struct {
	disk  *memDisk
	inode *inode
	op    string
	path  string
	at    int64
}

func (f *memFile) Read(p []byte) (int, error) {
	if _, err := f.disk.call(f.op, "read", f.path); err != nil {
		return 0, err
	}
	if f.at >= int64(len(f.inode.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.inode.data[f.at:])
	f.at += int64(n)
	return n, nil
}

func (f *memFile) Write(p []byte) (int, error) {
	_, err := f.disk.call(f.op, "write", f.path)
	if err != nil {
		p = p[:len(p)/2] // a failed write may have written a part
	}
	if end := f.at + int64(len(p)); end > int64(len(f.inode.data)) {
		f.inode.data = append(f.inode.data, make([]byte, end-int64(len(f.inode.data)))...)
	}
	copy(f.inode.data[f.at:], p)
	f.at += int64(len(p))
	return len(p), err
}

func (f *memFile) Seek(offset int64, whence int) (int64, error) {
	if _, err := f.disk.call(f.op, "seek", f.path); err != nil {
		return 0, err
	}
	switch whence {
	case io.SeekCurrent:
		offset += f.at
	case io.SeekEnd:
		offset += int64(len(f.inode.data))
	}
	f.at = offset
	return offset, nil
}

func (f *memFile) Sync() error {
	skipped, err := f.disk.call(f.op, "sync", f.path)
	if err == nil && !skipped {
		f.inode.synced = bytes.Clone(f.inode.data)
	}
	return err
}

func (f *memFile) Truncate(size int64) error {
	if _, err := f.disk.call(f.op, "truncate", f.path); err != nil {
		return err
	}
	if size > int64(len(f.inode.data)) {
		return errors.New("memDisk does not grow files")
	}
	f.inode.data = bytes.Clone(f.inode.data[:size])
	return nil
}

func (*memFile) Chmod(fs.FileMode) error { return nil }
func (*memFile) Chown(int, int) error    { return nil }

func (f *memFile) Stat() (fs.FileInfo, error) {
	_, err := f.disk.call(f.op, "stat", f.path)
	return memInfo{inode: f.inode}, err
}

func (f *memFile) Close() error {
	_, err := f.disk.call(f.op, "close", f.path)
	return err
}

type memInfo struct {
	*inode
	dir bool
}

func (i memInfo) Name() string       { return "" }
func (i memInfo) Size() int64        { return int64(len(i.data)) }
func (i memInfo) ModTime() time.Time { return i.changed }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	switch {
	case i.dir:
		return fs.ModeDir | 0o700
	case i.link != "":
		return fs.ModeSymlink | 0o777
	}
	return 0o600
}

// part returns how many bytes of "p" there are after a kill.
func (m *memDisk) part(dir string) int {
	for name, i := range m.names {
		if strings.HasPrefix(name, dir+"/p") && (name == dir+"/p" || name == dir+"/p"+partSuffix) {
			return len(i.data)
		}
	}
	return 0
}
