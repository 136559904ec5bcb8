package watch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// A real file system that is full from soon after the start of the watch on, for good. The rollback ends
// in one go with its reason, since it removes the bad version first.
func TestRollbackOnAFileSystemThatStaysFull(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSiteIn(t, dir)
		s.must(os.WriteFile(filepath.Join(dir, s.m.To.Home, "big"), make([]byte, 1<<20), 0o600))
		s.crashing()
		time.AfterFunc(500*time.Millisecond, func() {
			if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 8<<20), 0o600); !disk.IsFull(err) {
				t.Errorf("the disk is not full: %v", err)
			}
			if err := disk.CheckWritable(disk.OS{}, "test", layout.Path(dir, layout.WriteCheckFile)); !disk.IsFull(err) {
				t.Errorf("the disk takes a file: %v", err)
			}
		})
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Reason.Code != handoff.ReasonCrashLoop || !strings.Contains(o.Reason.Text, "ended 3 times") {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
		if s.exists(s.m.To.Home) {
			t.Error("the bad version is still on the full disk")
		}
	})
}

// A watcher that is killed between the decision and the end on a full disk leaves its reason to the next
// one, and whether the home stays.
func TestDecisionIsWrittenOnAFullDisk(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := newSiteIn(t, dir)
	s.must(handoff.ReserveDecision(disk.OS{}, dir))
	if d, err := handoff.ReadDecision(disk.OS{}, dir, s.m); d != nil || err != nil {
		t.Fatalf("the reserved space is read as %+v, %v", d, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 2<<20), 0o600); !disk.IsFull(err) {
		t.Fatalf("the disk is not full: %v", err)
	}
	for _, text := range []string{"It crashed.", "short", strings.Repeat("\x01", 2000)} {
		want := handoff.Decide(s.m, handoff.RolledBack, &handoff.Reason{Code: handoff.ReasonCrashLoop, Text: text})
		want.KeepHome = true
		s.must(handoff.WriteDecision(disk.OS{}, dir, want))
		got, err := handoff.ReadDecision(disk.OS{}, dir, s.m)
		if err != nil || got == nil || *got.Reason != *want.Reason || !got.KeepHome {
			t.Errorf("read %+v, %v", got, err)
		}
	}
}
