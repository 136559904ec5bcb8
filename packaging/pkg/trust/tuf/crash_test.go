package tuf_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// faultDisk counts the calls that change the disk. From call number crash on
// nothing happens any more, as after kill -9; a write that is hit leaves half of
// its bytes. once lets the disk work again after the one failure.
type faultDisk struct {
	disk.OS
	calls       []string
	crash       int
	once        bool
	labelled    func(op string)
	alreadyDead bool
}

var errCrash = errors.New("crash")

func (d *faultDisk) step(op, what, path string) error {
	if d.alreadyDead {
		return errCrash
	}
	d.calls = append(d.calls, fmt.Sprintf("%s: %s %s", op, what, filepath.Base(path)))
	if d.labelled != nil {
		d.labelled(op)
	}
	if len(d.calls) == d.crash {
		d.alreadyDead = !d.once
		return errCrash
	}
	return nil
}

func (d *faultDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if err := d.step(op, "open", path); err != nil {
		return nil, err
	}
	f, err := d.OS.OpenFile(op, path, flag, perm)
	return faultFile{f, d, op, path}, err
}

func (d *faultDisk) MkdirAll(op, path string, perm fs.FileMode) error {
	if err := d.step(op, "mkdir", path); err != nil {
		return err
	}
	return d.OS.MkdirAll(op, path, perm)
}

func (d *faultDisk) Rename(op, from, to string) error {
	if err := d.step(op, "rename", to); err != nil {
		return err
	}
	return d.OS.Rename(op, from, to)
}

func (d *faultDisk) Remove(op, path string) error {
	if err := d.step(op, "remove", path); err != nil {
		return err
	}
	return d.OS.Remove(op, path)
}

func (d *faultDisk) SyncDir(op, path string) error {
	if err := d.step(op, "syncdir", path); err != nil {
		return err
	}
	return d.OS.SyncDir(op, path)
}

type faultFile struct {
	disk.File
	d        *faultDisk
	op, path string
}

func (f faultFile) Write(p []byte) (int, error) {
	if err := f.d.step(f.op, "write", f.path); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

func (f faultFile) Sync() error {
	if err := f.d.step(f.op, "sync", f.path); err != nil {
		return err
	}
	return f.File.Sync()
}

// The refresh writes every file: a new root with new online keys, and a new version
// of each other role. At each call to the disk the process is killed, or the call
// fails and the process lives.
func TestRefreshRecoversFromACrashAtAnyDiskCall(t *testing.T) {
	require.Time(t, "interrupts it at every call")
	repo := tuftest.New(t)
	before := newHost(t, repo)
	before.mustInstall(repo.Release("1.0.0", "x"))
	repo.Online = append(repo.Online, tuftest.Key(t, "new-server"))
	repo.Rotate(func(s *tuf.RootSpec) { s.Snapshot, s.Timestamp = repo.Online[1].Public(), repo.Online[1].Public() })
	name := repo.Release("1.1.0", "y")

	for _, once := range []bool{false, true} {
		for n := 1; ; n++ {
			h := before.clone()
			d := &faultDisk{crash: n, once: once}
			d.labelled = func(op string) {
				if !strings.HasPrefix(op, "trust ") {
					t.Errorf("call %d has the label %q", n, op)
				}
			}
			c := h.client()
			c.Disk = d
			_, err := c.Expect(t.Context(), name, nil)
			if len(d.calls) < n {
				if err != nil {
					t.Fatal(err)
				}
				if n < 20 {
					t.Errorf("only %d calls: is the disk still handed in everywhere?", n-1)
				}
				break
			}
			if !errors.Is(err, errCrash) {
				t.Fatalf("%s failed, but the refresh says %v", d.calls[n-1], err)
			}
			if err := h.installs(name); err != nil {
				t.Fatalf("after a crash at %s: %v", d.calls[n-1], err)
			}
			left, err := filepath.Glob(filepath.Join(h.dir, "*.new"))
			if err != nil || len(left) > 0 {
				t.Errorf("after a crash at %s: left behind %v", d.calls[n-1], left)
			}
		}
	}
}

// A host whose pin is replaced trusts either publisher at any moment, and no file of
// the first under the second.
func TestPinLeavesOneRootAfterACrashAtAnyDiskCall(t *testing.T) {
	require.Time(t, "interrupts it at every call")
	first, second := tuftest.New(t), tuftest.New(t)
	before := newHost(t, first)
	first.Rotate(func(s *tuf.RootSpec) { s.Root.Threshold = 1 })
	old := first.Release("2.0.0", "x")
	before.mustInstall(old)
	name := second.Release("1.0.0", "y")
	pins := 0
	for n := 1; ; n++ {
		h := before.clone()
		d := &faultDisk{crash: n}
		err := tuf.Pin(d, h.dir, second.State.Roots[0])
		if len(d.calls) < n {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, errCrash) {
			t.Fatalf("%s failed, but Pin says %v", d.calls[n-1], err)
		}
		data, err := os.ReadFile(filepath.Join(h.dir, "pinned-root.json"))
		switch {
		case err != nil:
			t.Fatalf("after a crash at %s: %v", d.calls[n-1], err)
		case bytes.Equal(data, second.State.Roots[0]):
			pins++
			h.repo = second
			h.mustInstall(name)
		default:
			h.mustInstall(old)
		}
		h.repo = second
		if err := tuf.Pin(disk.OS{}, h.dir, second.State.Roots[0]); err != nil {
			t.Fatal(err)
		}
		h.mustInstall(name)
	}
	if pins == 0 {
		t.Error("no crash came after the pin: does the test still reach it?")
	}
}
