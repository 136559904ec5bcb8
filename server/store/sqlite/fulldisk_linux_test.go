package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/require"
)

func openFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

// While the disk is full, Ping fails as writes do. It opens no file that stays open, and
// succeeds as soon as there is space.
func TestPingFailsWhileTheDiskIsFull(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size=16m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := mustOpen(t, filepath.Join(dir, "muster.db"))
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t, dir)
	f, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	f.Close()
	for n := 0; ; n++ {
		if err := s.Agents().Create(t.Context(), fleet.Agent{ID: fmt.Sprint("a", n), AccessKeyID: fmt.Sprint("k", n)}); err != nil {
			if fleet.KindOf(err) != fleet.Unavailable {
				t.Fatal(err)
			}
			break
		}
	}
	for range 20 {
		if err := s.Ping(t.Context()); fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "disk is full") {
			t.Fatalf("Ping: %v", err)
		}
	}
	if after := openFiles(t, dir); after > before {
		t.Errorf("%d files are open, %d were", after, before)
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping after space was freed: %v", err)
	}
	if err := s.Agents().Create(t.Context(), fleet.Agent{ID: "last", AccessKeyID: "last"}); err != nil {
		t.Error(err)
	}
}
