package backup_test

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/node/backup"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// folder makes a folder with files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// contents returns the files below a folder as "name: text".
func contents(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		text, err := os.ReadFile(path)
		out = append(out, filepath.ToSlash(name)+": "+string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func write(t *testing.T, packages bool) ([]byte, backup.Contents) {
	t.Helper()
	data := folder(t, map[string]string{
		"muster.db": "in use", "muster.db-wal": "log", "muster.db.lock": "1", "tls/ca.key": "key", "trust/online.key": "online", "upgrades/a/1.yaml": "manifest",
		"packages/0a1b": "archive", "packages/.push-1": "unfinished", "control.log": "x",
	})
	copied := filepath.Join(folder(t, map[string]string{"copy": "copied"}), "copy")
	var out bytes.Buffer
	m, err := backup.Write(t.Context(), &out, data, copied, backup.Contents{Version: "1.0.0", CreatedAt: noon, Packages: packages})
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), m
}

func TestBackupHasWhatAServerNeeds(t *testing.T) {
	for _, packages := range []bool{true, false} {
		file, made := write(t, packages)
		dir := t.TempDir()
		m, err := backup.Read(t.Context(), bytes.NewReader(file), dir)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"muster.db: copied", "tls/ca.key: key", "trust/online.key: online", "upgrades/a/1.yaml: manifest"}
		if packages {
			want = slices.Insert(want, 1, "packages/0a1b: archive")
		}
		if got := contents(t, dir); !slices.Equal(got, want) {
			t.Errorf("with packages %t: %v, want %v", packages, got, want)
		}
		if !m.Store || m.Packages != packages || m.Version != "1.0.0" || !m.CreatedAt.Equal(noon) || !slices.Equal(m.Files, made.Files) {
			t.Errorf("the description is %+v, want %+v", m, made)
		}
	}
}

func TestBackupThatWasCutOffOrChangedIsRefused(t *testing.T) {
	file, _ := write(t, true)
	end := bytes.LastIndexByte(file, '}') + 1
	for n := range end { // every length at which the list of files is not whole
		if n%97 != 0 && n < end-3 {
			continue
		}
		if _, err := backup.Read(t.Context(), bytes.NewReader(file[:n]), t.TempDir()); err == nil {
			t.Fatalf("%d of %d bytes were accepted", n, len(file))
		}
	}
	for _, text := range []string{"copied", "online", "archive"} {
		changed := bytes.Replace(file, []byte(text), bytes.ToUpper([]byte(text)), 1)
		if _, err := backup.Read(t.Context(), bytes.NewReader(changed), t.TempDir()); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%q was changed: %v", text, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := backup.Read(ctx, bytes.NewReader(file), t.TempDir()); err == nil {
		t.Error("a cancelled read succeeded")
	}
}

func TestEntriesThatNoBackupHasAreRefused(t *testing.T) {
	for _, h := range []tar.Header{
		{Name: "../evil"},
		{Name: "/etc/passwd"},
		{Name: "tls/../../evil"},
		{Name: `tls\..\evil`},
		{Name: "control.sock"},
		{Name: "tls"},
		{Name: "muster.db-wal"},
		{Name: "tls/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "tls/", Typeflag: tar.TypeDir},
	} {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		w.Close()
		dir := t.TempDir()
		if _, err := backup.Read(t.Context(), &out, dir); err == nil || !strings.Contains(err.Error(), "no backup has") {
			t.Errorf("%s: %v", h.Name, err)
		}
		if got := contents(t, dir); len(got) > 0 {
			t.Errorf("%s: wrote %v", h.Name, got)
		}
	}
}

// dying is a disk on which the process dies at one of its changes.
type dying struct {
	disk.OS
	left int
}

type died struct{}

func (d *dying) step() {
	if d.left--; d.left < 0 {
		panic(died{})
	}
}

func (d *dying) Rename(op, from, to string) error {
	d.step()
	return d.OS.Rename(op, from, to)
}

func (d *dying) MkdirAll(op, path string, perm os.FileMode) error {
	d.step()
	return d.OS.MkdirAll(op, path, perm)
}

func (d *dying) RemoveAll(op, path string) error {
	d.step()
	return d.OS.RemoveAll(op, path)
}

// Wherever a restore dies, the folder has the old files or, once it is completed, the new
// ones; nothing that was replaced is lost.
func TestRestoreThatDiesIsCompletedOrHasNotHappened(t *testing.T) {
	for died, n := true, 0; died; n++ {
		data := folder(t, map[string]string{
			"muster.db": "old", "muster.db-wal": "old log", "tls/ca.key": "old key", "packages/0": "kept", "restore.unpacked/tls/rest": "of a failed restore",
		})
		before := contents(t, data)
		d := &dying{left: n}
		died = !survives(func() {
			dir, err := backup.Unpacked(d, data)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "muster.db"), []byte("new"), 0o600)
			}
			if err == nil {
				err = os.MkdirAll(filepath.Join(dir, "tls"), 0o700)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "tls", "ca.key"), []byte("new key"), 0o600)
			}
			if err == nil {
				err = backup.Commit(d, data)
			}
			if err == nil {
				_, err = backup.Finish(d, data, noon)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		interrupted, err := backup.Interrupted(disk.OS{}, data)
		if err != nil {
			t.Fatal(err)
		}
		if interrupted {
			if _, err := backup.Finish(disk.OS{}, data, noon.Add(time.Minute)); err != nil {
				t.Fatalf("after %d steps: %v", n, err)
			}
		}
		var now, kept []string
		for _, line := range contents(t, data) {
			if rest, ok := strings.CutPrefix(line, "before-restore-"); ok {
				_, rest, _ = strings.Cut(rest, "/")
				kept = append(kept, rest)
			} else if !strings.HasPrefix(line, "restore.unpacked/") {
				now = append(now, line)
			}
		}
		slices.Sort(kept)
		old := slices.DeleteFunc(slices.Clone(before), func(s string) bool { return strings.HasPrefix(s, "restore.unpacked/") })
		done := slices.Equal(now, []string{"muster.db: new", "packages/0: kept", "tls/ca.key: new key"}) &&
			slices.Equal(kept, []string{"muster.db-wal: old log", "muster.db: old", "tls/ca.key: old key"})
		if !done && !(slices.Equal(now, old) && len(kept) == 0) {
			t.Errorf("after %d steps: %v, kept %v", n, now, kept)
		}
		if !died && !done {
			t.Error("the whole restore has not happened")
		}
	}
}

func survives(do func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, is := r.(died); !is {
				panic(r)
			}
		}
	}()
	do()
	return true
}

func TestFolderWithDataIsOccupied(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  []string
	}{
		{nil, nil},
		{map[string]string{"muster.db.lock": "1", "muster.db": "", "server.yml": "x"}, nil},
		{map[string]string{"muster.db": "x"}, []string{"muster.db"}},
		{map[string]string{"tls/ca.key": "x", "packages/0": "x"}, []string{"tls", "packages"}},
	} {
		got, err := backup.Occupied(disk.OS{}, folder(t, c.files))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v", c.files, got, err)
		}
	}
}
