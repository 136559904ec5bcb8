package install

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/muster-fleet/muster/packaging/disk"
)

// Remove removes a versioned home; home is relative to top and slash-separated,
// as manifest.Package.Home gives it. A home that is not there is no error. A
// home that a link in the top folder leads into is refused with [ErrInUse]:
// removing it would leave the host without a program to start.
//
// Like unpacking, removing is whole or not at all: the home loses its name
// first.
func Remove(d disk.Disk, top, home string) error {
	if err := removeHome(d, top, home); err != nil {
		return fmt.Errorf("remove version %s: %w", home, err)
	}
	return nil
}

func removeHome(d disk.Disk, top, home string) error {
	if !isHome(home) {
		return errors.New("want data/<folder of one version>")
	}
	full := filepath.Join(top, filepath.FromSlash(home))
	fi, err := d.Lstat(opRemove, full)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return errors.New("is not a folder")
	}
	if err := refuseInUse(d, top, full); err != nil {
		return err
	}
	doomed := stagingOf(full)
	if err := d.RemoveAll(opRemove, doomed); err != nil {
		return err
	}
	if err := d.Rename(opRemove, full, doomed); err != nil {
		return err
	}
	if err := d.SyncDir(opRemove, filepath.Dir(full)); err != nil {
		return err
	}
	return d.RemoveAll(opRemove, doomed)
}

func isHome(home string) bool {
	dir, base := path.Split(home)
	return dir == dataDir+"/" && base != "" && base != "downloads" &&
		!strings.HasPrefix(base, ".") && !strings.ContainsAny(base, `\:`)
}

func refuseInUse(d disk.Disk, top, home string) error {
	home, err := filepath.Abs(home)
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(opRemove, top)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		target, err := d.Readlink(opRemove, filepath.Join(top, e.Name()))
		if err != nil {
			return err
		}
		if target, err = absolute(top, target); err != nil {
			return err
		}
		if target == home || strings.HasPrefix(target, home+string(filepath.Separator)) {
			return fmt.Errorf("%w: the link %s leads to it", ErrInUse, e.Name())
		}
	}
	return nil
}

func absolute(dir, target string) (string, error) {
	if !filepath.IsAbs(target) {
		target = filepath.Join(dir, target)
	}
	return filepath.Abs(target)
}
