package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

// Labels of the disk operations. Packages handoff and disk have their own.
const (
	opPointer      = "pointer"
	opWatcherLink  = "watcher link"
	opActiveCommit = "active commit"
	opCleanUp      = "clean up"
	opPrevious     = "previous version"
)

func (w *Watch) roots() layout.Roots { return layout.Roots{Top: w.Top, Links: w.Links} }

// linkHome returns the versioned home that the link name leads to, or "" if there is no such
// link.
func (w *Watch) linkHome(op, name string) (string, error) {
	target, err := w.Disk.Readlink(op, w.roots().Link(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return w.roots().HomeOf(target), nil
}

// point makes the link name lead to the program of that name in home.
func (w *Watch) point(op, name, home string) error {
	if now, err := w.linkHome(op, name); err == nil && now == home {
		return nil
	}
	return disk.Point(w.Disk, op, w.roots().Target(home, name), w.roots().Link(name))
}

// has reports whether home holds the program of the link name.
func (w *Watch) has(op, name, home string) (bool, error) {
	fi, err := disk.Stat(w.Disk, op, layout.Path(w.Top, path.Join(home, name)))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return fi.Mode().IsRegular(), nil
}

// removeHome removes a versioned home unless it is in use. It checks that right before the
// removal, since removing the running version cannot be repaired.
func (w *Watch) removeHome(home string) error {
	err := fmt.Errorf("%w: the agent runs from it", disk.ErrInUse)
	if p := w.Host.Agent(); !p.Alive || p.Home != home {
		err = disk.RemoveHome(w.Disk, w.Top, home)
	}
	if errors.Is(err, disk.ErrInUse) {
		w.Log.Warn("home is left, it is in use", "home", home, "because", err)
		return nil
	}
	if err != nil {
		return err
	}
	w.Log.Info("home removed", "home", home)
	return nil
}
