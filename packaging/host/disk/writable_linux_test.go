package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/require"
)

// Real file systems that take no file: without space, without inodes, read-only.
func TestFileSystemsThatTakeNoFile(t *testing.T) {
	require.Root(t)
	for _, row := range []struct {
		name, options string
		fill          func(t *testing.T, dir string)
		want          error
	}{
		{name: "with room", options: "size=1m"},
		{name: "full", options: "size=64k", want: syscall.ENOSPC, fill: func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 1<<20), 0o600); !IsFull(err) {
				t.Fatal(err)
			}
		}},
		{name: "nearly full", options: "size=8k", want: syscall.ENOSPC},
		{name: "no inodes", options: "size=1m,nr_inodes=4", want: syscall.ENOSPC, fill: func(t *testing.T, dir string) {
			for i := range 3 {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if n, known := FreeInodes(OS{}, "test", dir); n != 0 || !known {
				t.Errorf("%d inodes are free, known: %v", n, known)
			}
		}},
		{name: "read-only", options: "size=1m", want: syscall.EROFS, fill: func(t *testing.T, dir string) {
			if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, row.options); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := syscall.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			if row.fill != nil {
				row.fill(t, dir)
			}
			path := filepath.Join(dir, "check")
			for range 2 {
				err := CheckWritable(OS{}, "test", path)
				if !errors.Is(err, row.want) || err != nil && (row.want == nil || strings.Count(err.Error(), path) != 1) {
					t.Errorf("the error is %v, want %v and the path once", err, row.want)
				}
				if _, err := os.Lstat(path); err == nil {
					t.Error("the file is left")
				}
			}
		})
	}
}
