package disk

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

const opRoots = "find the installation"

// FindRoots returns the folders of the installation under top, which is absolute. The link to
// the agent in the top folder determines them: if it leads to a link of the same name in another
// folder, that one is the pointer.
func FindRoots(d Disk, top string) (layout.Roots, error) {
	r := layout.Roots{Top: top}
	link := layout.Path(top, layout.AgentLink)
	fi, err := d.Lstat(opRoots, link)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		return r, err
	}
	target, err := d.Readlink(opRoots, link)
	if err != nil {
		return r, err
	}
	if !filepath.IsAbs(target) || filepath.Base(target) != layout.AgentLink || layout.IsHome(r.HomeOf(target)) {
		return r, nil
	}
	fi, err = d.Lstat(opRoots, target)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a pointer may be missing
	case err != nil || fi.Mode()&fs.ModeSymlink == 0: // a program, which is none
		return r, err
	}
	r.Links = filepath.Dir(target)
	return r, nil
}

// FindTop returns the top folder of the installation that a program belongs to: it is in a home,
// or below the prefix of a system. It returns "" for a program that is not installed. The path
// of the program has no links.
func FindTop(d Disk, program string) string {
	if top, _ := layout.Locate(program); top != "" {
		return top
	}
	beside := layout.LocateDefault(program)
	if beside == "" {
		return ""
	}
	state := filepath.Join(beside, layout.StateLink)
	if _, err := d.Lstat(opRoots, state); err != nil {
		return ""
	}
	top, err := Resolve(d, opRoots, "", state)
	if err != nil {
		return ""
	}
	return top
}

// FindHome returns the home under top that a program belongs to: it is in the home, or the home
// has a link to it. It returns "" if there is none. The path of the program has no links.
func FindHome(d Disk, top, program string) (string, error) {
	if in, home := layout.Locate(program); in == top {
		return home, nil
	}
	entries, err := d.ReadDir(opRoots, layout.Path(top, layout.DataDir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		home := layout.DataDir + "/" + e.Name()
		if !e.IsDir() || !layout.IsHome(home) {
			continue
		}
		// Of a home with programs of its own this fails.
		target, err := d.Readlink(opRoots, layout.Path(top, home+"/"+filepath.Base(program)))
		if err == nil && target == program {
			return home, nil
		}
	}
	return "", nil
}

// Stat is Lstat, and follows a link if path, which is absolute, is one.
func Stat(d Disk, op, path string) (fs.FileInfo, error) {
	fi, err := d.Lstat(op, path)
	if err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		return fi, err
	}
	if path, err = Resolve(d, op, "", path); err != nil {
		return nil, err
	}
	return d.Lstat(op, path)
}
