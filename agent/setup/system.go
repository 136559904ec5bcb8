package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// DefaultLocalStateDir is where systems have what programs write.
const DefaultLocalStateDir = "/var"

// CheckSystem returns an error unless the folders of a system are absolute and apart.
func CheckSystem(s layout.System) error {
	for _, f := range []struct{ flag, path string }{
		{"--prefix", s.Prefix}, {"--sysconfdir", s.SysConfDir}, {"--localstatedir", s.LocalStateDir},
	} {
		if !filepath.IsAbs(f.path) {
			return fmt.Errorf("%s is %q, want an absolute path", f.flag, f.path)
		}
	}
	r := s.Roots()
	if r.Links == r.Top || s.Versions() == r.Top || s.Versions() == r.Links {
		return fmt.Errorf("--prefix, --sysconfdir and --localstatedir lead to %s, %s and %s: choose different ones", s.Versions(), r.Links, r.Top)
	}
	return nil
}

// systemBefore is what there was in the folders of the system before the installation.
type systemBefore struct {
	links, config bool
	// missing are the links below the prefix that there were not.
	missing []string
	// folder has the version that the running program belongs to, which the system's packages
	// have placed below the prefix. Its path has no links, as the one of a process's program.
	folder  string
	version manifest.Package
}

// lookAtSystem refuses a system that has a pointer, or does not have the version.
func (i Installation) lookAtSystem() (b systemBefore, err error) {
	exists := func(path string) bool {
		_, lerr := i.Disk.Lstat(opInstall, path)
		if lerr != nil && !errors.Is(lerr, fs.ErrNotExist) {
			err = errors.Join(err, lerr)
		}
		return lerr == nil
	}
	roots := i.roots()
	if pointer := roots.Link(layout.AgentLink); exists(pointer) {
		return b, fmt.Errorf("an agent is already installed, with its pointer at %s: upgrade it with `muster-agent upgrade VERSION`, or remove it first with `muster-agent uninstall`", pointer)
	}
	b.links, b.config = exists(roots.Links), exists(roots.Link(layout.ConfigFile))
	for _, l := range i.prefixLinks() {
		if !exists(l.at) {
			b.missing = append(b.missing, l.at)
		}
	}
	if err == nil {
		b.folder, b.version, err = i.findVersion()
	}
	return b, err
}

// findVersion returns the folder of the version that the running program belongs to.
func (i Installation) findVersion() (folder string, p manifest.Package, err error) {
	m, err := i.runningManifest()
	if err != nil {
		return "", p, err
	}
	if m == nil {
		return "", p, fmt.Errorf("--prefix: there is no %s beside %s: run the program in %s, which the system's package brings", manifest.FileName, i.Executable, i.System.Version("VERSION"))
	}
	running := m.Package
	folder = i.System.Version(running.FullVersion())
	p, err = install.ReadVersion(i.Disk, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return "", p, fmt.Errorf("--prefix: %s does not hold version %s: install the system's package that brings it, or choose another prefix: %w", folder, running.FullVersion(), err)
	}
	if err != nil {
		return "", p, fmt.Errorf("--prefix: %w", err)
	}
	if p.Identity() != running.Identity() {
		return "", p, fmt.Errorf("--prefix: %s holds %s, and this program is %s: run the one that is there", folder, p.Identity(), running.Identity())
	}
	folder, err = disk.Resolve(i.Disk, opInstall, "", folder)
	return folder, p, err
}

// configureSystem places the settings beside the pointer, unless they are there, where
// the system's packages or people may have put them.
func (i Installation) configureSystem() error {
	file := i.roots().Link(layout.ConfigFile)
	_, err := i.Disk.Lstat(opInstall, file)
	if errors.Is(err, fs.ErrNotExist) {
		err = disk.WriteFile(i.Disk, opInstall, file, config.Template, 0o644)
	}
	if err != nil {
		return err
	}
	return disk.Point(i.Disk, opInstall, file, layout.Path(i.Top, layout.ConfigFile))
}

type prefixLink struct{ at, to string }

// prefixLinks returns the links below the prefix, which are the same for every version.
func (i Installation) prefixLinks() []prefixLink {
	at, to := i.System.Command()
	return []prefixLink{{i.System.Default(), i.roots().Links}, {at, to}}
}

// linkBelowPrefix makes the links below the prefix that the system's packages have not brought.
func (i Installation) linkBelowPrefix() error {
	if i.System == nil {
		return nil
	}
	for _, l := range i.prefixLinks() {
		if _, err := i.Disk.Lstat(opInstall, l.at); errors.Is(err, fs.ErrNotExist) {
			err := i.Disk.MkdirAll(opInstall, filepath.Dir(l.at), 0o755)
			if err == nil {
				err = disk.Point(i.Disk, opInstall, l.to, l.at)
			}
			if err != nil {
				return fmt.Errorf("--prefix: the link %s to %s is missing, and the system's package has to bring it where the prefix is read-only: %w", l.at, l.to, err)
			}
			continue
		}
		// Packages may have relative links.
		have, err := disk.Resolve(i.Disk, opInstall, "", l.at)
		if err != nil {
			return err
		}
		want, err := disk.Resolve(i.Disk, opInstall, "", l.to)
		if err != nil {
			return err
		}
		if have != want {
			return fmt.Errorf("--prefix: %s does not lead to %s: remove it, or choose other folders", l.at, l.to)
		}
	}
	return nil
}

// undoSystem removes what the installation has made outside the top folder.
func (i Installation) undoSystem(b systemBefore) error {
	var gone []string
	roots := i.roots()
	if !b.config {
		gone = append(gone, roots.Link(layout.ConfigFile), roots.Link(layout.ConfigFile)+layout.NewSuffix)
	}
	if !b.links {
		gone = append(gone, roots.Links)
	}
	var errs []error
	for _, name := range append(gone, b.missing...) {
		errs = append(errs, i.Disk.Remove(opInstall, name))
	}
	return errors.Join(errs...)
}

// removeSettings removes the settings beside the pointer if nobody has changed them, and
// their folder if it is empty then. It returns what stays.
func removeSettings(d disk.Disk, roots layout.Roots) (left []string, err error) {
	file := roots.Link(layout.ConfigFile)
	text, err := d.ReadFile(opInstall, file)
	if err == nil && bytes.Equal(text, config.Template) {
		err = d.Remove(opInstall, file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	entries, err := d.ReadDir(opInstall, roots.Links)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, d.Remove(opInstall, roots.Links)
	}
	for _, e := range entries {
		left = append(left, filepath.Join(roots.Links, e.Name()))
	}
	return left, nil
}
