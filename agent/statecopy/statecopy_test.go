//go:build unix

package statecopy

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// describe lists what is at a path, with modes, contents and targets of links.
func describe(t *rapid.T, path string) string {
	var b strings.Builder
	err := filepath.WalkDir(path, func(p string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		fi, err := os.Lstat(p)
		if err != nil {
			return err
		}
		target, _ := os.Readlink(p)
		content := ""
		if fi.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(data)
		}
		mode := fi.Mode()
		if mode&fs.ModeSymlink != 0 {
			mode = fs.ModeSymlink // that of a link means nothing
		}
		fmt.Fprintf(&b, "%s %s %q %q %v\n", p, mode, target, content, disk.OwnerOf(fi))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

var names = rapid.SampledFrom([]string{"a", "b", "c d", "ü", strings.Repeat("long", 40)})

// grow makes files, folders and links at a path, or nothing.
func grow(t *rapid.T, path string, depth int) {
	var err error
	switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
	case kind == 0:
	case kind == 1:
		err = os.Symlink(names.Draw(t, "target"), path)
	case kind == 2 || depth == 0:
		err = os.WriteFile(path, []byte(rapid.String().Draw(t, "content")), 0o600)
		err = errors.Join(err, os.Chmod(path, rapid.SampledFrom([]fs.FileMode{0o600, 0o644, 0o400 | fs.ModeSetgid, 0o755}).Draw(t, "mode")))
	default:
		err = os.Mkdir(path, 0o700)
		for _, name := range rapid.SliceOfNDistinct(names, 0, 3, rapid.ID).Draw(t, "names") {
			grow(t, filepath.Join(path, name), depth-1)
		}
		err = errors.Join(err, os.Chmod(path, rapid.SampledFrom([]fs.FileMode{0o700, 0o755 | fs.ModeSticky, 0o500}).Draw(t, "mode")))
	}
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
}

func TestWhatIsPutBackIsWhatWasCopied(t *testing.T) {
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		dir := filepath.Join(t.TempDir(), fmt.Sprint(round))
		if err := os.MkdirAll(filepath.Join(dir, "state"), 0o700); err != nil {
			rt.Fatal(err)
		}
		archive := filepath.Join(dir, "state.tar")
		paths := []string{filepath.Join(dir, "state", "one"), filepath.Join(dir, "state", "two"), filepath.Join(dir, "nowhere", "three")}
		for _, p := range paths[:2] {
			grow(rt, p, 3)
		}
		before := describe(rt, filepath.Join(dir, "state"))
		if err := Save(t.Context(), disk.OS{}, archive, paths); err != nil {
			rt.Fatal(err)
		}
		for _, p := range paths[:2] {
			if err := os.RemoveAll(p); err != nil {
				rt.Fatal(err)
			}
			grow(rt, p, 2)
		}
		for range 2 { // the second time as after an interruption
			if err := Restore(t.Context(), disk.OS{}, archive, paths); err != nil {
				rt.Fatal(err)
			}
			if is := describe(rt, filepath.Join(dir, "state")); is != before {
				rt.Fatalf("put back is\n%s\ncopied was\n%s", is, before)
			}
		}
	})
}

func TestArchiveThatIsNotOfThesePathsIsRefused(t *testing.T) {
	dir := t.TempDir()
	archive, path := filepath.Join(dir, "state.tar"), filepath.Join(dir, "state")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	err = errors.Join(w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(dir, "/") + "/state/../other", Typeflag: tar.TypeReg, Mode: 0o600}), w.Close(), f.Close())
	if err != nil {
		t.Fatal(err)
	}
	if err := Restore(t.Context(), disk.OS{}, archive, []string{path}); err == nil || !strings.Contains(err.Error(), "which is in none of") {
		t.Errorf("a path that is in none: %v", err)
	}
	if err := os.Truncate(archive, 700); err != nil {
		t.Fatal(err)
	}
	if err := Restore(t.Context(), disk.OS{}, archive, []string{path}); err == nil {
		t.Error("an archive that ends early is put back")
	}
}
