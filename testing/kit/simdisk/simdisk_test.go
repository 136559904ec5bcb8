package simdisk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

func all(Call) error { return nil }

// The same calls have the same results on this file system and on the machine's own.
func TestFileSystemBehavesLikeARealDisk(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		top, err := os.MkdirTemp("", "simdisk")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(top)
		f := New()
		sides := []side{{disk.OS{}, top}, {f.View(all), "/"}}
		for range rapid.IntRange(1, 40).Draw(rt, "calls") {
			c := drawCall(rt)
			var said []string
			for _, s := range sides {
				said = append(said, c.do(s))
			}
			if said[0] != said[1] {
				rt.Fatalf("%s: on the machine's disk the result is %q, here %q", c, said[0], said[1])
			}
		}
		if real, sim := osTree(rt, top), f.Tree("/"); !maps.Equal(real, sim) {
			rt.Fatalf("the machine's disk has\n%q\nthis one has\n%q", real, sim)
		}
	})
}

type side struct {
	disk.Disk
	top string
}

type call struct{ name, a, b, data string }

func (c call) String() string { return fmt.Sprintf("%s %s %s %q", c.name, c.a, c.b, c.data) }

func drawCall(rt *rapid.T) call {
	file := rapid.SampledFrom([]string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "l", "l/a", "m"})
	return call{
		name: rapid.SampledFrom([]string{
			"write file", "append", "truncate", "exclusive", "mkdir", "rename", "remove", "remove all", "symlink", "point", "copy tree",
			"read", "readlink", "readdir", "lstat", "syncdir", "root", "folder",
		}).Draw(rt, "call"),
		a: file.Draw(rt, "a"), b: file.Draw(rt, "b"), data: rapid.StringN(0, 6, 6).Draw(rt, "data"),
	}
}

// do makes the call and returns its result as text, without the top folder.
func (c call) do(s side) string {
	a, b := filepath.Join(s.top, c.a), filepath.Join(s.top, c.b)
	switch c.name {
	case "write file":
		return kindOf(disk.WriteFile(s, "test", a, []byte(c.data), 0o600))
	case "append", "truncate", "exclusive":
		flag := map[string]int{"append": os.O_APPEND, "truncate": os.O_TRUNC, "exclusive": os.O_EXCL}[c.name]
		return c.write(s, a, flag)
	case "mkdir":
		return kindOf(s.MkdirAll("test", a, 0o700))
	case "rename":
		return kindOf(s.Rename("test", a, b))
	case "remove":
		return kindOf(s.Remove("test", a))
	case "remove all":
		return kindOf(s.RemoveAll("test", a))
	case "symlink":
		return kindOf(s.Symlink("test", c.b, a))
	case "point":
		return kindOf(disk.Point(s, "test", c.b, a))
	case "copy tree":
		if strings.HasPrefix(c.b+"/", c.a+"/") || strings.HasPrefix(c.a+"/", c.b+"/") || strings.ContainsAny(c.a+c.b, "lm") {
			return "" // a tree is never copied into itself
		}
		return kindOf(disk.CopyTree(context.Background(), s, "test", a, b))
	case "read":
		data, err := s.ReadFile("test", a)
		return string(data) + kindOf(err)
	case "readlink":
		target, err := s.Readlink("test", a)
		return target + kindOf(err)
	case "readdir":
		entries, err := s.ReadDir("test", a)
		out := kindOf(err)
		for _, e := range entries {
			out += fmt.Sprint(" ", e.Name(), e.Type())
		}
		return out
	case "lstat":
		fi, err := s.Lstat("test", a)
		if err != nil {
			return kindOf(err)
		}
		return fmt.Sprint(fi.Name(), fi.Mode(), fi.IsDir(), !fi.Mode().IsRegular() || fi.Size() == int64(len(c.data)))
	case "syncdir":
		return kindOf(s.SyncDir("test", a))
	case "folder":
		return c.inFolder(s, a)
	}
	return c.inRoot(s, a)
}

// inFolder makes all calls of a folder that change it, and one of those that read it.
func (c call) inFolder(s side, path string) string {
	d, err := s.OpenFolder("test", path)
	if err != nil {
		return kindOf(err)
	}
	defer d.Close()
	name := filepath.Base(c.b)
	opened := func(f interface{ Close() error }, err error) string {
		if err == nil {
			err = f.Close()
		}
		return kindOf(err)
	}
	var out []string
	switch len(c.data) {
	case 0:
		f, err := d.MakeFolder(name)
		out = append(out, opened(f, err), kindOf(d.Remove("a")), kindOf(d.Sync()))
	case 1:
		f, err := d.Create(name, 0o600)
		out = append(out, opened(f, err), kindOf(d.Chmod(0o700)))
	case 2:
		out = append(out, kindOf(d.Rename("a", name)), kindOf(d.Symlink("b", "a")))
	case 3:
		f, err := d.OpenFolder(name)
		out = append(out, opened(f, err), kindOf(d.RemoveAll(name)))
	case 4:
		f, err := d.Open(name)
		out = append(out, opened(f, err), kindOf(disk.WriteOwned(d, "test", name, []byte(c.data), 0o640, disk.Own)))
	default:
		target, err := d.Readlink(name)
		out = append(out, target, kindOf(err))
	}
	names, err := d.Names()
	slices.Sort(names)
	fi, serr := d.Stat()
	return fmt.Sprint(out, names, kindOf(err), serr == nil && fi.IsDir())
}

func (c call) write(s side, path string, flag int) string {
	f, err := s.OpenFile("test", path, os.O_RDWR|os.O_CREATE|flag, 0o600)
	if err != nil {
		return kindOf(err)
	}
	n, err := f.Write([]byte(c.data))
	at, serr := f.Seek(0, 1)
	return fmt.Sprint(n, kindOf(err), at, kindOf(serr), kindOf(f.Sync()), kindOf(f.Close()))
}

func (c call) inRoot(s side, path string) string {
	r, err := s.OpenRoot("test", path)
	if err != nil {
		return kindOf(err)
	}
	defer r.Close()
	if strings.ContainsAny(c.b, "lm") {
		return "" // roots have no links here, see root
	}
	return fmt.Sprint(kindOf(r.MkdirAll(c.b, 0o700)), kindOf(r.SyncDir(".")), r.MkdirAll("../x", 0o700) != nil)
}

// kindOf returns the kind of an error as callers of package disk distinguish it.
func kindOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, fs.ErrNotExist):
		return "not there"
	}
	return "error"
}

func osTree(rt *rapid.T, top string) map[string]string {
	out := map[string]string{}
	err := filepath.WalkDir(top, func(p string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(top, p)
		switch {
		case err != nil || rel == ".":
		case e.IsDir():
			out[rel] = "dir"
		case e.Type() == fs.ModeSymlink:
			target, _ := os.Readlink(p)
			out[rel] = "-> " + target
		default:
			fi, _ := e.Info()
			data, _ := os.ReadFile(p)
			out[rel] = fmt.Sprintf("%04o %s", fi.Mode().Perm(), data)
		}
		return err
	})
	if err != nil {
		rt.Fatal(err)
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Each cut of a short history leaves the expected files.
func TestAfterReturnsTheOutcomeOfACut(t *testing.T) {
	write := func(d disk.Disk, p, text string, sync bool) {
		f, err := d.OpenFile("test", p, os.O_WRONLY|os.O_CREATE, 0o600)
		must(t, err)
		_, err = f.Write([]byte(text))
		must(t, err)
		if sync {
			must(t, f.Sync())
		}
	}
	for _, c := range []struct {
		what    string
		history func(d disk.Disk)
		left    map[string]string // by cut: every name with its content
	}{
		{
			what:    "a file with nothing synced",
			history: func(d disk.Disk) { write(d, "/f", "abcdef", false) },
			left: map[string]string{
				"lose": "", "all-names+no-data": "f=", "all-names+cut-data": "f=abc", "all-names+half-data": "f=abc000",
				"all-names+zero-data": "f=000000", "all-names+whole-data": "f=abcdef", "no-names+whole-data": "",
			},
		},
		{
			what:    "a file whose content was synced, and not its name",
			history: func(d disk.Disk) { write(d, "/f", "abcdef", true) },
			left:    map[string]string{"lose": "", "all-names+no-data": "f=abcdef"},
		},
		{
			what: "a file whose name was synced, and not its content",
			history: func(d disk.Disk) {
				write(d, "/f", "abcdef", false)
				must(t, d.SyncDir("test", "/"))
			},
			left: map[string]string{"lose": "f=", "no-names+cut-data": "f=abc", "no-names+whole-data": "f=abcdef"},
		},
		{
			what: "a synced file that was written on",
			history: func(d disk.Disk) {
				write(d, "/f", "abc", true)
				must(t, d.SyncDir("test", "/"))
				write(d, "/f", "abXYZW", false)
			},
			left: map[string]string{
				"lose": "f=abc", "no-names+cut-data": "f=abX", "no-names+half-data": "f=abX000",
				"no-names+zero-data": "f=ab0000", "no-names+whole-data": "f=abXYZW",
			},
		},
		{
			what: "a synced file replaced by another, whose name was not synced",
			history: func(d disk.Disk) {
				write(d, "/f", "old", true)
				must(t, d.SyncDir("test", "/"))
				write(d, "/f.new", "new", true)
				must(t, d.Rename("test", "/f.new", "/f"))
			},
			left: map[string]string{
				"lose": "f=old", "all-names+no-data": "f=new",
				"first-name+no-data": "f=old f.new=new", "last-name+no-data": "f=new",
			},
		},
		{
			what: "a folder whose own name was not synced",
			history: func(d disk.Disk) {
				must(t, d.MkdirAll("test", "/d", 0o700))
				write(d, "/d/f", "abc", true)
				must(t, d.SyncDir("test", "/d"))
			},
			left: map[string]string{"lose": "", "all-names+no-data": "d/ d/f=abc"},
		},
		{
			what: "changes in two folders",
			history: func(d disk.Disk) {
				must(t, d.MkdirAll("test", "/d", 0o700))
				must(t, d.SyncDir("test", "/"))
				must(t, d.Symlink("test", "x", "/l"))
				must(t, d.Symlink("test", "y", "/d/m"))
			},
			left: map[string]string{
				"lose": "d/", "all-names+no-data": "d/ d/m->y l->x",
				"names-of-d+no-data": "d/ d/m->y", "names-not-of-d+no-data": "d/ l->x",
			},
		},
		{
			what: "a removal that was not synced",
			history: func(d disk.Disk) {
				write(d, "/f", "abc", true)
				must(t, d.SyncDir("test", "/"))
				must(t, d.Remove("test", "/f"))
			},
			left: map[string]string{"lose": "f=abc", "all-names+no-data": ""},
		},
		{
			what: "a file moved to another folder, which alone was synced",
			history: func(d disk.Disk) {
				must(t, d.MkdirAll("test", "/d", 0o700))
				write(d, "/f", "abc", true)
				must(t, d.SyncDir("test", "/"))
				must(t, d.Rename("test", "/f", "/d/f"))
				must(t, d.SyncDir("test", "/d"))
			},
			left: map[string]string{"lose": "d/ d/f=abc f=abc", "all-names+no-data": "d/ d/f=abc"},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			f := New()
			c.history(f.View(all))
			got := map[string]string{}
			for _, cut := range f.Cuts() {
				got[cut.String()] = listing(f.After(cut))
			}
			for cut, want := range c.left {
				if left, ok := got[cut]; !ok || left != want {
					t.Errorf("%s leaves %q (known: %t), want %q", cut, left, ok, want)
				}
			}
			if left := listing(f.Killed()); left != listing(f) {
				t.Errorf("the death of every process leaves %q, want %q", left, listing(f))
			}
		})
	}
}

func listing(f *FS) string {
	var out []string
	tree := f.Tree("/")
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		switch text := tree[name]; {
		case text == "dir":
			out = append(out, name+"/")
		case strings.HasPrefix(text, "-> "):
			out = append(out, name+"->"+text[3:])
		default:
			_, text, _ = strings.Cut(text, " ")
			out = append(out, name+"="+strings.ReplaceAll(text, "\x00", "0"))
		}
	}
	return strings.Join(out, " ")
}

// durable is one of package disk's durable writes, from an old state to a new.
type durable struct {
	name      string
	do        func(d disk.Disk, text string) error
	get       func(d disk.Disk) (string, error)
	redundant []string // syncs that can be left out, each with a reason in the test
}

const kind, version = "test", 1

var durables = []durable{
	{
		name: "WriteFile",
		do:   func(d disk.Disk, text string) error { return disk.WriteFile(d, "test", "/f", []byte(text), 0o600) },
		get: func(d disk.Disk) (string, error) {
			b, err := d.ReadFile("test", "/f")
			return string(b), err
		},
	},
	{
		name: "Point",
		do:   func(d disk.Disk, text string) error { return disk.Point(d, "test", text, "/l") },
		get:  func(d disk.Disk) (string, error) { return d.Readlink("test", "/l") },
	},
	{
		name: "WriteRecord",
		do:   func(d disk.Disk, text string) error { return disk.WriteRecord(d, "test", "/r", kind, version, text) },
		get: func(d disk.Disk) (string, error) {
			var s string
			return s, disk.ReadRecord(d, "test", "/r", kind, version, &s)
		},
		// If a missing sync damages the record, it is read from its copy; if it damages
		// the copy, the record is intact.
		redundant: []string{"sync /r.prev.new", "syncdir / of /r.prev"},
	},
}

// After a power cut at any time the old or the new state is read, and the new one if the
// call has returned. Without one of the syncs the test fails.
func TestDurableWritesSurviveEveryCut(t *testing.T) {
	for _, w := range durables {
		t.Run(w.name, func(t *testing.T) {
			for _, bad := range w.interrupt(t, 0) {
				t.Error(bad)
			}
			syncs := w.syncs(t)
			if len(syncs) == 0 {
				t.Fatal("nothing is synced")
			}
			for i, name := range syncs {
				found := w.interrupt(t, i+1)
				if expected := !slices.Contains(w.redundant, name); (len(found) > 0) != expected {
					t.Errorf("without %q: bad ends %v, want some: %t", name, found, expected)
				}
			}
		})
	}
}

// syncs are the syncs of the second write, by name.
func (w durable) syncs(t *testing.T) []string {
	t.Helper()
	var out []string
	last := ""
	w.write(t, func(f *FS, c Call) error {
		if c.Name == "rename" {
			last = c.Path
		}
		if c.Kind == Sync {
			name := c.Name + " " + c.Path
			if c.Name == "syncdir" && strings.HasSuffix(last, ".prev") {
				name += " of " + last
			}
			out = append(out, name)
		}
		return nil
	})
	return out
}

// write makes the write twice, the second time with hook.
func (w durable) write(t *testing.T, hook func(*FS, Call) error) *FS {
	t.Helper()
	f := New()
	must(t, w.do(f.View(all), "old"))
	f.SyncAll()
	must(t, w.do(f.View(func(c Call) error { return hook(f, c) }), "new"))
	return f
}

// interrupt cuts the power before every call, without the n-th sync (from 1; 0 means with
// all syncs), and returns the violations.
func (w durable) interrupt(t *testing.T, skip int) (bad []string) {
	t.Helper()
	check := func(f *FS, when string, allowed ...string) {
		for _, cut := range f.Cuts() {
			got, err := w.get(f.After(cut).View(all))
			if err != nil || !slices.Contains(allowed, got) {
				bad = append(bad, fmt.Sprintf("%s, %s: %q, %v", when, cut, got, err))
			}
		}
	}
	n := 0
	f := w.write(t, func(f *FS, c Call) error {
		check(f, "before "+c.Name+" "+path.Base(c.Path), "old", "new")
		if c.Kind == Sync {
			if n++; n == skip {
				return ErrSkip
			}
		}
		return nil
	})
	check(f, "after the call", "new")
	return bad
}

func TestWriteIsTwoCalls(t *testing.T) {
	f := New()
	var calls []string
	var half string
	d := f.View(func(c Call) error {
		calls = append(calls, fmt.Sprint(c.Name, c.Half))
		if c.Half {
			half = listing(f.Killed())
		}
		return nil
	})
	must(t, disk.WriteFile(d, "test", "/f", []byte("abcd"), 0o600))
	if half != "f.new=ab" {
		t.Errorf("half way the disk holds %q", half)
	}
	want := []string{"removefalse", "createfalse", "writefalse", "writetrue", "syncfalse", "renamefalse", "syncdirfalse"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
}

// A clone is independent, and has the same changes that are not durable.
func TestCloneIsIndependent(t *testing.T) {
	f := New()
	d := f.View(all)
	must(t, disk.WriteFile(d, "test", "/f", []byte("old"), 0o600))
	must(t, d.Rename("test", "/f", "/g"))
	c := f.Clone()
	must(t, d.Remove("test", "/g"))
	must(t, d.SyncDir("test", "/"))
	if got := listing(c.After(Lose)); got != "f=old" {
		t.Errorf("the clone loses to %q", got)
	}
	if got := listing(c); got != "g=old" || c.Sum() == f.Sum() {
		t.Errorf("the clone holds %q", got)
	}
}

// A tape that is played without a sync leaves what the same calls without it leave.
func TestTapeWithoutASyncEqualsARunWithoutIt(t *testing.T) {
	skip := func(c Call) bool { return c.Name == "sync" }
	history := func(f *FS, hook Hook) {
		d := f.View(hook)
		must(t, disk.WriteFile(d, "test", "/f", []byte("old"), 0o600))
		must(t, disk.WriteFile(d, "test", "/f", []byte("new one"), 0o600))
		must(t, d.Remove("test", "/f"))
	}
	recorded, run := New(), New()
	tape := recorded.Record()
	history(recorded, all)
	var want []*FS
	history(run, func(c Call) error {
		if c.Kind != Read {
			want = append(want, run.Clone())
		}
		if skip(c) {
			return ErrSkip
		}
		return nil
	})
	var after []int
	for n := range want {
		after = append(after, n)
	}
	for n, played := range tape.Play(after, skip) {
		if got, want := fmt.Sprint(outcomes(played)), fmt.Sprint(outcomes(want[n])); got != want {
			t.Errorf("before call %d the tape leaves %s, want %s", n, got, want)
		}
		if !played.Same(want[n]) {
			t.Errorf("before call %d the disks count as different", n)
		}
	}
	if with := tape.Play(after, func(Call) bool { return false }); with[len(with)-1].Same(want[len(want)-1]) {
		t.Error("the sync makes no difference")
	}
}

// outcomes lists what every cut leaves.
func outcomes(f *FS) []string {
	var out []string
	for _, c := range f.Cuts() {
		out = append(out, c.String()+": "+listing(f.After(c)))
	}
	return out
}
