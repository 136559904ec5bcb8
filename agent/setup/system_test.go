//go:build unix

package setup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// newSystem returns a system whose packages have brought version 1.0.0.
func newSystem(t *testing.T) layout.System {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := layout.System{Prefix: filepath.Join(dir, "usr"), SysConfDir: filepath.Join(dir, "etc"), LocalStateDir: filepath.Join(dir, "var")}
	p := newPublisher(t)
	unpacked := filepath.Join(t.TempDir(), "h")
	i := Installation{Disk: disk.OS{}, Top: unpacked, UnsafeTop: true, Package: p.pack(t, runtime.GOOS, ""), TrustRoot: p.root}
	if _, err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	program, err := filepath.EvalSymlinks(filepath.Join(unpacked, layout.AgentLink))
	if err == nil {
		err = errors.Join(os.MkdirAll(s.Versions(), 0o755), os.Rename(filepath.Dir(program), s.Version("1.0.0")), os.Remove(filepath.Join(s.Version("1.0.0"), layout.DigestsFile)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func systemInstallation(s layout.System, m *manager) Installation {
	return Installation{
		Disk: disk.OS{}, Top: s.Roots().Top, System: &s, UnsafeTop: true, Services: m,
		Executable: filepath.Join(s.Version("1.0.0"), layout.AgentLink),
	}
}

// files returns the names below a folder, with the targets of links.
func files(t *testing.T, folder string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(folder, path)
		if err == nil && e.Type()&fs.ModeSymlink != 0 {
			var target string
			target, err = os.Readlink(path)
			rel += " -> " + strings.TrimPrefix(target, folder)
		}
		if !e.IsDir() {
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestInstallIntoTheFoldersOfASystem(t *testing.T) {
	s, m := newSystem(t), &manager{}
	dir := filepath.Dir(s.Prefix)
	brought := files(t, dir)
	i := systemInstallation(s, m)
	done, err := i.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join("var/lib/muster-agent/data", "muster-agent-1.0.0-"+done.Version.Hash[:6])
	version := "/usr/lib/muster-agent/1.0.0/"
	want := []string{
		"etc/muster-agent/agent.yml",
		"etc/muster-agent/muster-agent -> state/data/" + filepath.Base(home) + "/muster-agent",
		"etc/muster-agent/muster-watcher -> state/data/" + filepath.Base(home) + "/muster-watcher",
		"etc/muster-agent/state -> /var/lib/muster-agent",
		"usr/bin/muster-agent -> /usr/lib/muster-agent/default/muster-agent",
		"usr/lib/muster-agent/1.0.0/manifest.yaml", "usr/lib/muster-agent/1.0.0/muster-agent", "usr/lib/muster-agent/1.0.0/muster-watcher",
		"usr/lib/muster-agent/default -> /etc/muster-agent",
		"var/lib/muster-agent/agent.yml -> /etc/muster-agent/agent.yml",
		"var/lib/muster-agent/data/active.commit",
		home + "/.digests",
		home + "/manifest.yaml -> " + version + "manifest.yaml",
		home + "/muster-agent -> " + version + "muster-agent",
		home + "/muster-watcher -> " + version + "muster-watcher",
		"var/lib/muster-agent/data/service",
		"var/lib/muster-agent/muster-agent -> /etc/muster-agent/muster-agent",
		"var/lib/muster-agent/muster-watcher -> /etc/muster-agent/muster-watcher",
	}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("installed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if p, err := install.CheckIntact(t.Context(), disk.OS{}, i.Top, "data/"+filepath.Base(home)); err != nil || p.Identity() != done.Version {
		t.Errorf("the home holds %v, %v", p.Identity(), err)
	}
	running, err := daemon.RunningVersion(disk.OS{}, i.Top, i.Executable, "dev")
	if err != nil || running.Identity != done.Version || running.Home != "data/"+filepath.Base(home) {
		t.Errorf("its program says it is %+v, %v", running, err)
	}
	if _, err := i.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "already installed") {
		t.Errorf("installed twice: %v", err)
	}

	// The system's packages change a program under the version.
	if err := os.WriteFile(i.Executable, []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := install.CheckIntact(t.Context(), disk.OS{}, i.Top, "data/"+filepath.Base(home)); !errors.Is(err, install.ErrDamagedHome) {
		t.Errorf("a version that was changed: %v", err)
	}

	r := Removal{
		Disk: disk.OS{}, Top: i.Top, Services: m, Lock: daemon.FileLock, Running: done.Version,
		Components: func(context.Context) ([]string, error) { return nil, nil },
	}
	out, err := r.Run(t.Context())
	if err != nil || len(out.Left)+len(out.Settings) > 0 {
		t.Errorf("removed %+v, %v", out, err)
	}
	// Below the prefix all stays: it is the system's.
	want = slices.Concat(brought, []string{"usr/bin/muster-agent -> /usr/lib/muster-agent/default/muster-agent", "usr/lib/muster-agent/default -> /etc/muster-agent"})
	slices.Sort(want)
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("after the removal there is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSettingsOfASystemAreKept(t *testing.T) {
	s, m := newSystem(t), &manager{}
	settings := s.Roots().Link(layout.ConfigFile)
	if err := errors.Join(os.MkdirAll(s.Roots().Links, 0o755), os.WriteFile(settings, []byte("host: {name: web-01}\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	i := systemInstallation(s, m)
	if _, err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := config.Load(disk.OS{}, i.Top); err != nil || c.Host.Name != "web-01" {
		t.Errorf("the agent has the settings %+v, %v", c.Host, err)
	}
	r := Removal{
		Disk: disk.OS{}, Top: i.Top, Services: m, Lock: daemon.FileLock,
		Components: func(context.Context) ([]string, error) { return nil, nil },
	}
	out, err := r.Run(t.Context())
	if err != nil || !slices.Equal(out.Settings, []string{settings}) {
		t.Errorf("removed %+v, %v", out, err)
	}
	if _, err := os.Stat(settings); err != nil {
		t.Error(err)
	}
}

// readOnlyDisk cannot make anything below a folder.
type readOnlyDisk struct {
	disk.OS
	below string
}

func (d readOnlyDisk) refuse(path string) error {
	if strings.HasPrefix(path, d.below+"/") {
		return &fs.PathError{Op: "make", Path: path, Err: syscall.EROFS}
	}
	return nil
}

func (d readOnlyDisk) MkdirAll(op, path string, perm fs.FileMode) error {
	if err := d.refuse(path); err != nil {
		return err
	}
	return d.OS.MkdirAll(op, path, perm)
}

func (d readOnlyDisk) Symlink(op, target, link string) error {
	if err := d.refuse(link); err != nil {
		return err
	}
	return d.OS.Symlink(op, target, link)
}

func TestFailedInstallationLeavesTheSystemAsItWas(t *testing.T) {
	other := func(t *testing.T, at string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte("other"), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for what, test := range map[string]struct {
		spoil func(t *testing.T, s layout.System, i *Installation, m *manager)
		says  string
	}{
		"another version": {func(t *testing.T, s layout.System, _ *Installation, _ *manager) {
			if err := os.Rename(s.Version("1.0.0"), s.Version("1.1.0")); err != nil {
				t.Fatal(err)
			}
		}, "does not hold version 1.0.0"},
		"another build": {func(t *testing.T, s layout.System, _ *Installation, _ *manager) {
			file := filepath.Join(s.Version("1.0.0"), manifest.FileName)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m, err := manifest.Parse(strings.NewReader(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			other(t, file)
			changed := strings.ReplaceAll(string(text), m.Package.Hash, "abcdef")
			if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "and this program is 1.0.0"},
		"no program": {func(t *testing.T, s layout.System, _ *Installation, _ *manager) {
			if err := os.Chmod(filepath.Join(s.Version("1.0.0"), layout.WatcherLink), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "muster-watcher is no program"},
		"a program without a manifest": {func(t *testing.T, _ layout.System, i *Installation, _ *manager) {
			i.Executable = filepath.Join(t.TempDir(), layout.AgentLink)
		}, "run the program in"},
		"another program of this name": {func(t *testing.T, s layout.System, _ *Installation, _ *manager) {
			at, _ := s.Command()
			other(t, at)
		}, "does not lead to"},
		"a pointer of another installation": {func(t *testing.T, s layout.System, _ *Installation, _ *manager) {
			other(t, s.Roots().Link(layout.AgentLink))
		}, "already installed"},
		"a read-only prefix without the links": {func(_ *testing.T, s layout.System, i *Installation, _ *manager) {
			i.Disk = readOnlyDisk{below: s.Prefix}
		}, "is missing, and the system's package has to bring it"},
		"other files in the top folder": {func(t *testing.T, s layout.System, _ *Installation, _ *manager) {
			other(t, filepath.Join(s.Roots().Top, "other"))
		}, "is not empty"},
		"service does not start": {func(_ *testing.T, _ layout.System, _ *Installation, m *manager) { m.startErr = errors.New("masked") }, "--no-service"},
	} {
		t.Run(what, func(t *testing.T) {
			s, m := newSystem(t), &manager{}
			i := systemInstallation(s, m)
			executable := filepath.Join(t.TempDir(), layout.DataDir, "home", layout.AgentLink)
			if err := os.CopyFS(filepath.Dir(executable), os.DirFS(s.Version("1.0.0"))); err != nil {
				t.Fatal(err)
			}
			i.Executable = executable // of an unpacked archive of the same version
			test.spoil(t, s, &i, m)
			before := files(t, filepath.Dir(s.Prefix))
			_, err := i.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want %q", err, test.says)
			}
			if after := files(t, filepath.Dir(s.Prefix)); !slices.Equal(after, before) {
				t.Errorf("there was\n%s\nand is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
		})
	}
}

// A package of Debian has a relative link here.
func TestInstallAcceptsTheLinksOfAPackage(t *testing.T) {
	s := newSystem(t)
	at, _ := s.Command()
	err := errors.Join(
		os.MkdirAll(filepath.Dir(at), 0o755),
		os.Symlink("../lib/muster-agent/default/muster-agent", at),
		os.Symlink("../../../etc/muster-agent", s.Default()),
	)
	if err != nil {
		t.Fatal(err)
	}
	i := systemInstallation(s, &manager{})
	if _, err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if top := disk.FindTop(disk.OS{}, i.Executable); top != i.Top {
		t.Errorf("the program finds the installation in %q, want %s", top, i.Top)
	}
}

func TestCheckSystemNamesTheFlag(t *testing.T) {
	for says, s := range map[string]layout.System{
		"":                                       {Prefix: "/usr", SysConfDir: "/etc", LocalStateDir: "/var"},
		`--prefix is "usr", want an absolute`:    {Prefix: "usr", SysConfDir: "/etc", LocalStateDir: "/var"},
		`--prefix is "", want an absolute`:       {SysConfDir: "/etc", LocalStateDir: "/var"},
		`--sysconfdir is "etc", want`:            {Prefix: "/usr", SysConfDir: "etc", LocalStateDir: "/var"},
		`--localstatedir is "../var", want`:      {Prefix: "/usr", SysConfDir: "/etc", LocalStateDir: "../var"},
		"lead to /usr/lib/muster-agent, /etc/mu": {Prefix: "/usr", SysConfDir: "/etc", LocalStateDir: "/usr"},
		"choose different ones":                  {Prefix: "/usr", SysConfDir: "/var/lib", LocalStateDir: "/var"},
	} {
		if err := CheckSystem(s); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", s, err, says)
		}
	}
}
