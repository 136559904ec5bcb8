package disk

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// Size returns the bytes of all regular files below dir. Files that disappear meanwhile count
// as nothing.
func Size(d Disk, op, dir string) (sum int64, err error) {
	entries, err := d.ReadDir(op, dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		var n int64
		if e.IsDir() {
			n, err = Size(d, op, filepath.Join(dir, e.Name()))
		} else if e.Type().IsRegular() {
			var fi fs.FileInfo
			if fi, err = e.Info(); err == nil {
				n = fi.Size()
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
