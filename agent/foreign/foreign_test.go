//go:build unix

package foreign

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// hosts is a disk whose folders have given owners and modes. Everything else belongs to root.
type hosts struct {
	disk.OS
	has map[string]info
	dir string
}

type info struct {
	fs.FileInfo
	mode     fs.FileMode
	uid, gid int
}

func (i info) Mode() fs.FileMode { return i.mode }

// Sys is what the system says of the owner, as far as package disk looks at it.
func (i info) Sys() any {
	return &syscall.Stat_t{Uid: uint32(i.uid), Gid: uint32(i.gid)}
}

func (h hosts) Lstat(op, path string) (fs.FileInfo, error) {
	fi, err := h.OS.Lstat(op, path)
	if err != nil {
		return nil, err
	}
	in := info{FileInfo: fi, mode: fi.Mode()&^(fs.ModePerm|fs.ModeSticky) | 0o755}
	if below, err := filepath.Rel(h.dir, path); err == nil {
		if has, ok := h.has[below]; ok {
			in.mode, in.uid, in.gid = fi.Mode().Type()|has.mode, has.uid, has.gid
		}
	}
	return in, nil
}

// TestLinksAreFollowedWhereOnlyRootCanChangeThem opens a folder through a link, whose folder belongs to
// various accounts.
func TestLinksAreFollowedWhereOnlyRootCanChangeThem(t *testing.T) {
	const sticky = fs.ModeSticky
	other := os.Geteuid() + 1000
	for name, c := range map[string]struct {
		folder, link info
		want         string // in the error; empty: the link is followed
	}{
		"of root":                        {folder: info{mode: 0o755}},
		"of the agent's account":         {folder: info{mode: 0o700, uid: os.Geteuid()}},
		"of another account":             {folder: info{mode: 0o755, uid: other}, want: "the user with the id"},
		"of another, and not writable":   {folder: info{mode: 0o555, uid: other}, want: "the user with the id"},
		"writable for root's group":      {folder: info{mode: 0o775}},
		"writable for a group":           {folder: info{mode: 0o775, gid: 50}, want: "others than root"},
		"writable for all":               {folder: info{mode: 0o777}, want: "others than root"},
		"sticky with root's link":        {folder: info{mode: sticky | 0o777}},
		"sticky with another's link":     {folder: info{mode: sticky | 0o777}, link: info{uid: other}, want: "the user with the id"},
		"sticky, of another account":     {folder: info{mode: sticky | 0o777, uid: other}, want: "the user with the id"},
		"with another's link in root's":  {folder: info{mode: 0o755}, link: info{uid: other}},
		"sticky for a group of accounts": {folder: info{mode: sticky | 0o770, gid: 50}, link: info{uid: other}, want: "the user with the id"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "real", "conf"), 0o700), os.Mkdir(filepath.Join(dir, "in"), 0o700),
				os.Symlink("../real", filepath.Join(dir, "in", "link"))); err != nil {
				t.Fatal(err)
			}
			d := hosts{dir: dir, has: map[string]info{"in": c.folder, "in/link": c.link}}
			folder, base, err := Parent(d, "test", filepath.Join(dir, "in", "link", "conf", "file"))
			if c.want != "" {
				if !errors.Is(err, disk.ErrLink) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "name the folder that it leads to") {
					t.Fatalf("the link is refused with %v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := filepath.Join(dir, "real", "conf"); folder.Path() != want || base != "file" {
				t.Errorf("opened %s and %s, want %s", folder.Path(), base, want)
			}
			if err := folder.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Folders without links are opened whoever they belong to, since they are opened name by name.
func TestFoldersOfOthersAreOpened(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "app", "conf"), 0o700); err != nil {
		t.Fatal(err)
	}
	d := hosts{dir: dir, has: map[string]info{"app": {mode: 0o777, uid: 4711}}}
	folder, _, err := Parent(d, "test", filepath.Join(dir, "app", "conf", "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	if err := os.Symlink("conf", filepath.Join(dir, "app", "other")); err != nil {
		t.Fatal(err)
	}
	if _, err := folder.OpenFolder("../other"); err == nil {
		t.Error("a name leaves its folder")
	}
	if _, _, err := Parent(d, "test", filepath.Join(dir, "app", "other", "file")); !errors.Is(err, disk.ErrLink) {
		t.Errorf("a link to the folder beside: %v", err)
	}
	if _, _, err := Parent(d, "test", filepath.Join(dir, "app", "none", "file")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

func TestLinksInACircleEnd(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Symlink("b", filepath.Join(dir, "a")), os.Symlink("../"+filepath.Base(dir)+"/a", filepath.Join(dir, "b"))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Parent(hosts{dir: dir}, "test", filepath.Join(dir, "a", "file")); err == nil || !strings.Contains(err.Error(), "too many links") {
		t.Errorf("links in a circle: %v", err)
	}
}

func TestSizeHasABoundForItsDepth(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1000), 0o600), os.Mkdir(filepath.Join(dir, "sub"), 0o700),
		os.WriteFile(filepath.Join(dir, "sub", "b"), make([]byte, 234), 0o600), os.Symlink("a", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	size := func() (int64, error) {
		folder, err := disk.OS{}.OpenFolder("test", dir)
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		return Size(folder)
	}
	if n, err := size(); n != 1234 || err != nil {
		t.Errorf("the size is %d, %v", n, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", MaxDepth+1)), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := size(); !errors.Is(err, ErrTooDeep) {
		t.Errorf("folders below the bound: %v", err)
	}
}
