// Package foreign opens folders on the host that other accounts may write to: those of a component's
// state and configuration. The agent runs as root and works in them, so it must not follow a name
// that somebody else can have lead to a folder of root's.
//
// It goes to the first such folder by its path, whose names only root and the agent's own account can
// change, and from there on name by name, each in the folder that is open. Links are followed on the
// first part, and refused on the second. What is done in an open folder follows no link either; see
// [disk.Folder]. Packages statecopy, primitive and runtime work through it.
package foreign

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// MaxDepth bounds the folders below a path, since each is open while those in it are worked on, and
// the open files of the agent are bounded. No state of a program is known to be half as deep.
const MaxDepth = 256

// ErrTooDeep is returned for folders below MaxDepth.
var ErrTooDeep = fmt.Errorf("is more than %d folders deep", MaxDepth)

// maxLinks bounds the links followed for one path, as kernels do.
const maxLinks = 40

// Parent opens the folder that holds an absolute path, and returns it with the path's last name.
func Parent(d disk.Disk, op, path string) (disk.Folder, string, error) {
	path = filepath.Clean(path)
	folder, err := open(d, op, filepath.Dir(path))
	return folder, filepath.Base(path), err
}

// open opens the folder at an absolute path.
func open(d disk.Disk, op, path string) (disk.Folder, error) {
	dir := filepath.VolumeName(path) + string(filepath.Separator)
	rest := names(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		if name == ".." { // of a link's target
			dir, rest = filepath.Dir(dir), rest[1:]
			continue
		}
		who, err := changers(d, op, dir, name)
		if err != nil {
			return nil, err
		}
		if who != "" {
			return descend(d, op, dir, who, rest)
		}
		next := filepath.Join(dir, name)
		fi, err := d.Lstat(op, next)
		if err != nil {
			return nil, err
		}
		rest = rest[1:]
		if fi.Mode()&fs.ModeSymlink == 0 {
			dir = next
			continue
		}
		if links++; links > maxLinks {
			return nil, fmt.Errorf("%s: too many links, one leads to another", next)
		}
		target, err := d.Readlink(op, next)
		if err != nil {
			return nil, err
		}
		if filepath.IsAbs(target) {
			dir = filepath.VolumeName(target) + string(filepath.Separator)
		}
		rest = append(names(target), rest...)
	}
	return d.OpenFolder(op, dir)
}

// names splits a path. It keeps "..", since the name before may be a link.
func names(path string) []string {
	path = path[len(filepath.VolumeName(path)):]
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == filepath.Separator })
	return slices.DeleteFunc(parts, func(name string) bool { return name == "." })
}

// descend opens the folder rest below dir, in which others may change names.
func descend(d disk.Disk, op, dir, who string, rest []string) (disk.Folder, error) {
	folder, err := d.OpenFolder(op, dir)
	if err != nil {
		return nil, err
	}
	for _, name := range rest {
		next, err := folder.OpenFolder(name)
		if errors.Is(err, disk.ErrLink) {
			err = fmt.Errorf("%w, and %s may write to %s and have the link lead elsewhere: name the folder that it leads to", err, who, dir)
		}
		if err = errors.Join(err, folder.Close()); err != nil {
			return nil, err
		}
		folder = next
	}
	return folder, nil
}

// changers returns who may have a name in a folder lead elsewhere, besides root and the account of this
// process: "" if nobody may. It goes by owners and modes. Where the system has none, all folders
// count as this account's; components there have no other.
func changers(d disk.Disk, op, dir, name string) (string, error) {
	fi, err := d.Lstat(op, dir)
	if err != nil {
		return "", err
	}
	owner := disk.OwnerOf(fi)
	switch {
	case owner == disk.Own:
		return "", nil
	case !ours(owner):
		return fmt.Sprintf("the user with the id %d", owner.UID), nil
	case !disk.OthersMayWrite(fi.Mode(), owner):
		return "", nil
	case fi.Mode()&fs.ModeSticky != 0: // there everybody may change the names of what is theirs
		has, err := d.Lstat(op, filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		if owner = disk.OwnerOf(has); ours(owner) {
			return "", nil
		}
		return fmt.Sprintf("the user with the id %d", owner.UID), nil
	}
	return "others than root", nil
}

func ours(owner disk.Owner) bool { return owner.UID == 0 || owner.UID == os.Geteuid() }

// Size returns the bytes of all regular files below a folder. What disappears meanwhile counts as
// nothing.
func Size(folder disk.Folder) (int64, error) { return size(folder, 0) }

func size(folder disk.Folder, depth int) (sum int64, err error) {
	if depth > MaxDepth {
		return 0, fmt.Errorf("%s %w", folder.Path(), ErrTooDeep)
	}
	names, err := folder.Names()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		n, err := sizeOf(folder, name, depth)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, disk.ErrReplaced) {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

func sizeOf(folder disk.Folder, name string, depth int) (int64, error) {
	fi, err := folder.Lstat(name)
	switch {
	case err != nil:
		return 0, err
	case fi.Mode().IsRegular():
		return fi.Size(), nil
	case !fi.IsDir():
		return 0, nil
	}
	sub, err := folder.OpenFolder(name)
	if err != nil {
		return 0, err
	}
	n, err := size(sub, depth+1)
	return n, errors.Join(err, sub.Close())
}
