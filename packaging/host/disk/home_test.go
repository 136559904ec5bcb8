package disk

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

const (
	oldHome = "data/muster-agent-1.0.0-3f2a9c"
	newHome = "data/muster-agent-1.1.0-3f2a9c"
)

// installed returns the top folder of a host with the homes of two versions.
func installed(t *testing.T) (top string) {
	t.Helper()
	top = t.TempDir()
	for _, home := range []string{oldHome, newHome} {
		if err := os.MkdirAll(layout.Path(top, home), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(layout.Path(top, home+"/muster-agent"), []byte("program"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

// tree returns the files and folders below top.
func tree(t *testing.T, top string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		found[path] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestRemoveHomeRemovesOneHome(t *testing.T) {
	top := installed(t)
	if err := os.Symlink(newHome+"/muster-agent", layout.Path(top, layout.AgentLink)); err != nil {
		t.Fatal(err)
	}
	if err := RemoveHome(OS{}, top, newHome); !errors.Is(err, ErrInUse) {
		t.Errorf("remove the running version: got %v, want ErrInUse", err)
	}
	for _, what := range []string{"remove", "remove what is gone"} {
		if err := RemoveHome(OS{}, top, oldHome); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	left, err := os.ReadDir(layout.Path(top, layout.DataDir))
	if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(newHome) {
		t.Errorf("data holds %v, %v", left, err)
	}
}

// overlay renames no folder, as overlayfs does with those of an image, and fails to remove a
// program if it is to.
type overlay struct {
	OS
	crash bool
}

func (o overlay) Rename(op, from, to string) error {
	return &Error{op, &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EXDEV}}
}

func (o overlay) RemoveAll(op, path string) error {
	if o.crash && filepath.Base(path) == "muster-agent" {
		return errors.New("killed")
	}
	return o.OS.RemoveAll(op, path)
}

func TestHomeThatCannotBeRenamedIsRemoved(t *testing.T) {
	top := installed(t)
	for _, name := range []string{layout.ManifestFile, layout.DigestsFile} {
		if err := os.WriteFile(layout.Path(top, oldHome+"/"+name), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveHome(overlay{crash: true}, top, oldHome); err == nil {
		t.Fatal("the crash was not noticed")
	}
	for name, want := range map[string]bool{layout.ManifestFile: false, layout.DigestsFile: true} {
		if _, err := os.Lstat(layout.Path(top, oldHome+"/"+name)); (err == nil) != want {
			t.Errorf("after a crash %s is there: %v, want %v", name, err == nil, want)
		}
	}
	if err := RemoveHome(overlay{}, top, oldHome); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(layout.Path(top, layout.DataDir))
	if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(newHome) {
		t.Errorf("data holds %v, %v", left, err)
	}
}

func TestRemoveHomeRefusesOtherFolders(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{layout.DownloadsDir, layout.DropDir, layout.TrustDir, "data/.unpack-x", "data/home/run", "other/x"} {
		if err := os.MkdirAll(layout.Path(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(layout.Path(top, layout.ActiveCommitFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	before := tree(t, top)
	for _, home := range []string{
		"", ".", "data", "data/", "data/.", "data/..", "data/../other", "../data/x", "/data/home", "other/x", "data/home/run",
		layout.DownloadsDir, layout.DropDir, layout.TrustDir, "data/.unpack-x", layout.ActiveCommitFile, `data/..\..\x`, "./data/home", "data//home",
	} {
		if err := RemoveHome(OS{}, top, home); err == nil {
			t.Errorf("RemoveHome(%q) succeeds", home)
		}
	}
	if after := tree(t, top); !maps.Equal(before, after) {
		t.Errorf("the host was %v and is %v", before, after)
	}
}

func TestRemoveHomeRefusesAHomeThatALinkLeadsInto(t *testing.T) {
	for what, link := range map[string]func(top string) string{
		"relative":                 func(string) string { return newHome + "/muster-agent" },
		"with a dot in front":      func(string) string { return "./" + newHome + "/muster-agent" },
		"absolute":                 func(top string) string { return top + "/" + newHome + "/muster-agent" },
		"with doubled slashes":     func(string) string { return "data//" + filepath.Base(newHome) + "///muster-agent" },
		"up and down":              func(top string) string { return "../" + filepath.Base(top) + "/data/../" + newHome + "/muster-agent" },
		"to the home itself":       func(string) string { return newHome },
		"to the home with a slash": func(string) string { return newHome + "/" },
		"to a file that is gone":   func(string) string { return newHome + "/gone" },
		"through another link":     func(string) string { return "../beside/alias" },
		"through a link to data":   func(string) string { return "../beside/data/" + filepath.Base(newHome) + "/muster-agent" },
		"through a renamed top":    func(string) string { return "../other-top/" + newHome + "/muster-agent" },
		"and on from there":        func(string) string { return newHome + "/linked" },
		"by a pointer elsewhere":   func(string) string { return "../beside/pointer" },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			top := filepath.Join(dir, "top")
			if err := os.Rename(installed(t), top); err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{
				os.Mkdir(filepath.Join(dir, "beside"), 0o755),
				os.Symlink("../top/"+newHome+"/muster-agent", filepath.Join(dir, "beside", "alias")),
				os.Symlink(filepath.Join(top, "data"), filepath.Join(dir, "beside", "data")),
				os.WriteFile(filepath.Join(dir, "beside", "program"), []byte("program"), 0o755),
				os.Symlink(filepath.Join(dir, "beside", "program"), filepath.Join(top, newHome, "linked")),
				os.Symlink(filepath.Join(top, newHome, "linked"), filepath.Join(dir, "beside", "pointer")),
				os.Symlink("top", filepath.Join(dir, "other-top")),
				os.Symlink(link(top), filepath.Join(top, "muster-agent")),
				os.Symlink("loop", filepath.Join(top, "loop")), // ignored, since it leads in a circle
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			// The top folder may be a link.
			for _, top := range []string{top, filepath.Join(dir, "other-top")} {
				if err := RemoveHome(OS{}, top, newHome); !errors.Is(err, ErrInUse) {
					t.Errorf("under %s: got %v, want ErrInUse", filepath.Base(top), err)
				}
			}
			if _, err := os.Stat(filepath.Join(top, newHome, "muster-agent")); err != nil {
				t.Errorf("the home in use: %v", err)
			}
			if err := RemoveHome(OS{}, top, oldHome); err != nil {
				t.Errorf("the other one: %v", err)
			}
		})
	}
}

// Resolve returns what the system resolves every existing path to.
func TestResolveAgreesWithTheSystem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755),
		os.Symlink("a/b", filepath.Join(dir, "l")),
		os.Symlink("../l/c", filepath.Join(dir, "a", "m")),
		os.Symlink(dir, filepath.Join(dir, "a", "b", "root")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"a", "b", "c", "l", "m", "root", "..", ".", ""}
	compared := 0
	rapid.Check(t, func(rt *rapid.T) {
		// Built part by part, so that most paths exist.
		path := dir
		for range rapid.IntRange(0, 10).Draw(rt, "length") {
			longer := path + "/" + rapid.SampledFrom(names).Draw(rt, "part")
			if _, err := os.Stat(longer); err == nil {
				path = longer
			}
		}
		want, err := filepath.EvalSymlinks(path)
		if err != nil {
			rt.Fatal(err)
		}
		if want != dir {
			compared++
		}
		if got, err := Resolve(OS{}, opRemove, "", path); err != nil || got != want {
			rt.Fatalf("Resolve(%s) is %s, %v, the system says %s", path, got, err, want)
		}
	})
	if compared < 5 { // with -short there are twenty
		t.Errorf("only %d paths led anywhere", compared)
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		goos, path, dir string
		want            bool
	}{
		{"linux", "/opt/a/b", "/opt/a", true},
		{"linux", "/opt/a", "/opt/a", true},
		{"linux", "/opt/ab", "/opt/a", false},
		{"linux", "/opt/A/b", "/opt/a", false},
		{"darwin", "/opt/A/b", "/opt/a", true},
		{"windows", "/opt/A/b", "/opt/a", true},
	} {
		if got := within(c.goos, filepath.FromSlash(c.path), filepath.FromSlash(c.dir)); got != c.want {
			t.Errorf("%s: %s within %s is %v", c.goos, c.path, c.dir, got)
		}
	}
}
