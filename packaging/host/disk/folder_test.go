//go:build unix

package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTest opens a folder that has one of each kind.
func openTest(t *testing.T) (Folder, string) {
	t.Helper()
	dir := t.TempDir()
	err := errors.Join(
		os.Mkdir(filepath.Join(dir, "folder"), 0o700), os.WriteFile(filepath.Join(dir, "folder", "file"), []byte("in it"), 0o600),
		os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600),
		os.Symlink("file", filepath.Join(dir, "to-file")), os.Symlink("folder", filepath.Join(dir, "to-folder")),
		os.Symlink("/", filepath.Join(dir, "to-root")), os.Symlink("new", filepath.Join(dir, "dangling")),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	f, err := OS{}.OpenFolder("test", dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, dir
}

func TestFolderOpensNoLinkAndNoPipe(t *testing.T) {
	f, dir := openTest(t)
	openFile := func(name string) error {
		file, err := f.Open(name)
		if err == nil {
			err = file.Close()
		}
		return err
	}
	openFolder := func(name string) error {
		folder, err := f.OpenFolder(name)
		if err == nil {
			err = folder.Close()
		}
		return err
	}
	for name, want := range map[string][2]error{ // of the file and the folder
		"file":      {nil, ErrNotFolder},
		"folder":    {ErrNotRegular, nil},
		"to-file":   {ErrLink, ErrLink},
		"to-folder": {ErrLink, ErrLink},
		"to-root":   {ErrLink, ErrLink},
		"dangling":  {ErrLink, ErrLink},
		"pipe":      {ErrNotRegular, ErrNotFolder},
		"missing":   {fs.ErrNotExist, fs.ErrNotExist},
	} {
		if err := openFile(name); !errors.Is(err, want[0]) {
			t.Errorf("opening %s as a file: %v, want %v", name, err, want[0])
		} else if err != nil && !strings.Contains(err.Error(), filepath.Join(dir, name)) {
			t.Errorf("the error does not name the path: %v", err)
		}
		if err := openFolder(name); !errors.Is(err, want[1]) {
			t.Errorf("opening %s as a folder: %v, want %v", name, err, want[1])
		}
	}
}

func TestFolderTakesOneName(t *testing.T) {
	f, dir := openTest(t)
	for _, name := range []string{"", ".", "..", "folder/file", "../x", "/x", "folder/", "folder/../x"} {
		made, err := f.MakeFolder(name)
		if err == nil {
			err = made.Close()
		}
		_, lerr := f.Lstat(name)
		_, oerr := f.Open(name)
		_, cerr := f.Create(name, 0o600)
		_, rerr := f.Readlink(name)
		for i, err := range []error{err, lerr, oerr, cerr, rerr, f.Remove(name), f.RemoveAll(name), f.Rename("file", name), f.Rename(name, "new"), f.Symlink("x", name)} {
			if err == nil {
				t.Errorf("call %d takes %q as a name", i, name)
			}
		}
	}
	if content, err := os.ReadFile(filepath.Join(dir, "folder", "file")); err != nil || string(content) != "in it" {
		t.Errorf("the file below has %q, %v", content, err)
	}
}

// What is written, made or removed is what has the name, and not what a link leads to.
func TestFolderChangesNothingThroughLinks(t *testing.T) {
	f, dir := openTest(t)
	if _, err := f.MakeFolder("dangling"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a folder is made through a link: %v", err)
	}
	if _, err := f.Create("dangling", 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file is made through a link: %v", err)
	}
	owner := Owner{os.Getuid(), os.Getgid()}
	if err := errors.Join(f.RemoveAll("to-folder"), f.Remove("to-root"), WriteOwned(f, "test", "to-file", []byte("new"), 0o4750, owner)); err != nil {
		t.Fatal(err)
	}
	names, err := f.Names()
	slices.Sort(names)
	if want := []string{"dangling", "file", "folder", "pipe", "to-file"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the folder has %q, %v; want %q", names, err, want)
	}
	for name, want := range map[string]string{"file": "content", "folder/file": "in it", "to-file": "new"} {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(content) != want {
			t.Errorf("%s has %q, %v; want %q", name, content, err, want)
		}
	}
	if fi, err := f.Lstat("to-file"); err != nil || !fi.Mode().IsRegular() || fi.Mode().Perm() != 0o750 {
		t.Errorf("the written file is %v, %v", fi, err)
	}
}

// A folder that was not just made in this process is not taken for the one that was.
func TestFolderThatIsNotNewIsNotGivenAway(t *testing.T) {
	f, _ := openTest(t)
	has, err := f.OpenFolder("folder")
	if err != nil {
		t.Fatal(err)
	}
	if has.(*osFolder).isNew() {
		t.Error("a folder with a file in it is new")
	}
	made, err := f.MakeFolder("made")
	if err != nil {
		t.Fatal(err)
	}
	if !made.(*osFolder).isNew() {
		t.Error("the folder that was made is not new")
	}
	if os.Geteuid() == 0 {
		if err := made.Chown(65534, 65534); err != nil || made.(*osFolder).isNew() {
			t.Errorf("an empty folder of another account is new (%v)", err)
		}
	}
	if err := errors.Join(SetOwner(has, 0o2711, Own), has.Close(), made.Close()); err != nil {
		t.Fatal(err)
	}
	if fi, err := f.Lstat("folder"); err != nil || fi.Mode().Perm() != 0o711 {
		t.Errorf("the folder is %v, %v", fi, err)
	}
}
