package setup

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/testing/require"
)

// An installation on a read-only disk fails before it has anything to undo, and names the command
// that finds what mends it.
func TestInstallOnAReadOnlyDisk(t *testing.T) {
	require.Root(t)
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", syscall.MS_RDONLY, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	}()
	p := newPublisher(t)
	archive := p.pack(t, runtime.GOOS, "")
	for _, top := range []string{mount, filepath.Join(mount, "muster")} {
		i := Installation{Disk: disk.OS{}, Top: top, UnsafeTop: true, Package: archive, TrustKeys: []string{p.pub.String()}}
		_, err := i.Run(t.Context())
		if err == nil {
			t.Fatalf("it was installed in %s", top)
		}
		for _, want := range []string{"--top: ", "read-only file system", "muster-agent doctor --top " + top} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error %q does not have %q", err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("the error has several lines: %s", err)
		}
	}
	left, err := os.ReadDir(mount)
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
