package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// errLoop is returned for links that lead in a circle.
var errLoop = errors.New("too many links, one leads to another")

// maxLinks bounds the links followed for one path, as kernels do.
const maxLinks = 40

// Resolve returns the path without links, dots and doubled slashes. dir is already
// resolved, and rest is relative to it unless it is absolute. The part of the path
// that does not exist is appended unchanged.
func Resolve(d Disk, op, dir, rest string) (string, error) {
	return resolve(d, op, dir, rest, func(string) {})
}

// resolve calls visit with every file and folder on the way, links among them. Each is given
// by its path without other links.
func resolve(d Disk, op, dir, rest string, visit func(path string)) (string, error) {
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
		visit(next)
		fi, err := d.Lstat(op, next)
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
		target, err := d.Readlink(op, next)
		if err != nil {
			return "", err
		}
		dir, rest = fromRoot(dir, target+string(filepath.Separator)+rest)
	}
}

// fromRoot returns the root in place of dir if path is absolute, and path relative
// to it. Only whole paths and link targets are passed in: the remainder of a path may
// begin with a slash without being absolute.
func fromRoot(dir, path string) (from, rest string) {
	if !filepath.IsAbs(path) {
		return dir, path
	}
	volume := filepath.VolumeName(path)
	return volume + string(filepath.Separator), path[len(volume):]
}

// firstPart splits a path after its first name.
func firstPart(path string) (part, rest string) {
	path = strings.TrimLeftFunc(path, isSlash)
	if i := strings.IndexFunc(path, isSlash); i >= 0 {
		return path[:i], path[i+1:]
	}
	return path, ""
}

// isSlash reports whether r separates names. On Windows two characters do.
func isSlash(r rune) bool { return r == '/' || r == filepath.Separator }
