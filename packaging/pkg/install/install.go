// Package install inspects packages and unpacks them into versioned homes. The
// agent's upgrade and its installer call it after package trust has verified the
// archive; `muster package inspect` and the server's upload inspect packages with
// it.
//
// [Open] opens an archive once. Its caller's verification reads the same bytes as the
// scan, in one reading, and [Archive.Unpack] writes only files that have the digests of
// that reading. So whoever may change the archive meanwhile, or put another file under
// its name, changes nothing of what is installed.
//
// Archives are read by github.com/mholt/archiver/v4, which returns names and links
// from the archive unchecked. So no other package imports it, every entry passes
// [checkEntry] first, and files are written through a disk.Root that names cannot
// leave. Only folders and regular files are accepted.
//
// A home is complete or absent: it is unpacked and synced under another name in the
// same folder, and renamed when complete. Every home has a manifest.yaml, also if
// its package is a legacy one without.
package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

var (
	// ErrExists is returned if the home exists already. Homes are never
	// overwritten, since a version may be running from one.
	ErrExists = errors.New("version is already installed")
	// ErrDamaged is returned if the archive is truncated or a checksum is wrong.
	ErrDamaged = errors.New("archive is damaged: download or build it again")
	// ErrChanged is returned if the archive has changed since it was verified.
	ErrChanged = errors.New("archive was changed after it was verified: fetch it again, into a folder that only trusted users may write to")
)

// RefusedError names the entry that makes an archive unacceptable.
type RefusedError struct {
	Entry string // name in the archive; empty for the archive as a whole
	Why   string
}

func (e *RefusedError) Error() string {
	if e.Entry == "" {
		return "package refused: " + e.Why
	}
	return fmt.Sprintf("package refused: entry %q %s", e.Entry, e.Why)
}

// Contents describes an archive.
type Contents struct {
	// Manifest has OS and Arch even if the archive's manifest lacks them, as far
	// as its programs' headers give them.
	Manifest *manifest.Manifest
	// Legacy means that the archive has no manifest. Manifest was derived from
	// the files with version and hash of such a package; see manifest.Legacy.
	Legacy       bool
	Files        []Entry
	UnpackedSize int64  // bytes of all files
	SHA256       string // of the archive itself
	Size         int64  // of the archive itself
	Top          string // the archive's top folder
}

// Entry is one regular file of an archive.
type Entry struct {
	Name string // slash-separated, below the archive's top folder
	Size int64
	Mode fs.FileMode // 0755 or 0644
}

// Inspect reads a whole archive without writing anything. It refuses every archive
// whose content [Unpack] would refuse.
func Inspect(ctx context.Context, archivePath string) (*Contents, error) {
	return InspectOn(ctx, disk.OS{}, archivePath)
}

// InspectOn is Inspect for an archive on d.
func InspectOn(ctx context.Context, d disk.Disk, archivePath string) (*Contents, error) {
	return inspect(ctx, d, archivePath, defaultLimits())
}

// InspectElastic is Inspect for a package of Elastic's own. It skips what those have and
// Elastic's agents do not unpack: a symbolic link in the top folder, and files that map
// outside the versioned home.
func InspectElastic(ctx context.Context, d disk.Disk, archivePath string) (*Contents, error) {
	l := defaultLimits()
	l.elastic = true
	return inspect(ctx, d, archivePath, l)
}

func inspect(ctx context.Context, d disk.Disk, archivePath string, l limits) (*Contents, error) {
	a, err := open(ctx, d, archivePath, nil, l)
	if err != nil {
		return nil, err
	}
	return &a.Contents, a.Close()
}
