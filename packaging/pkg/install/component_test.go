package install

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// component unpacks versions of a component into its folder on a host.
func component(t *testing.T, versions ...string) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "components", "web")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		p := fakepkg.DescribeComponent(fakepkg.Component("web"), version)
		archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.SoundComponent(t, p))
		if _, err := Unpack(t.Context(), disk.OS{}, archive, folder); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

const (
	oldWeb = "data/web-2.3.0-3f2a9c"
	newWeb = "data/web-2.4.0-3f2a9c"
)

func TestHomesOfAComponentAreBelowItsFolder(t *testing.T) {
	folder := component(t, "2.3.0", "2.4.0")
	for _, home := range []string{oldWeb, newWeb} {
		p, err := CheckIntact(t.Context(), disk.OS{}, folder, home)
		if err != nil || p.Home() != home || p.Component == nil || p.Component.Name != "web" {
			t.Errorf("%s holds %+v, %v", home, p, err)
		}
	}
	for what, damage := range map[string]func(string) error{
		"configuration": func(home string) error { return os.WriteFile(filepath.Join(home, "conf/web.conf"), nil, 0o644) },
		"program":       func(home string) error { return os.Remove(filepath.Join(home, "bin/web")) },
		"description":   func(home string) error { return os.Truncate(filepath.Join(home, "manifest.yaml"), 100) },
	} {
		folder := component(t, "2.4.0")
		if err := damage(filepath.Join(folder, newWeb)); err != nil {
			t.Fatal(err)
		}
		if _, err := CheckIntact(t.Context(), disk.OS{}, folder, newWeb); !errors.Is(err, ErrDamagedHome) {
			t.Errorf("damaged %s: got %v", what, err)
		}
	}
}

func TestInstalledVersionOfAComponentIsNotRemoved(t *testing.T) {
	folder := component(t, "2.3.0", "2.4.0")
	if err := os.Symlink(newWeb, filepath.Join(folder, "current")); err != nil {
		t.Fatal(err)
	}
	if err := disk.RemoveHome(disk.OS{}, folder, newWeb); !errors.Is(err, disk.ErrInUse) {
		t.Errorf("the version in use: got %v", err)
	}
	if err := disk.RemoveHome(disk.OS{}, folder, oldWeb); err != nil {
		t.Error(err)
	}
	if _, err := ReadHome(disk.OS{}, folder, newWeb); err != nil {
		t.Error(err)
	}
	if _, err := ReadHome(disk.OS{}, folder, oldWeb); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the other one: got %v", err)
	}
}

// An agent's package may hold tools for other systems, which the agent hands out.
func TestToolsForOtherSystemsInAnAgentsPackage(t *testing.T) {
	p := fakepkg.Describe("1.1.0")
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", append(fakepkg.Sound(t, p),
		fakepkg.Entry{Name: fakepkg.Top(p) + "/" + p.VersionedHome + "/tool", Body: fakepkg.Program("darwin", "arm64"), Mode: 0o755}))
	if _, err := Inspect(t.Context(), archive); err != nil {
		t.Error(err)
	}
}
