package logfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

func TestLogFileStaysBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "agent.log")
	line := strings.Repeat("x", 99)
	for run := range 3 { // it appends over restarts
		f, err := Open(disk.OS{}, path, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 9 {
			if _, err := fmt.Fprintf(f, "%02d%s\n", 10*run+i, line[2:]); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path + ".1")
	if err != nil {
		t.Fatal(err)
	}
	if len(now) > 1000 || len(before) > 1000 {
		t.Errorf("%d and %d bytes", len(now), len(before))
	}
	lines := strings.Split(strings.TrimSpace(string(before)+string(now)), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "28") || len(lines) < 11 {
		t.Errorf("%d lines, the last is %.4q", len(lines), last)
	}
	if _, err := os.Stat(path + ".2"); err == nil {
		t.Error("there is a third file")
	}
}

func TestOutputOfAnotherProcessStaysBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "output.log")
	if err := Bound(disk.OS{}, path, 1000); err != nil {
		t.Errorf("a file that does not exist: %v", err)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for i := range 500 {
		if _, err := fmt.Fprintf(writer, "line %04d\n", i); err != nil {
			t.Fatal(err)
		}
		if i%30 == 0 {
			if err := Bound(disk.OS{}, path, 1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{path, path + ".1"} {
		if fi, err := os.Stat(name); err != nil || fi.Size() == 0 || fi.Size() > 1300 {
			t.Errorf("%s: %+v, %v", name, fi, err)
		}
	}
	lines, err := Tail(disk.OS{}, path, 60)
	if err != nil || len(lines) != 60 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	for i, line := range lines {
		if want := fmt.Sprintf("line %04d", 440+i); line != want {
			t.Fatalf("line %d of the last 60 is %q, want %q", i, line, want)
		}
	}
}

func TestOutputIsEmptiedOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "output.log")
	if err := os.WriteFile(path, make([]byte, 2000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Bound(fullDisk{}, path, 1000); err == nil {
		t.Error("no error says that the older lines are lost")
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() != 0 {
		t.Errorf("%+v, %v", fi, err)
	}
}

// fullDisk creates no files.
type fullDisk struct{ disk.OS }

func (d fullDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag&os.O_CREATE != 0 {
		return nil, syscall.ENOSPC
	}
	return d.OS.OpenFile(op, path, flag, perm)
}

// spoilt is a disk on which no file can be opened while err is set.
type spoilt struct {
	disk.OS
	err error
}

func (d *spoilt) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if d.err != nil {
		return nil, &disk.Error{Op: op, Err: &fs.PathError{Op: "open", Path: path, Err: d.err}}
	}
	return d.OS.OpenFile(op, path, flag, perm)
}

// An agent that starts on a full disk logs once it can.
func TestLogFileIsOpenedOnceTheDiskCanBeWritten(t *testing.T) {
	for _, why := range []error{syscall.ENOSPC, syscall.EROFS} {
		d := &spoilt{err: why}
		path := filepath.Join(t.TempDir(), "data", "agent.log")
		f, err := Open(d, path, 100)
		if f == nil || !disk.IsUnwritable(err) {
			t.Fatalf("%v: Open: %v, %v", why, f, err)
		}
		if _, err := fmt.Fprintln(f, "lost"); !disk.IsUnwritable(err) {
			t.Errorf("%v: Write: %v", why, err)
		}
		d.err = nil
		for i := range 3 {
			if _, err := fmt.Fprintf(f, "line %d %050d\n", i, 0); err != nil {
				t.Errorf("%v: Write: %v", why, err)
			}
			d.err = nil
			if i == 1 {
				d.err = why // the file is rotated, and no new one can be made
				if _, err := fmt.Fprintf(f, "lost %050d\n", 0); !disk.IsUnwritable(err) {
					t.Errorf("%v: Write: %v", why, err)
				}
				d.err = nil
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if _, err := fmt.Fprintln(f, "late"); err == nil {
			t.Error("a closed file was written")
		}
		if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), "line 2") {
			t.Errorf("%v: the log is %q, %v", why, text, err)
		}
	}
	if f, err := Open(&spoilt{err: syscall.EACCES}, filepath.Join(t.TempDir(), "agent.log"), 0); f != nil || err == nil {
		t.Errorf("without the right to write: %v, %v", f, err)
	}
}
