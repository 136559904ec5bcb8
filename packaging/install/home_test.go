package install

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/testing/fakepkg"
)

// installed unpacks versions into a fresh host.
func installed(t *testing.T, versions ...string) (top string) {
	t.Helper()
	top = t.TempDir()
	for _, version := range versions {
		archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, fakepkg.Describe(version)))
		if _, err := Unpack(t.Context(), disk.OS{}, archive, top); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

const (
	oldHome = "data/muster-agent-1.0.0-3f2a9c"
	newHome = "data/muster-agent-1.1.0-3f2a9c"
)

func TestADamagedHomeIsNoVersionAndNeverAnotherOne(t *testing.T) {
	path := func(top, name string) string { return filepath.Join(top, filepath.FromSlash(newHome), name) }
	text := func(t *testing.T, file string) []byte {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for what, c := range map[string]struct {
		damage func(t *testing.T, top string) error
		want   string
	}{
		"a manifest of zeros": {func(t *testing.T, top string) error {
			return os.WriteFile(path(top, "manifest.yaml"), make([]byte, len(text(t, path(top, "manifest.yaml")))), 0o644)
		}, "manifest.yaml"},
		"an empty manifest": {func(_ *testing.T, top string) error {
			return os.WriteFile(path(top, "manifest.yaml"), nil, 0o644)
		}, "manifest.yaml"},
		"half a manifest": {func(t *testing.T, top string) error {
			b := text(t, path(top, "manifest.yaml"))
			return os.WriteFile(path(top, "manifest.yaml"), b[:len(b)/2], 0o644)
		}, "manifest.yaml"},
		"no manifest": {func(_ *testing.T, top string) error { return os.Remove(path(top, "manifest.yaml")) }, "manifest.yaml"},
		"the manifest of another version": {func(t *testing.T, top string) error {
			return os.WriteFile(path(top, "manifest.yaml"), text(t, filepath.Join(top, filepath.FromSlash(oldHome), "manifest.yaml")), 0o644)
		}, "is the one of " + oldHome},
		"no program":       {func(_ *testing.T, top string) error { return os.Remove(path(top, "muster-agent")) }, "muster-agent"},
		"an empty program": {func(_ *testing.T, top string) error { return os.Truncate(path(top, "muster-agent"), 0) }, "is no program"},
	} {
		t.Run(what, func(t *testing.T) {
			top := installed(t, "1.0.0", "1.1.0")
			if p, err := ReadHome(disk.OS{}, top, newHome); err != nil || p.Version != "1.1.0" {
				t.Fatalf("before the damage: %+v, %v", p, err)
			}
			if err := c.damage(t, top); err != nil {
				t.Fatal(err)
			}
			p, err := ReadHome(disk.OS{}, top, newHome)
			if !errors.Is(err, ErrDamagedHome) || !strings.Contains(err.Error(), c.want) || p.Version != "" {
				t.Errorf("got version %q, %v; want ErrDamagedHome with a word of %q", p.Version, err, c.want)
			}
			// It stops nothing else: other versions come, and it goes.
			archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, fakepkg.Describe("1.2.0")))
			if _, err := Unpack(t.Context(), disk.OS{}, archive, top); err != nil {
				t.Errorf("another version beside it: %v", err)
			}
			if err := Remove(disk.OS{}, top, newHome); err != nil {
				t.Errorf("removing it: %v", err)
			}
			archive = fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, fakepkg.Describe("1.1.0")))
			if _, err := Unpack(t.Context(), disk.OS{}, archive, top); err != nil {
				t.Errorf("the same version anew: %v", err)
			}
		})
	}
}

func TestAHomeThatIsNotThereIsNotDamaged(t *testing.T) {
	top := installed(t, "1.0.0")
	if _, err := ReadHome(disk.OS{}, top, newHome); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamagedHome) {
		t.Errorf("got %v, want that it is not there", err)
	}
	for _, home := range []string{"", "data", "data/..", "data/downloads", "data/.unpack-x", "../data/x"} {
		if _, err := ReadHome(disk.OS{}, top, home); err == nil {
			t.Errorf("ReadHome(%q) works", home)
		}
	}
}

func TestNoSpellingOfALinkHidesThatAHomeIsInUse(t *testing.T) {
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
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			top := filepath.Join(dir, "top")
			if err := os.Rename(installed(t, "1.0.0", "1.1.0"), top); err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{
				os.Mkdir(filepath.Join(dir, "beside"), 0o755),
				os.Symlink("../top/"+newHome+"/muster-agent", filepath.Join(dir, "beside", "alias")),
				os.Symlink(filepath.Join(top, "data"), filepath.Join(dir, "beside", "data")),
				os.Symlink("top", filepath.Join(dir, "other-top")),
				os.Symlink(link(top), filepath.Join(top, "muster-agent")),
				os.Symlink("loop", filepath.Join(top, "loop")), // leads nowhere, and stops nothing
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			// The host may be known under either name.
			for _, top := range []string{top, filepath.Join(dir, "other-top")} {
				if err := Remove(disk.OS{}, top, newHome); !errors.Is(err, ErrInUse) {
					t.Errorf("under %s: got %v, want ErrInUse", filepath.Base(top), err)
				}
			}
			if _, err := ReadHome(disk.OS{}, top, newHome); err != nil {
				t.Errorf("the home in use: %v", err)
			}
			if err := Remove(disk.OS{}, top, oldHome); err != nil {
				t.Errorf("the other one: %v", err)
			}
		})
	}
}

// resolve must agree with the system about every path that leads somewhere.
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
		// Grown part by part, so that it mostly leads somewhere.
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
		if got, err := resolve(disk.OS{}, "", path); err != nil || got != want {
			rt.Fatalf("resolve(%s) is %s, %v, the system says %s", path, got, err, want)
		}
	})
	if compared < 20 {
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

// room is a disk with so many bytes free.
type room struct {
	disk.OS
	free int64
}

func (r room) Free(string, string) (int64, error) { return r.free, nil }

func TestATenthMoreThanTheFilesMustBeFree(t *testing.T) {
	p := fakepkg.Describe("1.1.0")
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", append(fakepkg.Sound(t, p),
		fakepkg.Entry{Name: fakepkg.Top(p) + "/" + p.VersionedHome + "/noise", Body: noise(100_000)}))
	c, err := Inspect(t.Context(), archive)
	if err != nil {
		t.Fatal(err)
	}
	need := Need(c.UnpackedSize)
	if tenth := c.UnpackedSize / 10; need != c.UnpackedSize+tenth {
		t.Errorf("%d bytes need %d", c.UnpackedSize, need)
	}
	top := t.TempDir()
	_, err = Unpack(t.Context(), room{free: need - 1}, archive, top)
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "needs 110") || !strings.Contains(err.Error(), " has 110") {
		t.Errorf("one byte short of %d: got %v, want ErrNoSpace with both figures", need, err)
	}
	if got := modes(t, top); !maps.Equal(got, map[string]string{"data/": "drwxr-xr-x"}) {
		t.Errorf("left behind %v", got)
	}
	if _, err := Unpack(t.Context(), room{free: need}, archive, top); err != nil {
		t.Errorf("with %d bytes: %v", need, err)
	}
}

func TestADiskThatFillsInTheMiddleIsNamedAndLeftAsItWas(t *testing.T) {
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, fakepkg.Describe("1.1.0")))
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		var calls []string
		if _, err := Unpack(t.Context(), failingDisk{calls: &calls}, archive, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		for n, call := range calls {
			if !strings.HasPrefix(call, "write") && !strings.HasPrefix(call, "create") && !strings.HasPrefix(call, "sync ") {
				continue
			}
			top := t.TempDir()
			_, err := Unpack(t.Context(), failingDisk{calls: new([]string), fail: n + 1, err: &fs.PathError{Op: "write", Path: "x", Err: errno}}, archive, top)
			if !errors.Is(err, ErrNoSpace) || !errors.Is(err, errno) || !strings.Contains(err.Error(), "has ") {
				t.Errorf("%s at %s: got %v, want ErrNoSpace and how much there is", errno, call, err)
			}
			if names := names(t, filepath.Join(top, "data")); len(names) != 0 {
				t.Errorf("%s at %s: left behind %v", errno, call, names)
			}
		}
	}
}

// What damages one home must not be read from any other file of it.
func TestEveryCutOfAManifestIsDamage(t *testing.T) {
	top := installed(t, "1.1.0")
	file := filepath.Join(top, filepath.FromSlash(newHome), "manifest.yaml")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range whole {
		for _, b := range [][]byte{whole[:cut], append(bytes.Clone(whole[:cut]), make([]byte, len(whole)-cut)...)} {
			if err := os.WriteFile(file, b, 0o644); err != nil {
				t.Fatal(err)
			}
			p, err := ReadHome(disk.OS{}, top, newHome)
			if err == nil && p.Home() != newHome {
				t.Fatalf("cut at %d it is version %s", cut, p.FullVersion())
			}
			if err != nil && !errors.Is(err, ErrDamagedHome) {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
	}
}
