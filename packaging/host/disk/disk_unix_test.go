//go:build unix

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// recorder records each call that changes the disk. From call number crash on all
// calls fail, as after a crash.
type recorder struct {
	OS
	t     testing.TB
	calls []string
	crash int // number of the call that no longer happens, from 1; 0 for none
}

var errCrash = errors.New("crash")

func (r *recorder) step(op, what string, paths ...string) error {
	if r.crash > 0 && len(r.calls) >= r.crash {
		return errCrash
	}
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	r.calls = append(r.calls, strings.Join(append([]string{what}, paths...), " "))
	if op != "test" {
		r.t.Errorf("%s comes without its label but with %q", r.calls[len(r.calls)-1], op)
	}
	if len(r.calls) == r.crash {
		return errCrash
	}
	return nil
}

func (r *recorder) OpenFile(op, path string, flag int, perm fs.FileMode) (File, error) {
	if flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return r.OS.OpenFile(op, path, flag, perm)
	}
	if err := r.step(op, "open", path); err != nil {
		return nil, err
	}
	f, err := r.OS.OpenFile(op, path, flag, perm)
	if err != nil {
		return nil, err
	}
	return recordedFile{f, r, path}, nil
}

type recordedFile struct {
	File
	r    *recorder
	path string
}

func (f recordedFile) Write(p []byte) (int, error) {
	if err := f.r.step("test", "write", f.path); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

func (f recordedFile) Sync() error {
	if err := f.r.step("test", "sync", f.path); err != nil {
		return err
	}
	return f.File.Sync()
}

func (r *recorder) Rename(op, from, to string) error {
	if err := r.step(op, "rename", from, to); err != nil {
		return err
	}
	return r.OS.Rename(op, from, to)
}

func (r *recorder) Remove(op, path string) error {
	if err := r.step(op, "remove", path); err != nil {
		return err
	}
	return r.OS.Remove(op, path)
}

func (r *recorder) Symlink(op, target, link string) error {
	if err := r.step(op, "symlink", link); err != nil {
		return err
	}
	return r.OS.Symlink(op, target, link)
}

func (r *recorder) SyncDir(op, path string) error {
	if err := r.step(op, "syncdir"); err != nil {
		return err
	}
	return r.OS.SyncDir(op, path)
}

func TestWriteFileSyncsBeforeItRenames(t *testing.T) {
	r := &recorder{t: t}
	path := filepath.Join(t.TempDir(), "f")
	if err := WriteFile(r, "test", path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The content is durable before the rename, and the rename last.
	want := []string{"remove f.new", "open f.new", "write f.new", "sync f.new", "rename f.new f", "syncdir"}
	if !slices.Equal(r.calls, want) {
		t.Errorf("calls are %q, want %q", r.calls, want)
	}
}

// crashes runs do with a crash at each of its calls in turn, and check after each.
func crashes(t *testing.T, prepare func(path string), do func(d Disk, path string) error, check func(t *testing.T, path string, done bool)) {
	t.Helper()
	for n := 1; ; n++ {
		path := filepath.Join(t.TempDir(), "f")
		prepare(path)
		r := &recorder{t: t, crash: n}
		err := do(r, path)
		if err == nil {
			if n < 3 {
				t.Fatalf("only %d calls were seen", n-1)
			}
			check(t, path, true)
			return
		}
		if !errors.Is(err, errCrash) {
			t.Fatalf("crash at call %d: got %v", n, err)
		}
		t.Run(fmt.Sprintf("crash at %d, %s", n, r.calls[len(r.calls)-1]), func(t *testing.T) { check(t, path, false) })
	}
}

func TestWriteFileLeavesOldOrNewContentAfterACrash(t *testing.T) {
	crashes(t,
		func(path string) { write(t, path, "old", 0o600) },
		func(d Disk, path string) error { return WriteFile(d, "test", path, []byte("new and longer"), 0o600) },
		func(t *testing.T, path string, done bool) {
			got := read(t, path)
			if got != "new and longer" && (done || got != "old") {
				t.Errorf("the file holds %q", got)
			}
			// The next write succeeds, whatever the crash left.
			if err := WriteFile(OS{}, "test", path, []byte("next"), 0o600); err != nil || read(t, path) != "next" {
				t.Errorf("the next write: %v, %q", err, read(t, path))
			}
			if left := list(t, filepath.Dir(path)); !slices.Equal(left, []string{"f"}) {
				t.Errorf("folder holds %v", left)
			}
		})
}

func TestFailedWriteFileRemovesItsTemporaryFile(t *testing.T) {
	// Unlike after a crash, the disk works again after the one failure.
	for _, op := range []string{"open", "write", "sync", "rename"} {
		dir := t.TempDir()
		d := failOnce{fail: op}
		if err := WriteFile(&d, "test", filepath.Join(dir, "f"), []byte("x"), 0o600); !errors.Is(err, errCrash) {
			t.Errorf("%s fails: got %v", op, err)
		}
		if left := list(t, dir); len(left) != 0 {
			t.Errorf("%s fails: left behind %v", op, left)
		}
	}
}

type failOnce struct {
	OS
	fail string
}

func (d *failOnce) OpenFile(op, path string, flag int, perm fs.FileMode) (File, error) {
	if d.fail == "open" {
		return nil, errCrash
	}
	f, err := d.OS.OpenFile(op, path, flag, perm)
	return failingFile{f, d.fail}, err
}

func (d *failOnce) Rename(op, from, to string) error {
	if d.fail == "rename" {
		return errCrash
	}
	return d.OS.Rename(op, from, to)
}

type failingFile struct {
	File
	fail string
}

func (f failingFile) Write(p []byte) (int, error) {
	if f.fail == "write" {
		return 0, errCrash
	}
	return f.File.Write(p)
}

func (f failingFile) Sync() error {
	if f.fail == "sync" {
		return errCrash
	}
	return f.File.Sync()
}

func TestWriteFileDoesNotReuseATemporaryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "identity")
	write(t, path+".new", "left over", 0o666)
	if err := WriteFile(OS{}, "test", path, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v, %v", fi.Mode(), err)
	}
}

func TestErrorsNameTheOperationAndTheFile(t *testing.T) {
	dir := t.TempDir()
	absent := filepath.Join(dir, "absent", "f")
	d := OS{}
	for name, err := range map[string]error{
		"write":   WriteFile(d, "my label", absent, nil, 0o600),
		"point":   Point(d, "my label", "x", absent),
		"syncdir": d.SyncDir("my label", absent),
		"open":    second(d.OpenFile("my label", absent, os.O_RDONLY, 0)),
		"read":    second(d.ReadFile("my label", absent)),
		"root":    second(d.OpenRoot("my label", absent)),
		"free":    second(d.Free("my label", absent)),
		"rename":  d.Rename("my label", absent, absent+"2"),
	} {
		var labelled *Error
		if !errors.As(err, &labelled) || labelled.Op != "my label" || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "absent") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := d.Remove("my label", absent); err != nil {
		t.Errorf("removing a missing file: %v", err)
	}
	if err := d.RemoveAll("my label", absent); err != nil {
		t.Errorf("removing a missing tree: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

type state struct{ Step int }

const kind, version = "test", 2

func put(d Disk, path string, step int) error {
	return WriteRecord(d, "test", path, kind, version, state{step})
}

func get(path string) (int, error) {
	var s state
	err := ReadRecord(OS{}, "test", path, kind, version, &s)
	return s.Step, err
}

func TestReadRecordReturnsTheWrittenRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	if _, err := get(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no record: got %v", err)
	}
	for step := 1; step <= 3; step++ {
		if err := put(OS{}, path, step); err != nil {
			t.Fatal(err)
		}
		if got, err := get(path); err != nil || got != step {
			t.Errorf("got %d, %v, want %d", got, err, step)
		}
	}
	if head, _, _ := strings.Cut(read(t, path), "\n"); !strings.HasPrefix(head, "muster-test 2 sha256:") {
		t.Errorf("header line is %q", head)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v, %v", fi, err)
	}
	if err := RemoveRecord(OS{}, "test", path); err != nil {
		t.Fatal(err)
	}
	if left := list(t, filepath.Dir(path)); len(left) != 0 {
		t.Errorf("left behind %v", left)
	}
	if err := RemoveRecord(OS{}, "test", path); err != nil {
		t.Errorf("removing it again: %v", err)
	}
}

// damage are ways in which files are damaged.
var damage = map[string]func([]byte) []byte{
	"emptied":       func([]byte) []byte { return nil },
	"zeroed":        func(b []byte) []byte { return make([]byte, len(b)) },
	"cut":           func(b []byte) []byte { return b[:len(b)-3] },
	"header cut":    func(b []byte) []byte { return b[:10] },
	"longer":        func(b []byte) []byte { return append(b, '\n') },
	"edited":        func(b []byte) []byte { return bytes.Replace(b, []byte(`"Step": 2`), []byte(`"Step": 7`), 1) },
	"other kind":    func(b []byte) []byte { return bytes.Replace(b, []byte("muster-test"), []byte("muster-tess"), 1) },
	"newer format":  func(b []byte) []byte { return bytes.Replace(b, []byte(" 2 "), []byte(" 3 "), 1) },
	"format zero":   func(b []byte) []byte { return bytes.Replace(b, []byte(" 2 "), []byte(" 0 "), 1) },
	"format a word": func(b []byte) []byte { return bytes.Replace(b, []byte(" 2 "), []byte(" two "), 1) },
}

func TestDamagedRecordIsReadFromItsPreviousCopy(t *testing.T) {
	for name, change := range damage {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "r")
			for step := 1; step <= 2; step++ {
				if err := put(OS{}, path, step); err != nil {
					t.Fatal(err)
				}
			}
			spoil(t, path, change)
			if got, err := get(path); err != nil || got != 1 {
				t.Errorf("got %d, %v, want the previous state 1", got, err)
			}
			// A damaged record does not replace the valid copy.
			if err := put(OS{}, path, 3); err != nil {
				t.Fatal(err)
			}
			if got, err := get(path); err != nil || got != 3 {
				t.Errorf("got %d, %v, want 3", got, err)
			}
			spoil(t, path, change)
			if got, err := get(path); name != "edited" && (err != nil || got != 1) {
				t.Errorf("got %d, %v, want the last sound state 1", got, err)
			}
		})
	}
}

func TestRecordAndCopyDamagedReturnErrDamaged(t *testing.T) {
	for name, change := range damage {
		for _, prev := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "r")
			if err := put(OS{}, path, 2); err != nil {
				t.Fatal(err)
			}
			if prev {
				if err := put(OS{}, path, 2); err != nil {
					t.Fatal(err)
				}
				spoil(t, path+".prev", change)
			}
			spoil(t, path, change)
			if got, err := get(path); !errors.Is(err, ErrDamaged) || got != 0 {
				t.Errorf("%s, previous copy %v: got %d, %v, want ErrDamaged", name, prev, got, err)
			}
		}
	}
}

func TestReadRecordAcceptsAnOlderFormat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	if err := WriteRecord(OS{}, "test", path, kind, 1, state{5}); err != nil {
		t.Fatal(err)
	}
	if got, err := get(path); err != nil || got != 5 {
		t.Errorf("got %d, %v", got, err)
	}
}

func TestWriteRecordLeavesOldOrNewStateAfterACrash(t *testing.T) {
	crashes(t,
		func(path string) {
			for step := 1; step <= 2; step++ {
				if err := put(OS{}, path, step); err != nil {
					t.Fatal(err)
				}
			}
		},
		func(d Disk, path string) error { return put(d, path, 3) },
		func(t *testing.T, path string, done bool) {
			got, err := get(path)
			if err != nil || (got != 3 && (done || got != 2)) {
				t.Errorf("got %d, %v, want 2 or 3", got, err)
			}
		})
}

func TestRemoveRecordNeverRestoresAnOlderState(t *testing.T) {
	prepare := func(path string) {
		for step := 1; step <= 2; step++ {
			if err := put(OS{}, path, step); err != nil {
				t.Fatal(err)
			}
		}
	}
	crashes(t, prepare,
		func(d Disk, path string) error { return RemoveRecord(d, "test", path) },
		func(t *testing.T, path string, done bool) {
			got, err := get(path)
			if gone := errors.Is(err, fs.ErrNotExist); !gone && (done || err != nil || got != 2) {
				t.Errorf("got %d, %v, want 2 or nothing", got, err)
			}
		})
}

func TestRemoveRecordRemovesTheCopyFirst(t *testing.T) {
	r := &recorder{t: t}
	if err := RemoveRecord(r, "test", filepath.Join(t.TempDir(), "f")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"remove f.prev", "remove f", "syncdir"}; !slices.Equal(r.calls, want) {
		t.Errorf("calls are %q, want %q", r.calls, want)
	}
}

// A power cut may make renames and removals durable in any order: the record may be
// gone and its copy still there.
func TestCopyWithoutRecordIsIgnored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	for step := 1; step <= 2; step++ {
		if err := put(OS{}, path, step); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := get(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no record", err)
	}
	if err := put(OS{}, path, 9); err != nil {
		t.Fatal(err)
	}
	spoil(t, path, damage["zeroed"])
	if got, err := get(path); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %d of an earlier life, %v, want ErrDamaged", got, err)
	}
}

func TestReadRecordDetectsAnyChangedByte(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	if err := put(OS{}, path, 2); err != nil {
		t.Fatal(err)
	}
	sound := []byte(read(t, path))
	rapid.Check(t, func(rt *rapid.T) {
		b := bytes.Clone(sound)
		i := rapid.IntRange(0, len(b)-1).Draw(rt, "byte")
		b[i] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		body, err := parseRecord(b, kind, version)
		// The checksum does not cover the header, so a changed version or white
		// space may pass. The body must be unchanged.
		if err == nil && !bytes.HasSuffix(sound, body) {
			rt.Fatalf("byte %d changed passes:\n%s", i, b)
		}
	})
}

func TestPointReplacesALinkAtomically(t *testing.T) {
	crashes(t,
		func(path string) {
			if err := os.Symlink("data/old", path); err != nil {
				t.Fatal(err)
			}
		},
		func(d Disk, path string) error { return Point(d, "test", "data/new", path) },
		func(t *testing.T, path string, done bool) {
			got, err := os.Readlink(path)
			if err != nil || (got != "data/new" && (done || got != "data/old")) {
				t.Errorf("the link leads to %q, %v", got, err)
			}
			if err := Point(OS{}, "test", "data/next", path); err != nil {
				t.Errorf("the next move: %v", err)
			}
			if left := list(t, filepath.Dir(path)); !slices.Equal(left, []string{"f"}) {
				t.Errorf("folder holds %v", left)
			}
		})
}

func TestCopyTree(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "new", "run")
	if err := CopyTree(t.Context(), OS{}, "test", from, to); err != nil {
		t.Errorf("nothing to copy: %v", err)
	}
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("copying a missing folder: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(from, "components", "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(from, "queue"), "actions", 0o600)
	write(t, filepath.Join(from, "components", "c"), "state", 0o755)
	if err := os.Symlink("/etc/passwd", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(from, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Older copies exist already, one of them readable by all.
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(to, "queue"), "an older and longer copy", 0o666)
	write(t, filepath.Join(to, "kept"), "of its own", 0o600)

	if err := CopyTree(t.Context(), OS{}, "test", from, to); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, name := range []string{"queue", "kept", "components/c"} {
		fi, err := os.Stat(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = fmt.Sprintf("%s %o", read(t, filepath.Join(to, name)), fi.Mode().Perm())
	}
	want := map[string]string{"queue": "actions 600", "kept": "of its own 600", "components/c": "state 755"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if names := list(t, to); !slices.Equal(names, []string{"components", "kept", "queue"}) {
		t.Errorf("the copy holds %v", names)
	}
	if names := list(t, filepath.Join(to, "components")); !slices.Equal(names, []string{"c", "empty"}) {
		t.Errorf("its components hold %v", names)
	}
}

// A running agent writes its state during the copy: a temporary file is listed, and
// gone when it is opened.
func TestCopyTreeSkipsAFileThatDisappears(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "run")
	if err := os.Mkdir(from, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(from, "queue"), "actions", 0o600)
	write(t, filepath.Join(from, "queue.new"), "half", 0o600)
	if err := CopyTree(t.Context(), vanishing{}, "test", from, to); err != nil {
		t.Fatal(err)
	}
	if names := list(t, to); !slices.Equal(names, []string{"queue"}) {
		t.Errorf("the copy holds %v", names)
	}
}

type vanishing struct{ OS }

func (d vanishing) OpenFile(op, path string, flag int, perm fs.FileMode) (File, error) {
	if flag == os.O_RDONLY && strings.HasSuffix(path, ".new") {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return d.OS.OpenFile(op, path, flag, perm)
}

func TestCopyTreeIsDurable(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "copy")
	if err := os.MkdirAll(filepath.Join(from, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(from, "sub", "f"), "x", 0o600)
	var synced []string
	d := syncs{note: func(path string) { synced = append(synced, path) }}
	if err := CopyTree(t.Context(), d, "test", from, to); err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(to, "sub"), to, filepath.Dir(to)}
	if !slices.Equal(synced, want) {
		t.Errorf("synced %v, want %v", synced, want)
	}
}

type syncs struct {
	OS
	note func(string)
}

func (d syncs) SyncDir(op, path string) error {
	d.note(path)
	return d.OS.SyncDir(op, path)
}

func TestRootRefusesPathsThatLeaveIt(t *testing.T) {
	outside := t.TempDir()
	inside := filepath.Join(outside, "in")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	root, err := OS{}.OpenRoot("my label", inside)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"../x", "/tmp/x", "a/../../x", "link/x", "link"} {
		if f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
			f.Close()
			t.Errorf("OpenFile(%q) succeeds", name)
		} else if !strings.Contains(err.Error(), "my label") {
			t.Errorf("OpenFile(%q): %v does not name its operation", name, err)
		}
		if err := root.MkdirAll(name, 0o700); err == nil {
			t.Errorf("MkdirAll(%q) succeeds", name)
		}
		if err := root.SyncDir(name); err == nil {
			t.Errorf("SyncDir(%q) succeeds", name)
		}
	}
	if names := list(t, outside); !slices.Equal(names, []string{"in"}) {
		t.Errorf("outside there is now %v", names)
	}
	if err := root.MkdirAll("a/b", 0o700); err != nil {
		t.Error(err)
	}
	if err := root.SyncDir("a/b"); err != nil {
		t.Error(err)
	}
	if err := root.SyncDir("."); err != nil {
		t.Error(err)
	}
}

func TestFreeReturnsAPlausibleNumber(t *testing.T) {
	n, err := OS{}.Free("test", t.TempDir())
	if err != nil || n <= 0 {
		t.Errorf("got %d, %v", n, err)
	}
}

func write(t *testing.T, path, text string, perm fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), perm); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, perm); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func spoil(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	write(t, path, string(change([]byte(read(t, path)))), 0o600)
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A helper process makes files and folders below a folder, since the umask is that of the process.
const umaskFolder = "MUSTER_TEST_UMASK_FOLDER"

func TestUmaskChangesNoMode(t *testing.T) {
	top := os.Getenv(umaskFolder)
	if top == "" {
		top = t.TempDir()
		c := exec.Command(os.Args[0], "-test.run=^TestUmaskChangesNoMode$")
		c.Env = append(os.Environ(), umaskFolder+"="+top)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for name, want := range map[string]fs.FileMode{
			"a": 0o755, "a/b": 0o755, "a/b/c": 0o755, "private": 0o700, "a/file": 0o644, "a/record": 0o600,
			"copy": 0o700, "copy/program": 0o755, "root/x": 0o755, "root/x/y": 0o755, "root/x/y/program": 0o755,
		} {
			fi, err := os.Lstat(filepath.Join(top, name))
			if err != nil || fi.Mode().Perm() != want {
				t.Errorf("%s has the mode %v (%v), want %v", name, fi.Mode().Perm(), err, want)
			}
		}
		return
	}
	syscall.Umask(0o077)
	d, at := OS{}, func(name string) string { return filepath.Join(top, name) }
	err := errors.Join(
		d.MkdirAll("test", at("a/b/c"), 0o755), d.MkdirAll("test", at("a/b/c"), 0o700), // is there
		d.MkdirAll("test", at("private"), 0o700),
		WriteFile(d, "test", at("a/file"), nil, 0o644), WriteRecord(d, "test", at("a/record"), "test", 1, 1),
		WriteFile(d, "test", at("private/program"), nil, 0o755), CopyTree(context.Background(), d, "test", at("private"), at("copy")),
		d.MkdirAll("test", at("root"), 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	root, err := d.OpenRoot("test", at("root"))
	if err != nil {
		t.Fatal(err)
	}
	if err := root.MkdirAll("x/y", 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := root.OpenFile("x/y/program", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), root.Close()); err != nil {
		t.Fatal(err)
	}
}
