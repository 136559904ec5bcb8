// Package install looks into packages and unpacks them into versioned homes.
// The agent's upgrade and its installer call it, after package trust has said
// that the archive may be installed; `muster package inspect` and the server's
// upload look into packages with it.
//
// Archives are read by github.com/mholt/archiver/v4, which hands out names and
// links as they stand in the archive, unchecked. So nothing but this package
// imports it, every entry passes [checkEntry] before anything is done with it,
// and files are written through a disk.Root that names cannot leave. Only
// folders and regular files exist here.
//
// A home is whole or absent: it is unpacked and synced under another name in
// the same folder, and renamed when complete. Every home has a manifest.yaml,
// whether its package had one or is of the generation before.
package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/manifest"
)

var (
	// ErrExists says that the home is there already. Homes are never written
	// over, since one of them may be running.
	ErrExists = errors.New("version is already installed")
	// ErrDamaged says that the archive ends early or its checksums are wrong.
	ErrDamaged = errors.New("archive is damaged: download or build it again")
	// ErrNoSpace says that the disk cannot hold the unpacked package.
	ErrNoSpace = errors.New("not enough free disk space")
)

// RefusedError says which entry of an archive makes it unacceptable.
type RefusedError struct {
	Entry string // as it stands in the archive; empty for the archive as a whole
	Why   string
}

func (e *RefusedError) Error() string {
	if e.Entry == "" {
		return "package refused: " + e.Why
	}
	return fmt.Sprintf("package refused: entry %q %s", e.Entry, e.Why)
}

// Contents is what an archive holds.
type Contents struct {
	// Manifest has OS and Arch also where the archive's own does not say them,
	// as far as its programs tell.
	Manifest *manifest.Manifest
	// Legacy: the archive has no manifest. Manifest was made of the files that
	// tell version and hash in such a package; see manifest.Legacy.
	Legacy       bool
	Files        []Entry
	UnpackedSize int64  // bytes of all files
	SHA256       string // of the archive itself
	Size         int64  // of the archive itself
}

// Entry is one regular file of an archive.
type Entry struct {
	Name string // slash-separated, below the archive's top folder
	Size int64
	Mode fs.FileMode // 0755 or 0644
}

const opInspect = "inspect package"

// Inspect reads a whole archive without writing anything. It fails on every
// archive that [Unpack] would refuse for what is in it.
func Inspect(ctx context.Context, archivePath string) (*Contents, error) {
	return InspectOn(ctx, disk.OS{}, archivePath)
}

// InspectOn is Inspect for an archive on another disk than the machine's own.
func InspectOn(ctx context.Context, d disk.Disk, archivePath string) (*Contents, error) {
	f, err := d.OpenFile(opInspect, archivePath, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := scan(ctx, f, defaultLimits())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(archivePath), err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("%s: %w", archivePath, err)
	}
	h := sha256.New()
	size, err := io.Copy(h, contextReader{ctx, f})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", archivePath, err)
	}
	return &Contents{
		Manifest:     c.manifest,
		Legacy:       c.legacy,
		Files:        c.files,
		UnpackedSize: c.unpacked,
		SHA256:       hex.EncodeToString(h.Sum(nil)),
		Size:         size,
	}, nil
}
