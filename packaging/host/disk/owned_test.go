//go:build unix

package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhoMayChangeAFile(t *testing.T) {
	const service, other = 990, 1000
	for name, c := range map[string]struct {
		mode  fs.FileMode
		owner int
		uid   int
		says  string
	}{
		"root's folder":                   {fs.ModeDir | 0o755, 0, 0, ""},
		"root's program":                  {0o755, 0, 0, ""},
		"root's link":                     {fs.ModeSymlink | 0o777, 0, 0, ""},
		"a user's own":                    {fs.ModeDir | 0o700, service, service, ""},
		"root's, for a user":              {fs.ModeDir | 0o755, 0, service, ""},
		"a service's folder":              {fs.ModeDir | 0o755, service, 0, "belongs to the user 990"},
		"a service's program":             {0o755, service, 0, "belongs to the user 990"},
		"a service's link":                {fs.ModeSymlink | 0o777, service, 0, "belongs to the user 990"},
		"another user's":                  {fs.ModeDir | 0o755, other, service, "belongs to the user 1000"},
		"a folder of its group":           {fs.ModeDir | 0o770, 0, 0, "(mode 0770)"},
		"a folder of everybody":           {fs.ModeDir | 0o757, 0, 0, "(mode 0757)"},
		"a program of its group":          {0o775, 0, 0, "(mode 0775)"},
		"/tmp":                            {fs.ModeDir | fs.ModeSticky | 0o777, 0, 0, ""},
		"another user's sticky folder":    {fs.ModeDir | fs.ModeSticky | 0o755, other, 0, "belongs to the user 1000"},
		"a sticky program of everybody's": {fs.ModeSticky | 0o777, 0, 0, "(mode 0777)"},
	} {
		err := judge("/at", c.mode, Owner{c.owner, service}, c.uid)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if err := judge("/at", 0o775, Owner{0, 0}, 0); err != nil {
		t.Errorf("a file of root's group: %v", err)
	}
	if err := judge("/at", 0o777, Own, 0); err != nil {
		t.Errorf("on a system without owners: %v", err)
	}
}

// Every folder and every link on the way counts, wherever a link leads to.
func TestCheckOwnedFollowsThePath(t *testing.T) {
	top := realDir(t)
	for _, dir := range []string{"usr/lib/1.0.0", "etc", "open/lib"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(top, "usr/lib/1.0.0/muster"), "", 0o755)
	write(t, filepath.Join(top, "open/lib/muster"), "", 0o755)
	link := func(target, at string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(top, at)); err != nil {
			t.Fatal(err)
		}
	}
	link(filepath.Join(top, "usr/lib/1.0.0"), "etc/lib")
	link(filepath.Join(top, "etc/lib/muster"), "usr/muster")
	link("../open/lib", "etc/elsewhere")
	check := func(path, want string) {
		t.Helper()
		err := CheckOwned(OS{}, "test", filepath.Join(top, path), os.Getuid())
		exposed := new(ExposedError)
		if want == "" && err != nil || want != "" && (!errors.As(err, &exposed) || exposed.Path != filepath.Join(top, want)) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	check("usr/muster", "")
	for _, open := range []string{"etc", "usr/lib", "usr/lib/1.0.0/muster", "open"} {
		at := filepath.Join(top, open)
		if err := os.Chmod(at, 0o757); err != nil {
			t.Fatal(err)
		}
		if open == "open" {
			check("usr/muster", "")
			check("etc/elsewhere/muster", open)
		} else {
			check("usr/muster", open)
		}
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The owner of a link can replace it only where everybody may make names.
	if os.Getuid() == 0 {
		if err := os.Lchown(filepath.Join(top, "etc/lib"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		check("usr/muster", "")
		if err := os.Chmod(filepath.Join(top, "etc"), 0o777|fs.ModeSticky); err != nil {
			t.Fatal(err)
		}
		check("usr/muster", "etc/lib")
	}
	if err := CheckOwned(OS{}, "test", filepath.Join(top, "etc/none"), os.Getuid()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
}
