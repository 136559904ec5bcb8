package install

import (
	"fmt"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// spareDivisor reserves a tenth more than the size of the files: file systems round
// files up to blocks and store metadata, and the running version writes logs and
// state meanwhile.
const spareDivisor = 10

// Need returns how many bytes must be free for a package whose files have unpacked
// bytes in total. [Unpack] checks it before it writes, and preflight checks use it
// too.
func Need(unpacked int64) int64 { return unpacked + unpacked/spareDivisor }

// unpackedFactor is the assumed ratio of a package's size to its archive's before the publishers
// have signed it: stripped Go programs compress to between a third and a half. [Unpack] checks the
// exact size before it writes.
const unpackedFactor = 3

// UpgradeNeed returns how many bytes must be free before an upgrade: for what is left to download
// of an archive of size bytes, for its unpacked files, and for the agent itself. unpacked is
// negative if no publisher has signed the package, and have is what was downloaded before. The
// agent checks this before it downloads, and the server's previews before it is ordered.
func UpgradeNeed(size, unpacked, have int64) int64 {
	if unpacked < 0 {
		unpacked = unpackedFactor * size
	}
	return Need(max(0, size-have)) + Need(unpacked) + disk.SpaceMargin
}

func noSpace(p manifest.Package, dir string, unpacked, free int64) error {
	return fmt.Errorf("%w: %s needs %d bytes (%d MiB), %s has %d bytes (%d MiB): remove old versions or files",
		disk.ErrNoSpace, p.Identity(), Need(unpacked), Need(unpacked)>>20+1, dir, free, free>>20)
}

// outOfSpace wraps the error of a disk that filled during the unpack with
// [disk.ErrNoSpace]: another process used the space, or a quota or the number of inodes
// ran out. It must be called before the staging folder is removed, so that it reports
// the space that was free at the failure.
func outOfSpace(d disk.Disk, err error, p manifest.Package, dir string, unpacked int64) error {
	if !disk.IsFull(err) {
		return err
	}
	free, ferr := d.Free(opUnpack, dir)
	if ferr != nil {
		return fmt.Errorf("%w: %w", disk.ErrNoSpace, err)
	}
	return fmt.Errorf("%w (%w)", noSpace(p, dir, unpacked, free), err)
}

// inodesMargin is how many files an upgrade makes beside those of the version: the archive and its parts,
// records with their previous copies and temporary files, links, and the state of the version.
const inodesMargin = 64

// UpgradeInodes returns how many files an upgrade makes. home is the number of those in the home of the
// version that runs, since that of the next one is not known before it is downloaded.
func UpgradeInodes(home int64) int64 { return home + home/10 + inodesMargin }
