package install

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

const opUnpack = "unpack"

// Unpack opens an archive and unpacks it; see [Archive.Unpack]. It does not verify it.
func Unpack(ctx context.Context, d disk.Disk, archivePath, top string) (manifest.Package, error) {
	a, err := Open(ctx, d, archivePath, nil)
	if err != nil {
		return manifest.Package{}, err
	}
	defer a.Close()
	return a.Unpack(ctx, top)
}

// Unpack unpacks the archive below the host's top folder and returns the package's
// description. Its Home is then complete and durable, and holds a manifest.yaml even
// if the archive has none. Unpack makes no link and starts nothing. After an error or
// a crash no part of a home is left; a crash may leave a staging folder, which the
// next Unpack of that package removes.
//
// Unpack does not check that the package fits the host: see manifest.Package.Fits.
func (a *Archive) Unpack(ctx context.Context, top string) (manifest.Package, error) {
	p, err := a.unpack(ctx, top)
	if err != nil {
		return manifest.Package{}, fmt.Errorf("unpack %s: %w", a.name, err)
	}
	return p, nil
}

func (a *Archive) unpack(ctx context.Context, top string) (manifest.Package, error) {
	var none manifest.Package
	d, c := a.disk, a.scanned
	p := c.manifest.Package
	if err := prepare(d, top, p, c.unpacked); err != nil {
		return none, err
	}
	home := layout.Path(top, p.Home())
	staging := layout.Path(top, layout.Staging(p.Home()))
	err := fillStaging(d, staging, func(root disk.Root) error {
		w := &writer{root: root, contents: c, left: len(c.places), folders: map[string]bool{}, digests: digests{}}
		if err := read(ctx, a.file, io.Discard, a.limits, w.visit); err != nil {
			return err
		}
		if err := w.writeManifest(); err != nil {
			return err
		}
		if err := w.writeFile(layout.DigestsFile, 0o644, bytes.NewReader(w.digests.encode())); err != nil {
			return err
		}
		return w.finish()
	})
	if err == nil {
		err = d.Rename(opUnpack, staging, home)
	}
	if err != nil {
		err = outOfSpace(d, err, p, filepath.Dir(home), c.unpacked)
		return none, errors.Join(err, d.RemoveAll(opUnpack, staging))
	}
	if err := d.SyncDir(opUnpack, filepath.Dir(home)); err != nil {
		// A power cut could undo the rename, so the home must not be used.
		return none, errors.Join(err, d.RemoveAll(opUnpack, home))
	}
	return p, nil
}

// prepare makes the data folder, and refuses a home that exists and a disk without
// enough space.
func prepare(d disk.Disk, top string, p manifest.Package, size int64) error {
	home := layout.Path(top, p.Home())
	switch _, err := d.Lstat(opUnpack, home); {
	case err == nil:
		return fmt.Errorf("%s is at %s: %w", p.Identity(), p.Home(), ErrExists)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := d.MkdirAll(opUnpack, filepath.Dir(home), 0o755); err != nil {
		return err
	}
	if err := d.SyncDir(opUnpack, top); err != nil {
		return err
	}
	free, err := d.Free(opUnpack, filepath.Dir(home))
	if err != nil {
		return err
	}
	if free < Need(size) {
		return noSpace(p, filepath.Dir(home), size, free)
	}
	return nil
}

// fillStaging creates an empty folder and calls fill on it. The caller renames or removes
// the folder, also after an error.
func fillStaging(d disk.Disk, staging string, fill func(disk.Root) error) (err error) {
	if err := d.RemoveAll(opUnpack, staging); err != nil {
		return err
	}
	if err := d.MkdirAll(opUnpack, staging, 0o755); err != nil {
		return err
	}
	root, err := d.OpenRoot(opUnpack, staging)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return fill(root)
}

// writer writes entries into the staging folder. It runs during the second reading
// of the archive, after scan has accepted every entry.
type writer struct {
	root     disk.Root
	contents *contents // result of scan
	left     int       // files not yet read
	folders  map[string]bool
	digests  digests // of the files written so far
}

func (w *writer) visit(e checkedEntry, content io.Reader) error {
	if e.dir {
		return nil
	}
	name, err := belowTop(e, w.contents.top)
	if err != nil {
		return err
	}
	place, ok := w.contents.places[name]
	if !ok {
		return nil
	}
	w.left--
	if err := w.makeFolders(path.Dir(place)); err != nil {
		return err
	}
	if err := w.writeFile(place, e.mode, content); err != nil {
		return err
	}
	if w.digests[place] != w.contents.sums[name] {
		return ErrChanged
	}
	return nil
}

func (w *writer) makeFolders(dir string) error {
	if w.folders[dir] || dir == "." {
		return nil
	}
	if err := w.root.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for ; dir != "."; dir = path.Dir(dir) {
		w.folders[dir] = true
	}
	return nil
}

func (w *writer) writeFile(name string, mode fs.FileMode, content io.Reader) error {
	f, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, h), content)
	if err == nil {
		err = f.Sync()
	}
	w.digests[name] = [sha256.Size]byte(h.Sum(nil))
	return errors.Join(err, f.Close())
}

// finish syncs the folders, whose files writeFile has synced. It begins with the
// deepest, so that a durable folder has only durable entries.
func (w *writer) finish() error {
	if w.left != 0 {
		return ErrChanged
	}
	// A folder sorts before its subfolders, so the reverse order is deepest first.
	folders := slices.Sorted(maps.Keys(w.folders))
	slices.Reverse(folders)
	for _, dir := range append(folders, ".") {
		if err := w.root.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}
