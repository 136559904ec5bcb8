package install

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

const opLink = "link version"

// ReadVersion returns the package in a folder that the system's packages brought, which has
// the files of a home. It is not checked that its program starts.
func ReadVersion(d disk.Disk, folder string) (manifest.Package, error) {
	text, err := d.ReadFile(opLink, filepath.Join(folder, manifest.FileName))
	if err != nil {
		return manifest.Package{}, err
	}
	m, err := manifest.Parse(bytes.NewReader(text))
	if err != nil {
		return manifest.Package{}, fmt.Errorf("%s: %w", filepath.Join(folder, manifest.FileName), err)
	}
	for _, program := range []string{layout.AgentLink, layout.WatcherLink} {
		fi, err := d.Lstat(opLink, filepath.Join(folder, program))
		if err != nil {
			return manifest.Package{}, err
		}
		if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0 {
			return manifest.Package{}, fmt.Errorf("%s is no program", filepath.Join(folder, program))
		}
	}
	return m.Package, nil
}

// LinkHome makes a home under top whose files are links to those in folder, which
// [ReadVersion] has read and which may be read-only. So the state of the version, which its home
// holds, is beside the links, and removing the home removes nothing in the folder. The digests
// show later whether the folder still holds the same files.
//
// folder is absolute and has no links. LinkHome fails if the home exists.
func LinkHome(d disk.Disk, top, home, folder string) error {
	full, staging := layout.Path(top, home), layout.Path(top, layout.Staging(home))
	if err := d.RemoveAll(opLink, staging); err != nil {
		return err
	}
	if err := d.MkdirAll(opLink, staging, 0o755); err != nil {
		return err
	}
	entries, err := d.ReadDir(opLink, folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == layout.RunDir || e.Name() == layout.DigestsFile {
			continue // they belong to the home
		}
		if err := d.Symlink(opLink, filepath.Join(folder, e.Name()), filepath.Join(staging, e.Name())); err != nil {
			return err
		}
	}
	if err := recordDigests(d, folder, staging); err != nil {
		return err
	}
	// The sync of the digests has made the links durable, which are in the same folder.
	if err := d.Rename(opLink, staging, full); err != nil {
		return err
	}
	return d.SyncDir(opLink, filepath.Dir(full))
}
