// Package serverlayout places the versions of a server beside each other on its machine, and
// determines which one runs. The commands `muster server install`, `muster server versions` and
// `muster server upgrade` use it.
//
//	<prefix>/bin/muster           → <prefix>/lib/muster/default/bin/muster
//	<prefix>/lib/muster/default   → <sysconfdir>/muster/lib
//	<sysconfdir>/muster/lib       → <prefix>/lib/muster/1.2.0    the pointer
//	<prefix>/lib/muster/1.2.0/bin/muster
//
// Only the pointer changes when another version is to run, so the prefix may be read-only
// between installations. All other links are the same in every version.
//
// The pointer says what `muster` is for everybody on the machine, root among them. So in an
// installation of root's only root writes it, and the server, which runs as a user of its own, asks
// root's unit for another version (request.go).
package serverlayout

import (
	"context"
	_ "embed" // the units
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

const (
	op = "server layout"

	program = "muster"
	// defaultLink is the link beside the versions.
	defaultLink = "default"
)

// Layout is an installation of servers on this machine. All fields but Run are required.
type Layout struct {
	Disk disk.Disk
	// Prefix holds the programs, such as /usr, and SysConfDir the pointer, such as /etc. Both
	// are absolute.
	Prefix, SysConfDir string
	// Version runs a program and returns its version.
	Version func(ctx context.Context, program string) (string, error)
	// Run is the folder of sockets, /run if it is empty.
	Run string
}

func (l *Layout) folder() string { return filepath.Join(l.Prefix, "lib", program) }

// Home returns the folder of a version.
func (l *Layout) Home(version string) string { return filepath.Join(l.folder(), version) }

// Program returns the program of a version.
func (l *Layout) Program(version string) string {
	return filepath.Join(l.Home(version), "bin", program)
}

// Link returns the path under which the program of the current version is run.
func (l *Layout) Link() string { return filepath.Join(l.Prefix, "bin", program) }

func (l *Layout) pointer() string { return filepath.Join(l.SysConfDir, program, "lib") }

// Locate returns the prefix and the version of a program that is installed in a layout; both are
// empty for one elsewhere.
func Locate(path string) (prefix, version string) {
	home := filepath.Dir(filepath.Dir(path))
	folder := filepath.Dir(home)
	lib := filepath.Dir(folder)
	if filepath.Base(filepath.Dir(path)) != "bin" || filepath.Base(folder) != program || filepath.Base(lib) != "lib" {
		return "", ""
	}
	if !isVersion(filepath.Base(home)) {
		return "", ""
	}
	return filepath.Dir(lib), filepath.Base(home)
}

// Of returns the layout in which a program is installed, nil for one elsewhere. The links say
// where the pointer is.
func Of(d disk.Disk, program string, version func(ctx context.Context, program string) (string, error)) (*Layout, error) {
	prefix, _ := Locate(program)
	if prefix == "" {
		return nil, nil
	}
	l := &Layout{Disk: d, Prefix: prefix, Version: version}
	var err error
	if l.SysConfDir, err = SysConfDirOf(d, prefix); err != nil {
		return nil, err
	}
	return l, nil
}

// SysConfDirOf returns the folder of configuration that has the pointer of the installation in a prefix,
// as its links say. The error is fs.ErrNotExist if nothing is installed there.
func SysConfDirOf(d disk.Disk, prefix string) (string, error) {
	l := &Layout{Disk: d, Prefix: prefix}
	link := filepath.Join(l.folder(), defaultLink)
	pointer, err := d.Readlink(op, link)
	if err != nil {
		return "", err
	}
	l.SysConfDir = filepath.Dir(filepath.Dir(pointer))
	if pointer != l.pointer() {
		return "", fmt.Errorf("%s leads to %s, which is no pointer of an installation: run `muster server install` again", link, pointer)
	}
	return l.SysConfDir, nil
}

// CurrentProgram returns the path of the program of the current version, through the pointer.
func (l *Layout) CurrentProgram() string {
	return filepath.Join(l.folder(), defaultLink, "bin", program)
}

// The units of systemd.
var (
	//go:embed muster.service
	serverUnit string
	//go:embed muster-switch.socket
	switchSocket string
	//go:embed muster-switch@.service
	switchUnit string
)

const (
	// DefaultUser is the user that servers run as, and the name of its group.
	DefaultUser = program
	// ServerUnit is the unit of the server, and SwitchUnit that of the socket where it asks for
	// another version.
	ServerUnit, SwitchUnit = "muster.service", "muster-switch.socket"
)

// Unit is a file with a unit of systemd.
type Unit struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Units returns the units that run the current version as a user, with a configuration file (empty
// means none), and that switch versions for it.
func (l *Layout) Units(user, config string) []Unit {
	flag := ""
	if config != "" {
		flag = " --config " + config
	}
	fill := strings.NewReplacer("@USER@", user, "@PREFIX@", l.Prefix, "@SYSCONFDIR@", l.SysConfDir, "@CONFIG@", flag, "@SOCKET@", l.Socket())
	return []Unit{
		{ServerUnit, fill.Replace(serverUnit)},
		{SwitchUnit, fill.Replace(switchSocket)},
		{"muster-switch@.service", fill.Replace(switchUnit)},
	}
}

// Installed is a version on this machine.
type Installed struct {
	Version string `json:"version"`
	Program string `json:"program"`
	// Current means that it is the one that is run.
	Current bool `json:"is_current,omitempty"`
	// Problem is why it cannot be run; empty if it can.
	Problem string `json:"problem,omitempty"`
}

// Current returns the version that is run, empty if there is none.
func (l *Layout) Current() (string, error) {
	target, err := l.Disk.Readlink(op, l.pointer())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case target != l.Home(filepath.Base(target)) || !isVersion(filepath.Base(target)):
		return "", fmt.Errorf("%s leads to %s, which is no version in %s: correct it with `muster server versions switch --force`", l.pointer(), target, l.folder())
	}
	return filepath.Base(target), nil
}

func isVersion(name string) bool {
	_, err := manifest.ParseVersion(name)
	return err == nil
}

// List returns the versions on this machine, the newest first.
func (l *Layout) List(ctx context.Context) ([]Installed, error) {
	current, err := l.Current()
	if err != nil {
		return nil, err
	}
	entries, err := l.Disk.ReadDir(op, l.folder())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var versions []string
	for _, e := range entries {
		if isVersion(e.Name()) && e.IsDir() {
			versions = append(versions, e.Name())
		}
	}
	if current != "" && !slices.Contains(versions, current) {
		versions = append(versions, current)
	}
	manifest.SortVersions(versions)
	out := make([]Installed, 0, len(versions))
	for _, v := range versions {
		i := Installed{Version: v, Program: l.Program(v), Current: v == current}
		if err := l.Check(ctx, v); err != nil {
			i.Problem = err.Error()
		}
		out = append(out, i)
	}
	return out, nil
}

// Check returns why a version cannot be run.
func (l *Layout) Check(ctx context.Context, version string) error {
	path := l.Program(version)
	fi, err := l.Disk.Lstat(op, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.notInstalled(version)
	case err != nil:
		return err
	case !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s is no program", path)
	}
	is, err := l.Version(ctx, path)
	if err != nil {
		return fmt.Errorf("%s does not start: %w", path, err)
	}
	if is != version {
		return fmt.Errorf("%s is version %s", path, is)
	}
	return nil
}

func (l *Layout) notInstalled(version string) error {
	return fmt.Errorf("version %s is not installed in %s: run `muster server install` of that version", version, l.folder())
}

// Install copies a program of the version, which must be able to run here, beside the versions
// that are there, and makes the links that are missing. The first version becomes the current
// one; later ones do by Switch. It returns false if the version was there.
func (l *Layout) Install(ctx context.Context, version, from string) (fresh bool, err error) {
	if _, err := manifest.ParseVersion(version); err != nil {
		return false, fmt.Errorf("this program: %w: only released versions are installed", err)
	}
	fresh, err = l.place(ctx, version, from)
	if err != nil {
		return false, err
	}
	for _, link := range []struct{ at, to string }{
		{filepath.Join(l.folder(), defaultLink), l.pointer()},
		{l.Link(), l.CurrentProgram()},
	} {
		if err := l.link(link.at, link.to); err != nil {
			return fresh, err
		}
	}
	current, err := l.Current()
	if err != nil || current != "" {
		return fresh, err
	}
	return fresh, l.Switch(ctx, version, false)
}

// place copies the program of a version to its home.
func (l *Layout) place(ctx context.Context, version, from string) (fresh bool, err error) {
	home := l.Home(version)
	if _, err := l.Disk.Lstat(op, home); err == nil {
		if err := l.Check(ctx, version); err != nil {
			return false, fmt.Errorf("%w: remove it first with `muster server versions remove %s`", err, version)
		}
		return false, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	// The home has its name once it is complete, so that no crash leaves a part of a version.
	staging := filepath.Join(l.folder(), layout.StagingPrefix+version)
	if err := l.Disk.RemoveAll(op, staging); err != nil {
		return false, err
	}
	bin := filepath.Join(staging, "bin")
	if err := l.Disk.MkdirAll(op, bin, 0o755); err != nil {
		return false, err
	}
	err = l.copy(from, filepath.Join(bin, program))
	for _, dir := range []string{bin, staging} {
		if err == nil {
			err = l.Disk.SyncDir(op, dir)
		}
	}
	if err == nil {
		err = l.Disk.Rename(op, staging, home)
	}
	if err != nil {
		return false, errors.Join(err, l.Disk.RemoveAll(op, staging))
	}
	for _, dir := range []string{l.folder(), filepath.Dir(l.folder()), l.Prefix} {
		if err := l.Disk.SyncDir(op, dir); err != nil {
			return false, err
		}
	}
	return true, l.Check(ctx, version)
}

func (l *Layout) copy(from, to string) error {
	in, err := l.Disk.OpenFile(op, from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := l.Disk.OpenFile(op, to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o755) // the umask may have taken something away
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// link makes a link that does not change any more. One that is there and leads elsewhere is of
// another installation.
func (l *Layout) link(at, to string) error {
	target, err := l.Disk.Readlink(op, at)
	switch {
	case err == nil && target == to:
		return nil
	case err == nil:
		return fmt.Errorf("%s leads to %s, not to %s: remove it, or choose another --prefix", at, target, to)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is not the link of an earlier installation: remove it, or choose another --prefix: %w", at, err)
	}
	if err := l.Disk.MkdirAll(op, filepath.Dir(at), 0o755); err != nil {
		return err
	}
	return disk.Point(l.Disk, op, to, at)
}

// Switch makes a version the one that is run from the next start of the server on, if it can
// follow the current one by [manifest.CheckStep] or force is set. It writes only below the folder
// of the configuration.
func (l *Layout) Switch(ctx context.Context, version string, force bool) error {
	if err := l.Check(ctx, version); err != nil {
		return err
	}
	if !force {
		current, err := l.Current()
		if err == nil && current != "" {
			err = manifest.CheckStep(current, version)
		}
		if err != nil {
			return err
		}
	}
	if err := l.Disk.MkdirAll(op, filepath.Dir(l.pointer()), 0o755); err != nil {
		return err
	}
	return disk.Point(l.Disk, op, l.Home(version), l.pointer())
}

// Remove removes a version that is not the current one.
func (l *Layout) Remove(version string) error {
	if _, err := manifest.ParseVersion(version); err != nil {
		return err
	}
	current, err := l.Current()
	if err != nil {
		return err
	}
	if version == current {
		return fmt.Errorf("version %s is the current one: switch to another one first, and restart the server", version)
	}
	home := l.Home(version)
	if _, err := l.Disk.Lstat(op, home); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("version %s is not installed in %s", version, l.folder())
	}
	// Without its name it is no version any more, whatever a crash leaves of it.
	staging := filepath.Join(l.folder(), layout.StagingPrefix+version)
	if err := l.Disk.RemoveAll(op, staging); err != nil {
		return err
	}
	if err := l.Disk.Rename(op, home, staging); err != nil {
		return err
	}
	return errors.Join(l.Disk.SyncDir(op, l.folder()), l.Disk.RemoveAll(op, staging))
}
