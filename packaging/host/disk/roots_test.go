package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

// inSystem places the newer of the two versions below a prefix.
func inSystem(t *testing.T) (s layout.System, roots layout.Roots) {
	t.Helper()
	dir := realDir(t)
	s = layout.System{Prefix: filepath.Join(dir, "usr"), SysConfDir: filepath.Join(dir, "etc"), LocalStateDir: filepath.Join(dir, "var")}
	roots = s.Roots()
	program := filepath.Join(s.Version("1.1.0"), layout.AgentLink)
	linked := layout.Path(roots.Top, newHome+"/"+layout.AgentLink)
	for _, err := range []error{
		os.MkdirAll(filepath.Dir(roots.Top), 0o755),
		os.Rename(installed(t), roots.Top),
		os.MkdirAll(s.Version("1.1.0"), 0o755),
		os.MkdirAll(roots.Links, 0o755),
		os.Rename(linked, program),
		os.Symlink(program, linked),
		os.Symlink(roots.Links, s.Default()),
		os.Symlink(roots.Top, roots.Link(layout.StateLink)),
		os.Symlink(roots.Target(newHome, layout.AgentLink), roots.Link(layout.AgentLink)),
		os.Symlink(roots.Link(layout.AgentLink), filepath.Join(roots.Top, layout.AgentLink)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s, roots
}

// realDir returns a temporary folder whose path has no links.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAnInstallationIsFoundFromEachOfItsPrograms(t *testing.T) {
	s, roots := inSystem(t)
	for program, home := range map[string]string{
		filepath.Join(s.Version("1.1.0"), layout.AgentLink):           newHome,
		layout.Path(roots.Top, oldHome+"/"+layout.AgentLink):          oldHome,
		filepath.Join(s.Version("1.0.0"), layout.AgentLink):           "", // not installed
		filepath.Join(s.Version("1.1.0"), "other"):                    "",
		filepath.Join(filepath.Dir(s.Versions()), layout.AgentLink):   "",
		filepath.Join(t.TempDir(), "data", "home", layout.AgentLink):  "",
		filepath.Join(filepath.Dir(roots.Top), "x", layout.AgentLink): "",
	} {
		if got, err := FindHome(OS{}, roots.Top, program); got != home || err != nil {
			t.Errorf("%s is in the home %q, %v, want %q", program, got, err, home)
		}
		if home == "" {
			continue
		}
		if got := FindTop(OS{}, program); got != roots.Top {
			t.Errorf("%s belongs to %q, want %s", program, got, roots.Top)
		}
	}
	if top := FindTop(OS{}, "/usr/bin/muster-agent"); top != "" {
		t.Errorf("a program elsewhere belongs to %s", top)
	}
	fi, err := Stat(OS{}, "test", layout.Path(roots.Top, newHome+"/"+layout.AgentLink))
	if err != nil || !fi.Mode().IsRegular() {
		t.Errorf("the linked program is %v, %v", fi, err)
	}
}

// Somebody moves the top folder to a larger disk and leaves a link.
func TestAMovedInstallationIsFound(t *testing.T) {
	s, roots := inSystem(t)
	moved := filepath.Join(realDir(t), "moved")
	if err := errors.Join(os.Rename(roots.Top, moved), os.Symlink(moved, roots.Top)); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(s.Version("1.1.0"), layout.AgentLink)
	if top := FindTop(OS{}, program); top != moved {
		t.Errorf("the program belongs to %s, want %s", top, moved)
	}
	for _, top := range []string{moved, roots.Top} {
		r, err := FindRoots(OS{}, top)
		if err != nil || r.Links != roots.Links {
			t.Errorf("the roots under %s are %+v, %v", top, r, err)
		}
		target, err := os.Readlink(r.Link(layout.AgentLink))
		if err != nil || r.HomeOf(target) != newHome {
			t.Errorf("the pointer leads to %s, %v, want %s", target, err, newHome)
		}
		if home, err := FindHome(OS{}, top, program); home != newHome || err != nil {
			t.Errorf("the program is in the home %s, %v, want %s", home, err, newHome)
		}
	}
}

func TestFindRootsKnowsAPointerElsewhere(t *testing.T) {
	_, roots := inSystem(t)
	link := filepath.Join(roots.Top, layout.AgentLink)
	below := layout.Roots{Top: roots.Top}
	program := filepath.Join(t.TempDir(), layout.AgentLink)
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what   string
		change func() error
		want   layout.Roots
	}{
		{"in a system", func() error { return nil }, roots},
		{"with a pointer that is missing", func() error { return os.Remove(roots.Link(layout.AgentLink)) }, roots},
		{"with a relative pointer", func() error { return Point(OS{}, "test", newHome+"/muster-agent", link) }, below},
		{"with an absolute pointer", func() error { return Point(OS{}, "test", layout.Path(roots.Top, newHome+"/muster-agent"), link) }, below},
		{"with a link to a program", func() error { return Point(OS{}, "test", program, link) }, below},
		{"with a program", func() error { return errors.Join(os.Remove(link), os.WriteFile(link, nil, 0o755)) }, below},
		{"with nothing", func() error { return os.Remove(link) }, below},
	} {
		if err := test.change(); err != nil {
			t.Fatal(err)
		}
		if got, err := FindRoots(OS{}, roots.Top); got != test.want || err != nil {
			t.Errorf("%s: the roots are %+v, %v, want %+v", test.what, got, err, test.want)
		}
	}
}

func TestRemoveHomeLeavesWhatIsBelowThePrefix(t *testing.T) {
	s, roots := inSystem(t)
	if err := RemoveHome(OS{}, roots.Top, newHome); !errors.Is(err, ErrInUse) {
		t.Errorf("removing the version that runs: %v", err)
	}
	if err := Point(OS{}, "test", roots.Target(oldHome, layout.AgentLink), roots.Link(layout.AgentLink)); err != nil {
		t.Fatal(err)
	}
	if err := RemoveHome(OS{}, roots.Top, newHome); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(layout.Path(roots.Top, newHome)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the home: %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.Version("1.1.0"), layout.AgentLink)); err != nil {
		t.Errorf("the program below the prefix: %v", err)
	}
}
