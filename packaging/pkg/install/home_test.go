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

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// installed unpacks versions into a new host.
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

func TestReadHomeReturnsErrDamagedHome(t *testing.T) {
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
				t.Errorf("got version %q, %v; want ErrDamagedHome with %q", p.Version, err, c.want)
			}
			// Other versions can be installed, and the damaged one removed.
			archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, fakepkg.Describe("1.2.0")))
			if _, err := Unpack(t.Context(), disk.OS{}, archive, top); err != nil {
				t.Errorf("another version beside it: %v", err)
			}
			if err := disk.RemoveHome(disk.OS{}, top, newHome); err != nil {
				t.Errorf("removing it: %v", err)
			}
			archive = fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, fakepkg.Describe("1.1.0")))
			if _, err := Unpack(t.Context(), disk.OS{}, archive, top); err != nil {
				t.Errorf("the same version again: %v", err)
			}
		})
	}
}

func TestReadHomeReturnsErrNotExist(t *testing.T) {
	top := installed(t, "1.0.0")
	if _, err := ReadHome(disk.OS{}, top, newHome); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamagedHome) {
		t.Errorf("got %v, want that it is not there", err)
	}
	for _, home := range []string{"", "data", "data/..", "data/downloads", "data/.unpack-x", "../data/x"} {
		if _, err := ReadHome(disk.OS{}, top, home); err == nil {
			t.Errorf("ReadHome(%q) succeeds", home)
		}
	}
}

// room is a disk with free bytes free.
type room struct {
	disk.OS
	free int64
}

func (r room) Free(string, string) (int64, error) { return r.free, nil }

func TestUnpackNeedsATenthMoreThanTheFiles(t *testing.T) {
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
	if !errors.Is(err, disk.ErrNoSpace) || !strings.Contains(err.Error(), "needs 110") || !strings.Contains(err.Error(), " has 110") {
		t.Errorf("one byte short of %d: got %v, want ErrNoSpace with both figures", need, err)
	}
	if got := modes(t, top); !maps.Equal(got, map[string]string{"data/": "drwxr-xr-x"}) {
		t.Errorf("left behind %v", got)
	}
	if _, err := Unpack(t.Context(), room{free: need}, archive, top); err != nil {
		t.Errorf("with %d bytes: %v", need, err)
	}
}

func TestDiskThatFillsDuringUnpackReturnsErrNoSpace(t *testing.T) {
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
			if !errors.Is(err, disk.ErrNoSpace) || !errors.Is(err, errno) || !strings.Contains(err.Error(), "has ") {
				t.Errorf("%s at %s: got %v, want ErrNoSpace and how much there is", errno, call, err)
			}
			if names := names(t, filepath.Join(top, "data")); len(names) != 0 {
				t.Errorf("%s at %s: left behind %v", errno, call, names)
			}
		}
	}
}

// A truncated manifest is damage, and never read as another version.
func TestTruncatedManifestIsADamagedHome(t *testing.T) {
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
