package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// CheckIntact detects damage to a version that was installed weeks ago.
func TestCheckIntactFindsADamagedFile(t *testing.T) {
	for name, spoil := range map[string]func(home string) error{
		"one byte": func(home string) error {
			f, err := os.OpenFile(filepath.Join(home, "muster-agent"), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte{0xff}, 7)
			return errors.Join(err, f.Close())
		},
		"a file cut short": func(home string) error { return os.Truncate(filepath.Join(home, "muster-watcher"), 3) },
		"a file gone":      func(home string) error { return os.Remove(filepath.Join(home, "muster-watcher")) },
		"zeroed manifest": func(home string) error {
			return os.WriteFile(filepath.Join(home, "manifest.yaml"), make([]byte, 99), 0o600)
		},
		"digests of zeros": func(home string) error {
			return os.WriteFile(filepath.Join(home, layout.DigestsFile), make([]byte, 99), 0o600)
		},
		"digests gone":      func(home string) error { return os.Remove(filepath.Join(home, layout.DigestsFile)) },
		"digests cut short": func(home string) error { return os.Truncate(filepath.Join(home, layout.DigestsFile), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			p, err := Unpack(context.Background(), disk.OS{}, fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, fakepkg.Describe("1.1.0"))), top)
			if err != nil {
				t.Fatal(err)
			}
			home := filepath.Join(top, p.Home())
			// The agent's state is not part of the installed files.
			if err := errors.Join(os.Mkdir(filepath.Join(home, "run"), 0o700), os.WriteFile(filepath.Join(home, "run", "queue"), []byte("x"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if _, err := CheckIntact(context.Background(), disk.OS{}, top, p.Home()); err != nil {
				t.Fatalf("as installed: %v", err)
			}
			if err := spoil(home); err != nil {
				t.Fatal(err)
			}
			if _, err := CheckIntact(context.Background(), disk.OS{}, top, p.Home()); !errors.Is(err, ErrDamagedHome) {
				t.Errorf("error %v, want %v", err, ErrDamagedHome)
			}
		})
	}
}

func TestRecordDigestsOfACopyEqualsThoseOfUnpack(t *testing.T) {
	top := t.TempDir()
	p, err := Unpack(context.Background(), disk.OS{}, fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, fakepkg.Describe("1.1.0"))), top)
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(top, p.Home())
	unpacked, err := os.ReadFile(filepath.Join(home, layout.DigestsFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := RecordDigests(disk.OS{}, home); err != nil {
		t.Fatal(err)
	}
	if recorded, err := os.ReadFile(filepath.Join(home, layout.DigestsFile)); err != nil || string(recorded) != string(unpacked) {
		t.Errorf("recorded\n%s\nwant\n%s, %v", recorded, unpacked, err)
	}
}
