package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// errLoop says that links lead to each other and nowhere else.
var errLoop = errors.New("too many links, one leads to another")

// maxLinks bounds the links followed on the way of one path, as kernels do.
const maxLinks = 40

// resolve gives the one spelling of a path that has no links, dots or doubled
// slashes in it, by asking the disk part by part. dir is such a spelling, and rest
// is taken from there unless it is absolute. From the first part on that is not
// there, the rest is taken as it stands.
func resolve(d Disk, dir, rest string) (string, error) {
	dir, rest = fromRoot(dir, rest)
	for links := 0; ; {
		part, more := firstPart(rest)
		next := filepath.Join(dir, part) // ".." leads up, "." and "" stay
		if part == "" {
			return dir, nil
		}
		rest = more
		if part == "." || part == ".." {
			dir = next
			continue
		}
		fi, err := d.Lstat(opRemove, next)
		if errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(next, rest), nil
		}
		if err != nil {
			return "", err
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			dir = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: %w", next, errLoop)
		}
		target, err := d.Readlink(opRemove, next)
		if err != nil {
			return "", err
		}
		dir, rest = fromRoot(dir, target+string(filepath.Separator)+rest)
	}
}

// fromRoot leaves dir for the root if path begins there. What is left of a path
// on its way may begin with a slash too, and is not asked.
func fromRoot(dir, path string) (from, rest string) {
	if !filepath.IsAbs(path) {
		return dir, path
	}
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), path[len(volume):]
}

// firstPart cuts a path behind its first name.
func firstPart(path string) (part, rest string) {
	path = strings.TrimLeftFunc(path, isSlash)
	if i := strings.IndexFunc(path, isSlash); i >= 0 {
		return path[:i], path[i+1:]
	}
	return path, ""
}

// isSlash: Windows takes both.
func isSlash(r rune) bool { return r == '/' || r == filepath.Separator }
