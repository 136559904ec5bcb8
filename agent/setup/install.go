package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/control"
	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/doctor"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	opInstall = "install"

	// writeCheck is the file that is made and removed to check that the installation can write.
	writeCheck = ".muster-write-check"
)

// Services is the host's service manager.
type Services interface {
	// Check returns an error if Install would fail for a reason that can be known before
	// anything is changed.
	Check(r layout.Roots) error
	// Install registers the agent, and returns the service's name.
	Install(r layout.Roots) (name string, err error)
	Start(name string, r layout.Roots) error
	// Remove stops and removes the service. It returns nil if there is none.
	Remove(name string, r layout.Roots) error
}

// Installation describes what to install and how.
type Installation struct {
	Disk disk.Disk
	Top  string // absolute
	// System installs into the folders of a system: the version is below its prefix, and Top
	// is its. nil: everything is below Top.
	System *layout.System
	// UnsafeTop permits root to install below a folder that other users can change.
	UnsafeTop bool
	// Package is the archive to install. Empty means the version that the running program
	// belongs to. With a System it is empty.
	Package string
	// Executable is the running program.
	Executable string
	// Enrollment is nil for a host that is enrolled later. Then the root of TrustRoot verifies
	// Package, with the signed metadata that lie beside it.
	Enrollment *Enrollment
	TrustRoot  string
	// Services is nil if the agent is not installed as a service.
	Services Services
}

// Installed is the result of an installation.
type Installed struct {
	Version  manifest.Identity
	Service  string
	Identity *identity.Identity
}

// Run installs the agent. After an error the host is as before.
func (i Installation) Run(ctx context.Context) (_ Installed, err error) {
	var out Installed
	if err := i.checkOwners(); err != nil {
		return out, err
	}
	if i.Services != nil {
		if err := i.Services.Check(i.roots()); err != nil {
			return out, err
		}
	}
	before, err := i.look()
	if err != nil {
		return out, err
	}
	if err := i.checkFolder(); err != nil {
		return out, err
	}
	var s *enrollmentSession
	if i.Enrollment != nil {
		if s, err = i.Enrollment.prepare(ctx); err != nil {
			return out, err
		}
		defer s.close()
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.undo(before, out.Service))
		}
	}()
	for _, dir := range []string{i.Top, layout.Path(i.Top, layout.DataDir), i.roots().LinkDir()} {
		if err := i.Disk.MkdirAll(opInstall, dir, 0o755); err != nil {
			return out, err
		}
	}
	if err := keepPrivate(i.Top); err != nil {
		return out, err
	}
	pkg, err := i.place(ctx, s, before.system)
	if err != nil {
		return out, err
	}
	out.Version = pkg.Identity()
	if err := i.layOut(pkg); err != nil {
		return out, err
	}
	if err := i.linkBelowPrefix(); err != nil {
		return out, err
	}
	if i.Services != nil {
		if out.Service, err = i.installService(); err != nil {
			return out, err
		}
	}
	if s != nil {
		out.Identity, err = s.enroll(ctx, i.Disk, i.Top, out.Version, host.Read())
		if err != nil {
			return out, err
		}
	}
	if i.Services != nil {
		if err := i.Services.Start(out.Service, i.roots()); err != nil {
			return out, fmt.Errorf("start service %s: %w (install with --no-service to start the agent yourself)", out.Service, err)
		}
	}
	if s != nil {
		return out, identity.EndEnrollment(i.Disk, i.Top)
	}
	return out, nil
}

// roots returns the folders of the installation.
func (i Installation) roots() layout.Roots {
	if i.System == nil {
		return layout.Roots{Top: i.Top}
	}
	return i.System.Roots()
}

// checkOwners refuses folders from which root would run what other users put there.
func (i Installation) checkOwners() error {
	if !runsAsRoot() || i.UnsafeTop {
		return nil
	}
	if i.System == nil {
		return checkOwners("--top", i.Top)
	}
	return errors.Join(checkOwners("--prefix", i.System.Versions()), checkOwners("--sysconfdir", i.roots().Links), checkOwners("--localstatedir", i.Top))
}

// before is what there was before the installation, for its undoing.
type before struct {
	top    bool
	system systemBefore
}

// look refuses folders that an installation would change.
func (i Installation) look() (b before, err error) {
	if b.top, err = i.checkTop(); err != nil || i.System == nil {
		return b, err
	}
	b.system, err = i.lookAtSystem()
	return b, err
}

// checkTop refuses a folder that is not empty.
func (i Installation) checkTop() (existed bool, err error) {
	entries, err := i.Disk.ReadDir(opInstall, i.Top)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// An earlier try whose answer was lost has left it.
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return slices.Contains(layout.Copies(layout.EnrollmentFile), e.Name()) })
	for _, e := range entries {
		if e.Name() == layout.AgentLink {
			return true, fmt.Errorf("an agent is already installed in %s: upgrade it with `muster-agent upgrade VERSION`, enrol it again with `muster-agent enroll`, or remove it first with `muster-agent uninstall`", i.Top)
		}
	}
	if len(entries) > 0 {
		return true, fmt.Errorf("%s is not empty (it holds %s): choose another folder with %s, or empty this one", i.Top, entries[0].Name(), topFlag(i.roots()))
	}
	return true, nil
}

// checkFolder refuses a folder in which nothing can be made, or from which no program can be
// started, before there is anything to undo.
func (i Installation) checkFolder() error {
	folder := i.Top
	for folder != filepath.Dir(folder) {
		if _, err := i.Disk.Lstat(opInstall, folder); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		folder = filepath.Dir(folder)
	}
	if f := doctor.NoExec(folder); f.Level == doctor.Problem {
		return fmt.Errorf("%s: %s: mend it with `%s`, or choose another folder", topFlag(i.roots()), f.Found, f.Mend)
	}
	name := filepath.Join(folder, writeCheck)
	f, err := i.Disk.OpenFile(opInstall, name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w: `muster-agent doctor --top %s` names what mends it", topFlag(i.roots()), err, i.Top)
	}
	return errors.Join(f.Close(), i.Disk.Remove(opInstall, name))
}

// place makes the home of the version.
func (i Installation) place(ctx context.Context, s *enrollmentSession, system systemBefore) (manifest.Package, error) {
	if i.System != nil {
		return system.version, install.LinkHome(i.Disk, i.Top, system.version.Home(), system.folder)
	}
	if i.Package == "" {
		return i.copyRunning(ctx)
	}
	authority, err := i.authority(ctx, s)
	if err != nil {
		return manifest.Package{}, err
	}
	archive, err := i.copyPackage(ctx)
	if err != nil {
		return manifest.Package{}, err
	}
	p, err := i.unpackCopy(ctx, s, authority, archive)
	return p, errors.Join(err, i.Disk.RemoveAll(opInstall, filepath.Dir(archive)))
}

// copyPackage copies the archive into the installation, where only the installing user may
// change it, and returns the copy's path. Package is opened only here: its owner may change
// it, or put another file under its name, at any time.
func (i Installation) copyPackage(ctx context.Context) (string, error) {
	from, err := i.Disk.OpenFile(opInstall, i.Package, os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer from.Close()
	dir := layout.Path(i.Top, layout.DownloadsDir)
	if err := i.Disk.MkdirAll(opInstall, dir, 0o700); err != nil {
		return "", err
	}
	name := filepath.Join(dir, filepath.Base(i.Package))
	to, err := i.Disk.OpenFile(opInstall, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	n, err := io.Copy(to, io.LimitReader(disk.Reader(ctx, from), download.MaxSize+1))
	if err == nil && n > download.MaxSize {
		err = fmt.Errorf("%s has more than %d bytes, the limit of a package", i.Package, int64(download.MaxSize))
	}
	return name, errors.Join(err, to.Close())
}

func (i Installation) unpackCopy(ctx context.Context, s *enrollmentSession, authority trust.Authority, archive string) (manifest.Package, error) {
	expect, err := i.expect(ctx, s, authority)
	if err != nil {
		return manifest.Package{}, err
	}
	a, err := install.Open(ctx, i.Disk, archive, func(r io.Reader) error {
		_, err := expect.Verify(r)
		return err
	})
	if err != nil {
		return manifest.Package{}, err
	}
	defer a.Close()
	if err := errors.Join(a.Manifest.Package.CheckComponent(""), a.Manifest.Package.Fits(runtime.GOOS, runtime.GOARCH)); err != nil {
		return manifest.Package{}, err
	}
	return a.Unpack(ctx, i.Top)
}

// authority returns the authority that verifies the package: the one of the enrolment, or
// the root that is pinned here until the host is enrolled.
func (i Installation) authority(ctx context.Context, s *enrollmentSession) (trust.Authority, error) {
	if s != nil {
		return s.pin(i.Disk, i.Top)
	}
	if err := checkRoot(i.TrustRoot); err != nil {
		return nil, err
	}
	root, err := readRoot(ctx, i.beside, i.TrustRoot)
	if err == nil {
		err = tuf.Pin(i.Disk, layout.Path(i.Top, layout.TrustDir), root)
	}
	if err != nil {
		return nil, fmt.Errorf("--trust-root: %w", i.explainMetadata(err))
	}
	return &tuf.Client{Disk: i.Disk, Dir: layout.Path(i.Top, layout.TrustDir)}, nil
}

// expect returns what the publishers say about the package.
func (i Installation) expect(ctx context.Context, s *enrollmentSession, authority trust.Authority) (*trust.Expectation, error) {
	expect, err := authority.Expect(ctx, filepath.Base(i.Package), i.beside)
	switch {
	case err != nil && s == nil:
		err = i.explainMetadata(err)
	case err != nil && s.isAdminPort(ctx):
		err = s.wrongPort()
	}
	return expect, err
}

// explainMetadata says what mends the signed metadata beside the package.
func (i Installation) explainMetadata(err error) error {
	if errors.Is(err, tuf.ErrNotServed) || errors.Is(err, tuf.ErrExpired) && errors.Is(err, trust.ErrTransient) {
		return fmt.Errorf("%w; this host has no server yet, so %s must hold a copy of the signed metadata that is less than a day old: make it again with `muster package keys mirror`, and copy its files there",
			err, filepath.Dir(i.Package))
	}
	return err
}

// beside reads a file from beside the package.
func (i Installation) beside(_ context.Context, name string, limit int64) ([]byte, error) {
	f, err := i.Disk.OpenFile(opInstall, filepath.Join(filepath.Dir(i.Package), name), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	return data, errors.Join(err, f.Close())
}

// copyRunning copies the version that the running program belongs to.
func (i Installation) copyRunning(ctx context.Context) (manifest.Package, error) {
	m, err := i.runningManifest()
	if err != nil {
		return manifest.Package{}, err
	}
	if m == nil {
		return manifest.Package{}, fmt.Errorf("there is no %s beside %s, so it is not from a package: pass --package ARCHIVE", manifest.FileName, i.Executable)
	}
	return m.Package, i.copyHome(ctx, filepath.Dir(i.Executable), m)
}

// runningManifest returns the manifest of the version that the running program belongs to. It
// is beside the program in a home, and two folders up in an unpacked archive. The result is nil
// if there is none.
func (i Installation) runningManifest() (*manifest.Manifest, error) {
	folder := filepath.Dir(i.Executable)
	for _, file := range []string{filepath.Join(folder, manifest.FileName), filepath.Join(folder, "..", "..", manifest.FileName)} {
		f, err := i.Disk.OpenFile(opInstall, file, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m, err := manifest.Parse(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return m, errors.Join(m.Package.CheckComponent(""), m.Package.Fits(runtime.GOOS, runtime.GOARCH))
	}
	return nil, nil
}

// copyHome copies programs and manifest, but not the state, and renames the home when it
// is complete.
func (i Installation) copyHome(ctx context.Context, folder string, m *manifest.Manifest) error {
	home := layout.Path(i.Top, m.Package.Home())
	staging := layout.Path(i.Top, layout.Staging(m.Package.Home()))
	if err := disk.CopyTree(ctx, i.Disk, opInstall, folder, staging); err != nil {
		return err
	}
	if err := i.Disk.RemoveAll(opInstall, filepath.Join(staging, layout.RunDir)); err != nil {
		return err
	}
	if err := i.setModes(staging); err != nil {
		return err
	}
	data, err := m.Encode()
	if err != nil {
		return err
	}
	if err := disk.WriteFile(i.Disk, opInstall, filepath.Join(staging, manifest.FileName), data, 0o644); err != nil {
		return err
	}
	if err := install.RecordDigests(i.Disk, staging); err != nil {
		return err
	}
	if err := i.Disk.Rename(opInstall, staging, home); err != nil {
		return err
	}
	return i.Disk.SyncDir(opInstall, filepath.Dir(home))
}

// setModes gives the copy of a version the modes of one that was unpacked. Those of the original are
// private if somebody has unpacked it under the umask 077.
func (i Installation) setModes(path string) error {
	folder, err := i.Disk.OpenFolder(opInstall, path)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Chmod(0o755); err != nil {
		return err
	}
	names, err := folder.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		fi, err := folder.Lstat(name)
		switch {
		case err != nil:
			return err
		case fi.IsDir():
			err = i.setModes(filepath.Join(path, name))
		default:
			err = setFileMode(folder, name, fi.Mode())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func setFileMode(in disk.Folder, name string, mode fs.FileMode) error {
	f, err := in.Open(name)
	if err != nil {
		return err
	}
	perm := fs.FileMode(0o644)
	if mode&0o100 != 0 {
		perm = 0o755
	}
	return errors.Join(f.Chmod(perm), f.Close())
}

// layOut creates the links and files beside the home.
func (i Installation) layOut(p manifest.Package) error {
	roots := i.roots()
	if roots.Links != "" {
		if err := disk.Point(i.Disk, opInstall, roots.Top, roots.Link(layout.StateLink)); err != nil {
			return err
		}
	}
	for _, program := range []string{layout.AgentLink, layout.WatcherLink} {
		if _, err := i.Disk.Lstat(opInstall, layout.Path(i.Top, path.Join(p.Home(), program))); err != nil {
			return fmt.Errorf("package has no program %s: %w", program, err)
		}
		if err := disk.Point(i.Disk, opInstall, roots.Target(p.Home(), program), roots.Link(program)); err != nil {
			return err
		}
		if roots.Links == "" {
			continue
		}
		if err := disk.Point(i.Disk, opInstall, roots.Link(program), filepath.Join(i.Top, program)); err != nil {
			return err
		}
	}
	if err := disk.WriteFile(i.Disk, opInstall, layout.Path(i.Top, layout.ActiveCommitFile), []byte(p.Hash+"\n"), 0o644); err != nil {
		return err
	}
	if roots.Links != "" {
		return i.configureSystem()
	}
	return disk.WriteFile(i.Disk, opInstall, layout.Path(i.Top, layout.ConfigFile), config.Template, 0o644)
}

func (i Installation) installService() (string, error) {
	name, err := i.Services.Install(i.roots())
	if err != nil {
		return "", fmt.Errorf("register the agent as a service: %w (install with --no-service to start it yourself)", err)
	}
	file := layout.Path(i.Top, layout.ServiceFile)
	return name, disk.WriteFile(i.Disk, opInstall, file, []byte(name+"\n"), 0o644)
}

// undo removes the installation. The top folder was empty or did not exist before. It stays if the
// server may have enrolled the host, with the id of that enrolment for the next try.
func (i Installation) undo(b before, service string) error {
	var errs []error
	if service != "" {
		errs = append(errs, i.Services.Remove(service, i.roots()))
	}
	errs = append(errs, removeInstalled(i.Disk, i.roots()))
	if !b.top && !identity.EnrollmentPending(i.Disk, i.Top) {
		errs = append(errs, i.Disk.Remove(opInstall, i.Top))
	}
	if i.System != nil {
		errs = append(errs, i.undoSystem(b.system))
	}
	return errors.Join(errs...)
}

// removeInstalled removes everything an installation puts under top, the pointer and the
// watcher's link, and nothing else.
func removeInstalled(d disk.Disk, roots layout.Roots) error {
	var errs []error
	links := []string{layout.AgentLink, layout.AgentLink + layout.NewSuffix, layout.WatcherLink, layout.WatcherLink + layout.NewSuffix}
	// The pointer first, so that nothing here can be started any more.
	if roots.Links != "" {
		for _, name := range slices.Concat(links, []string{layout.StateLink, layout.StateLink + layout.NewSuffix}) {
			errs = append(errs, d.Remove(opInstall, roots.Link(name)))
		}
	}
	settings := []string{layout.ConfigFile, layout.ConfigFile + layout.NewSuffix}
	for _, name := range slices.Concat(links, settings, layout.Copies(layout.IdentityFile), layout.Copies(layout.WatcherIdentityFile)) {
		errs = append(errs, d.Remove(opInstall, layout.Path(roots.Top, name)))
	}
	errs = append(errs, d.Remove(opInstall, probe.SocketPath(roots.Top)), d.RemoveAll(opInstall, control.StagingDir(roots.Top)))
	errs = append(errs, d.RemoveAll(opInstall, layout.Path(roots.Top, layout.DataDir)))
	return errors.Join(errs...)
}
