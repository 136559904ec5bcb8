package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

// ErrInUse is returned for a home that a link in the top folder leads into.
var ErrInUse = errors.New("version is in use")

const opRemove = "remove home"

// RemoveHome removes a home. It returns nil if the home does not exist, and
// [ErrInUse] if a link in the top folder leads into it: removing it would leave the
// host without a program to start.
//
// The home is renamed first, so that after a crash it is complete or absent. Overlayfs, the file
// system of most containers, renames no folder of an image: such a home loses its manifest first, so
// that after a crash it is damaged and nothing starts it.
func RemoveHome(d Disk, top, home string) error {
	if err := removeHome(d, top, home); err != nil {
		return fmt.Errorf("remove version %s: %w", home, err)
	}
	return nil
}

func removeHome(d Disk, top, home string) error {
	if !layout.IsHome(home) {
		return errors.New("want data/<folder of one version>")
	}
	full := layout.Path(top, home)
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
	staging := layout.Path(top, layout.Staging(home))
	if err := d.RemoveAll(opRemove, staging); err != nil {
		return err
	}
	switch err := d.Rename(opRemove, full, staging); {
	case errors.Is(err, syscall.EXDEV):
		return removeInPlace(d, full)
	case err != nil:
		return err
	}
	if err := d.SyncDir(opRemove, filepath.Dir(full)); err != nil {
		return err
	}
	return d.RemoveAll(opRemove, staging)
}

// removeInPlace removes a home that cannot be renamed. Its digests go last: by them what a crash has
// left is known to be a home, and removed after the next upgrade.
func removeInPlace(d Disk, home string) error {
	if err := d.Remove(opRemove, filepath.Join(home, layout.ManifestFile)); err != nil {
		return err
	}
	if err := d.SyncDir(opRemove, home); err != nil {
		return err
	}
	entries, err := d.ReadDir(opRemove, home)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == layout.DigestsFile {
			continue
		}
		if err := d.RemoveAll(opRemove, filepath.Join(home, e.Name())); err != nil {
			return err
		}
	}
	if err := d.RemoveAll(opRemove, home); err != nil {
		return err
	}
	return d.SyncDir(opRemove, filepath.Dir(home))
}

// refuseInUse returns [ErrInUse] if a link in the top folder leads into the home:
// relative or absolute, through other links, or through a top folder that is itself
// a link. A dangling link counts as well, and so does one that leads on from the home, to
// a program below the prefix of a system.
func refuseInUse(d Disk, top, home string) error {
	top, err := filepath.Abs(top)
	if err != nil {
		return err
	}
	if top, err = Resolve(d, opRemove, "", top); err != nil {
		return err
	}
	if home, err = Resolve(d, opRemove, top, home); err != nil {
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
		used := false
		_, err := resolve(d, opRemove, top, e.Name(), func(path string) {
			used = used || within(runtime.GOOS, path, home)
		})
		if errors.Is(err, errLoop) {
			continue // no program can be started through it
		}
		if err != nil {
			return err
		}
		if used {
			return fmt.Errorf("%w: the link %s leads to it", ErrInUse, e.Name())
		}
	}
	return nil
}

// within reports whether path is dir or below it. On Windows and macOS names that
// differ only in case are equal.
func within(goos, path, dir string) bool {
	if goos == "windows" || goos == "darwin" {
		path, dir = strings.ToLower(path), strings.ToLower(dir)
	}
	return path == dir || strings.HasPrefix(path, dir+string(filepath.Separator))
}
