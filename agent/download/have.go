package download

import (
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// Have returns how many bytes of a file earlier attempts have left in dir, finished or
// not.
func Have(d disk.Disk, dir, name string) int64 {
	var n int64
	for _, suffix := range []string{"", partSuffix} {
		if fi, err := d.Lstat(op, filepath.Join(dir, name+suffix)); err == nil {
			n = max(n, fi.Size())
		}
	}
	return n
}
