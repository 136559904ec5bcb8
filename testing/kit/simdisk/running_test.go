package simdisk

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

func TestWindowsKeepsProgramsThatRun(t *testing.T) {
	running := []string{"/top/home/program"}
	d := Windows{Disk: New().View(all), Running: func() []string { return running }}
	must(t, d.MkdirAll("test", "/top/home", 0o700))
	must(t, disk.WriteFile(d.Disk, "test", "/top/home/program", []byte("old"), 0o700))
	must(t, disk.Point(d, "test", "home/program", "/top/link"))

	for what, err := range map[string]error{
		"overwritten":        disk.WriteFile(d, "test", "/top/home/program", []byte("new"), 0o700),
		"removed":            d.Remove("test", "/top/home/program"),
		"removed as a tree":  d.RemoveAll("test", "/top"),
		"moved with a home":  d.Rename("test", "/top/home", "/top/other"),
		"opened for writing": opened(d, "/top/home/program", os.O_RDWR),
	} {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("it was %s: %v", what, err)
		}
	}
	must(t, opened(d, "/top/home/program", os.O_RDONLY))
	must(t, disk.Point(d, "test", "other/program", "/top/link")) // also while its old target runs
	must(t, d.Rename("test", "/top/home/program", "/top/home/program.old"))

	running = nil
	must(t, d.RemoveAll("test", "/top/home"))
}

func opened(d disk.Disk, path string, flag int) error {
	f, err := d.OpenFile("test", path, flag, 0)
	if err != nil {
		return err
	}
	return f.Close()
}
