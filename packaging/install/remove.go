package install

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"runtime"
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
	if err := refuseInUse(d, top, filepath.FromSlash(home)); err != nil {
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

// refuseInUse looks where the links of the top folder lead, in whatever spelling:
// through other links, from the root, or over a top folder that is itself one. A
// link that leads nowhere any more counts by its text.
func refuseInUse(d disk.Disk, top, home string) error {
	top, err := filepath.Abs(top)
	if err != nil {
		return err
	}
	if top, err = resolve(d, "", top); err != nil {
		return err
	}
	if home, err = resolve(d, top, home); err != nil {
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
		target, err := resolve(d, top, e.Name())
		if errors.Is(err, errLoop) {
			continue // nothing can be started through it
		}
		if err != nil {
			return err
		}
		if within(runtime.GOOS, target, home) {
			return fmt.Errorf("%w: the link %s leads to it", ErrInUse, e.Name())
		}
	}
	return nil
}

// within says whether a path is a folder or lies in it. Windows and macOS take
// two spellings that differ in case for one name.
func within(goos, path, dir string) bool {
	if goos == "windows" || goos == "darwin" {
		path, dir = strings.ToLower(path), strings.ToLower(dir)
	}
	return path == dir || strings.HasPrefix(path, dir+string(filepath.Separator))
}
