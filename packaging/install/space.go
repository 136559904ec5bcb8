package install

import (
	"fmt"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/manifest"
)

// spareDivisor: a tenth more than the files have. File systems round every file
// up to a block and keep books of their own, and the version that runs goes on
// writing its logs and state meanwhile.
const spareDivisor = 10

// Need is how many bytes must be free for a package whose files have unpacked
// bytes. [Unpack] asks for as much before it writes; whoever wants to know
// earlier asks by the same rule.
func Need(unpacked int64) int64 { return unpacked + unpacked/spareDivisor }

func noSpace(p manifest.Package, dir string, unpacked, free int64) error {
	return fmt.Errorf("%w: %s needs %d bytes (%d MiB), %s has %d bytes (%d MiB): remove old versions or files",
		ErrNoSpace, p.Identity(), Need(unpacked), Need(unpacked)>>20+1, dir, free, free>>20)
}

// outOfSpace gives a disk that ran full in the middle the name of one that was
// too full to begin with: somebody else took the space meanwhile, or a quota or
// the number of files ended it. The staging folder still stands when it looks.
func outOfSpace(d disk.Disk, err error, p manifest.Package, dir string, unpacked int64) error {
	if !disk.IsFull(err) {
		return err
	}
	free, ferr := d.Free(opUnpack, dir)
	if ferr != nil {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return fmt.Errorf("%w (%w)", noSpace(p, dir, unpacked, free), err)
}
