package install

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

var formats = []string{build.TarGz, build.Zip}

func TestUnpackWritesTheHome(t *testing.T) {
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			top := t.TempDir()
			p := fakepkg.Describe("1.1.0-SNAPSHOT")
			entries := append(fakepkg.Sound(t, p),
				fakepkg.Entry{Name: fakepkg.Top(p) + "/" + p.VersionedHome + "/plugins/disk/check", Body: "#!/bin/sh\n", Mode: 0o700},
				fakepkg.Entry{Name: fakepkg.Top(p) + "/" + p.VersionedHome + "/setuid", Body: "x", Mode: 0o4777},
				fakepkg.Entry{Name: fakepkg.Top(p) + "/README", Body: "goes nowhere"},
			)
			archive := fakepkg.Write(t, t.TempDir(), "renamed by somebody."+format, entries)

			got, err := Unpack(t.Context(), disk.OS{}, archive, top)
			if err != nil {
				t.Fatal(err)
			}
			const home = "data/muster-agent-1.1.0-SNAPSHOT-3f2a9c"
			if got.Home() != home || got.FullVersion() != "1.1.0-SNAPSHOT" {
				t.Errorf("home %s of version %s, want %s of 1.1.0-SNAPSHOT", got.Home(), got.FullVersion(), home)
			}
			want := map[string]string{
				"data/":                      "drwxr-xr-x",
				home + "/":                   "drwxr-xr-x",
				home + "/.digests":           "-rw-r--r--",
				home + "/manifest.yaml":      "-rw-r--r--",
				home + "/muster-agent":       "-rwxr-xr-x",
				home + "/muster-watcher":     "-rwxr-xr-x",
				home + "/plugins/":           "drwxr-xr-x",
				home + "/plugins/disk/":      "drwxr-xr-x",
				home + "/plugins/disk/check": "-rwxr-xr-x",
				home + "/setuid":             "-rwxr-xr-x",
			}
			if got := modes(t, top); !maps.Equal(got, want) {
				t.Errorf("the host has\n%v\nwant\n%v", got, want)
			}
			body, err := os.ReadFile(filepath.Join(top, home, "muster-agent"))
			if err != nil || string(body) != "#!/bin/sh\necho agent 1.1.0-SNAPSHOT\n" {
				t.Errorf("muster-agent holds %q, %v", body, err)
			}
		})
	}
}

// modes returns the modes of a tree's files and folders by relative name; folders
// end in a slash.
func modes(t *testing.T, top string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		if e.IsDir() {
			name += "/"
		}
		found[filepath.ToSlash(name)] = fi.Mode().String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestInspectReturnsManifestAndFiles(t *testing.T) {
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			p := fakepkg.Describe("1.1.0")
			archive := fakepkg.Write(t, t.TempDir(), "p."+format, fakepkg.Sound(t, p))
			c, err := Inspect(t.Context(), archive)
			if err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(archive)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(data)
			if c.SHA256 != hex.EncodeToString(sum[:]) || c.Size != int64(len(data)) {
				t.Errorf("archive is %d bytes %s, want %d bytes %x", c.Size, c.SHA256, len(data), sum)
			}
			if c.Manifest.Package.Identity() != p.Identity() || c.Manifest.Package.Home() != p.Home() {
				t.Errorf("package is %v, want %v", c.Manifest.Package, p)
			}
			var names []string
			var total int64
			for _, f := range c.Files {
				names = append(names, f.Name)
				total += f.Size
			}
			want := []string{"manifest.yaml", build.CommitFile, p.VersionedHome + "/muster-agent", p.VersionedHome + "/muster-watcher"}
			if !slices.Equal(names, want) || total != c.UnpackedSize {
				t.Errorf("files %v of %d bytes, want %v of %d", names, c.UnpackedSize, want, total)
			}
		})
	}
}

// A tar file made by hand may hold the manifest last and begin its names with ./.
func TestEntriesInAnyOrderAndWithALeadingDot(t *testing.T) {
	p := fakepkg.Describe("1.1.0")
	entries := fakepkg.Sound(t, p)
	slices.Reverse(entries)
	for i := range entries {
		entries[i].Name = "./" + entries[i].Name
	}
	entries = append([]fakepkg.Entry{{Name: "./", Kind: fakepkg.Folder}}, entries...)
	for _, format := range formats {
		archive := fakepkg.Write(t, t.TempDir(), "p."+format, entries)
		top := t.TempDir()
		if _, err := Unpack(t.Context(), disk.OS{}, archive, top); err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if _, err := os.Stat(filepath.Join(top, p.Home(), "muster-agent")); err != nil {
			t.Error(err)
		}
	}
}

func TestElasticAgentPackageUnpacks(t *testing.T) {
	const top = "elastic-agent-8.13.0-SNAPSHOT-linux-x86_64"
	archive := fakepkg.Write(t, t.TempDir(), "e.tar.gz", []fakepkg.Entry{
		{Name: top + "/data/elastic-agent-15658b/elastic-agent", Body: "program", Mode: 0o755},
		{Name: top + "/manifest.yaml", Body: `version: co.elastic.agent/v1
kind: PackageManifest
package:
  version: 8.13.0
  snapshot: true
  hash: 15658b38b48ba4487afadc5563b1576b85ce0264
  versioned-home: data/elastic-agent-15658b
  path-mappings:
    - data/elastic-agent-15658b: data/elastic-agent-8.13.0-SNAPSHOT-15658b
      manifest.yaml: data/elastic-agent-8.13.0-SNAPSHOT-15658b/manifest.yaml
  flavors:
    basic: [agentbeat]
`},
	})
	host := t.TempDir()
	p, err := Unpack(t.Context(), disk.OS{}, archive, host)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"elastic-agent", "manifest.yaml"} {
		if _, err := os.Stat(filepath.Join(host, "data/elastic-agent-8.13.0-SNAPSHOT-15658b", name)); err != nil {
			t.Error(err)
		}
	}
	if p.Home() != "data/elastic-agent-8.13.0-SNAPSHOT-15658b" {
		t.Errorf("home is %s", p.Home())
	}
}

// TestEvilPackages unpacks hostile archives: each is refused for the stated reason
// and the host stays as it was.
func TestEvilPackages(t *testing.T) {
	for generation, packages := range map[string][]fakepkg.Evil{
		"manifest":  fakepkg.EvilPackages(t, "1.1.0"),
		"legacy":    fakepkg.EvilLegacyPackages("1.1.0"),
		"component": fakepkg.EvilComponentPackages(t, "1.1.0"),
	} {
		t.Run(generation, func(t *testing.T) { refuseAll(t, packages) })
	}
}

func refuseAll(t *testing.T, packages []fakepkg.Evil) {
	t.Helper()
	for _, evil := range packages {
		for _, format := range formats {
			if evil.Only != "" && evil.Only != format {
				continue
			}
			t.Run(evil.Name+" in "+format, func(t *testing.T) {
				outside := t.TempDir()
				top := filepath.Join(outside, "a", "b", "top")
				if err := os.MkdirAll(top, 0o755); err != nil {
					t.Fatal(err)
				}
				archive := fakepkg.Write(t, t.TempDir(), "p."+format, evil.Entries)
				before := modes(t, outside)

				_, inspectErr := Inspect(t.Context(), archive)
				_, unpackErr := Unpack(t.Context(), disk.OS{}, archive, top)
				for name, err := range map[string]error{"Inspect": inspectErr, "Unpack": unpackErr} {
					var refused *RefusedError
					if !errors.As(err, &refused) || !strings.Contains(err.Error(), evil.Why) {
						t.Errorf("%s says %v, want a refusal because it %q", name, err, evil.Why)
					}
				}
				if after := modes(t, outside); !maps.Equal(before, after) {
					t.Errorf("the host was %v and is %v", before, after)
				}
			})
		}
	}
}

func TestFilesThatAreNoArchivesAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"empty.tar.gz": "",
		"text.zip":     "this is not an archive",
		"page.tar.gz":  "<html><body>404</body></html>",
		"xz.tar.gz":    "\xfd7zXZ\x00 and more",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		var refused *RefusedError
		if _, err := Inspect(t.Context(), path); !errors.As(err, &refused) || !strings.Contains(err.Error(), "neither a tar.gz nor a zip") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := Inspect(t.Context(), filepath.Join(dir, "absent.zip")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent archive: got %v", err)
	}
}

// A truncated download must not look like an attack, since it is fetched again.
func TestDamagedArchivesReturnErrDamaged(t *testing.T) {
	for _, format := range formats {
		p := fakepkg.Describe("1.1.0")
		big := fakepkg.Entry{Name: fakepkg.Top(p) + "/" + p.VersionedHome + "/noise", Body: noise(200_000)}
		for damage, do := range map[string]func(string){
			"half":         func(f string) { fakepkg.Truncate(t, f, 0.5) },
			"end missing":  func(f string) { fakepkg.Truncate(t, f, 0.9999) },
			"bit flipped":  func(f string) { fakepkg.FlipBit(t, f) },
			"header alone": func(f string) { fakepkg.Truncate(t, f, 0.0001) },
		} {
			t.Run(damage+" of "+format, func(t *testing.T) {
				archive := fakepkg.Write(t, t.TempDir(), "p."+format, append(fakepkg.Sound(t, p), big))
				do(archive)
				top := t.TempDir()
				if _, err := Unpack(t.Context(), disk.OS{}, archive, top); !errors.Is(err, ErrDamaged) {
					t.Errorf("got %v, want ErrDamaged", err)
				}
				if left := modes(t, top); len(left) != 0 {
					t.Errorf("left behind: %v", left)
				}
			})
		}
	}
}

// noise returns n bytes that do not compress.
func noise(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		sum := sha256.Sum256(fmt.Append(nil, i))
		b.Write(sum[:])
	}
	return b.String()[:n]
}

func TestEachLimitIsEnforced(t *testing.T) {
	p := fakepkg.Describe("1.1.0")
	for _, format := range formats {
		archive := fakepkg.Write(t, t.TempDir(), "p."+format, append(fakepkg.Sound(t, p),
			fakepkg.Entry{Name: fakepkg.Top(p) + "/" + p.VersionedHome + "/noise", Body: noise(50_000)}))
		for name, tc := range map[string]struct {
			limits limits
			why    string
		}{
			"as much as it has": {limits{entries: 7, unpacked: 1 << 20, ratio: 200}, ""},
			"one entry less":    {limits{entries: 6, unpacked: 1 << 20, ratio: 200}, "at most 6 entries"},
			"too few bytes":     {limits{entries: 7, unpacked: 50_000, ratio: 200}, "unpacks to too much"},
		} {
			t.Run(name+" in "+format, func(t *testing.T) {
				err := unpackWithin(t, archive, tc.limits)
				if tc.why == "" {
					if err != nil {
						t.Error(err)
					}
				} else if err == nil || !strings.Contains(err.Error(), tc.why) {
					t.Errorf("got %v, want %q", err, tc.why)
				}
			})
		}
	}
}

func TestInstalledVersionIsNotOverwritten(t *testing.T) {
	top := t.TempDir()
	p := fakepkg.Describe("1.1.0")
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, p))
	if _, err := Unpack(t.Context(), disk.OS{}, archive, top); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(top, p.Home(), "state")
	if err := os.WriteFile(state, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Unpack(t.Context(), disk.OS{}, archive, top); !errors.Is(err, ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
	if b, err := os.ReadFile(state); err != nil || string(b) != "precious" {
		t.Errorf("the running version's state is %q, %v", b, err)
	}
}

func TestUnpackRemovesAStagingFolderLeftByACrash(t *testing.T) {
	top := t.TempDir()
	p := fakepkg.Describe("1.1.0")
	stale := filepath.Join(layout.Path(top, layout.Staging(p.Home())), "old")
	if err := os.MkdirAll(stale, 0o755); err != nil {
		t.Fatal(err)
	}
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, p))
	if _, err := Unpack(t.Context(), disk.OS{}, archive, top); err != nil {
		t.Fatal(err)
	}
	if got := names(t, filepath.Join(top, "data")); !slices.Equal(got, []string{filepath.Base(p.Home())}) {
		t.Errorf("data holds %v", got)
	}
	if got := names(t, filepath.Join(top, p.Home())); slices.Contains(got, "old") {
		t.Errorf("the home holds the left-over: %v", got)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestCancelledUnpackLeavesNothing(t *testing.T) {
	p := fakepkg.Describe("1.1.0")
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, p))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	top := t.TempDir()
	if _, err := Unpack(ctx, disk.OS{}, archive, top); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := modes(t, top); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// failingDisk counts the calls that can fail and fails one of them.
type failingDisk struct {
	disk.OS
	calls *[]string
	fail  int // number of the call, from 1
	err   error
}

func (d failingDisk) step(what, path string) error {
	*d.calls = append(*d.calls, what+" "+filepath.Base(path))
	if len(*d.calls) == d.fail {
		return d.err
	}
	return nil
}

func (d failingDisk) MkdirAll(op, path string, perm fs.FileMode) error {
	if err := d.step("mkdir", path); err != nil {
		return err
	}
	return d.OS.MkdirAll(op, path, perm)
}

func (d failingDisk) Rename(op, from, to string) error {
	if err := d.step("rename", to); err != nil {
		return err
	}
	return d.OS.Rename(op, from, to)
}

func (d failingDisk) SyncDir(op, path string) error {
	if err := d.step("syncdir", path); err != nil {
		return err
	}
	return d.OS.SyncDir(op, path)
}

func (d failingDisk) OpenRoot(op, path string) (disk.Root, error) {
	if err := d.step("root", path); err != nil {
		return nil, err
	}
	r, err := d.OS.OpenRoot(op, path)
	return failingRoot{r, d}, err
}

type failingRoot struct {
	disk.Root
	d failingDisk
}

func (r failingRoot) MkdirAll(name string, perm fs.FileMode) error {
	if err := r.d.step("mkdir", name); err != nil {
		return err
	}
	return r.Root.MkdirAll(name, perm)
}

func (r failingRoot) SyncDir(name string) error {
	if err := r.d.step("syncdir", name); err != nil {
		return err
	}
	return r.Root.SyncDir(name)
}

func (r failingRoot) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	if err := r.d.step("create", name); err != nil {
		return nil, err
	}
	f, err := r.Root.OpenFile(name, flag, perm)
	return failingFile{f, r.d, name}, err
}

type failingFile struct {
	disk.File
	d    failingDisk
	name string
}

func (f failingFile) Write(p []byte) (int, error) {
	if err := f.d.step("write", f.name); err != nil {
		n, _ := f.File.Write(p[:len(p)/2]) // a full disk takes a part
		return n, err
	}
	return f.File.Write(p)
}

func (f failingFile) Sync() error {
	if err := f.d.step("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// TestFailedDiskCallLeavesTheHostAsItWas fails each disk operation of an unpack in
// turn, as a full or dying disk would.
func TestFailedDiskCallLeavesTheHostAsItWas(t *testing.T) {
	p := fakepkg.Describe("1.1.0")
	entries := append(fakepkg.Sound(t, p), fakepkg.Entry{Name: fakepkg.Top(p) + "/" + p.VersionedHome + "/plugins/disk", Body: "x"})
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", entries)
	errDisk := errors.New("no space left on device")

	top := filepath.Join(t.TempDir(), "top")
	if err := os.Mkdir(top, 0o755); err != nil {
		t.Fatal(err)
	}
	var calls []string
	if _, err := Unpack(t.Context(), failingDisk{calls: &calls}, archive, top); err != nil {
		t.Fatal(err)
	}
	// Everything is durable before the home is renamed, and then the rename.
	const staging, home = ".unpack-muster-agent-1.1.0-3f2a9c", "muster-agent-1.1.0-3f2a9c"
	want := []string{
		"mkdir data", "syncdir top", "mkdir " + staging, "root " + staging,
		"create manifest.yaml", "write manifest.yaml", "sync manifest.yaml",
		"create muster-agent", "write muster-agent", "sync muster-agent",
		"create muster-watcher", "write muster-watcher", "sync muster-watcher",
		"mkdir plugins", "create disk", "write disk", "sync disk",
		"create .digests", "write .digests", "sync .digests",
		"syncdir plugins", "syncdir .", "rename " + home, "syncdir data",
	}
	if !slices.Equal(calls, want) {
		t.Fatalf("the calls are\n%q\nwant\n%q", calls, want)
	}
	for n, call := range calls {
		top := t.TempDir()
		if err := os.Mkdir(filepath.Join(top, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		before := modes(t, top)
		_, err := Unpack(t.Context(), failingDisk{calls: new([]string), fail: n + 1, err: errDisk}, archive, top)
		if !errors.Is(err, errDisk) {
			t.Errorf("%s fails: got %v", call, err)
		}
		if after := modes(t, top); !maps.Equal(before, after) {
			t.Errorf("%s fails: left behind %v", call, after)
		}
	}
}

// fullDisk has no room.
type fullDisk struct{ disk.OS }

func (fullDisk) Free(string, string) (int64, error) { return 100, nil }

func TestUnpackRefusesAFullDiskBeforeItWrites(t *testing.T) {
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, fakepkg.Describe("1.1.0")))
	if _, err := Unpack(t.Context(), fullDisk{}, archive, t.TempDir()); !errors.Is(err, disk.ErrNoSpace) {
		t.Errorf("got %v, want ErrNoSpace", err)
	}
}

func TestInspectedPackageForAnotherPlatformDoesNotFit(t *testing.T) {
	p := fakepkg.Describe("1.1.0")
	p.OS, p.Arch = "plan9", "mips"
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, p))
	c, err := Inspect(t.Context(), archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Manifest.Package.Fits("linux", "amd64"); err == nil || !strings.Contains(err.Error(), "plan9/mips") {
		t.Errorf("got %v", err)
	}
}

// FuzzRead feeds arbitrary bytes to both readers: they may refuse, they must
// not panic, hang or write.
func FuzzRead(f *testing.F) {
	dir := f.TempDir()
	for _, format := range formats {
		data, err := os.ReadFile(fakepkg.Write(f, dir, "p."+format, fakepkg.Sound(f, fakepkg.Describe("1.1.0"))))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	l := limits{entries: 100, unpacked: 1 << 20, ratio: 100}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := scan(t.Context(), &memoryFile{data: data}, io.Discard, l)
		if err != nil {
			return
		}
		for _, place := range c.places {
			if !filepath.IsLocal(place) {
				t.Errorf("a file would be written to %q", place)
			}
		}
	})
}

type memoryFile struct {
	data []byte
	at   int64
}

func (m *memoryFile) Read(p []byte) (int, error) {
	if m.at >= int64(len(m.data)) {
		return 0, io.EOF
	}
	n := copy(p, m.data[m.at:])
	m.at += int64(n)
	return n, nil
}

func (m *memoryFile) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += m.at
	case io.SeekEnd:
		off += int64(len(m.data))
	}
	if off < 0 {
		return 0, errors.New("negative position")
	}
	m.at = off
	return off, nil
}

func unpackWithin(t *testing.T, archive string, l limits) error {
	t.Helper()
	a, err := open(t.Context(), disk.OS{}, archive, nil, l)
	if err != nil {
		return err
	}
	defer a.Close()
	_, err = a.Unpack(t.Context(), t.TempDir())
	return err
}

// TestArchiveChangedAfterItsVerificationIsNotUnpacked changes an archive between its
// verification and its unpacking, as its owner can.
func TestArchiveChangedAfterItsVerificationIsNotUnpacked(t *testing.T) {
	p := fakepkg.Describe("1.1.0")
	extra := func(body string) []fakepkg.Entry {
		return append(fakepkg.Sound(t, p), fakepkg.Entry{Name: fakepkg.Top(p) + "/" + p.VersionedHome + "/plugin", Body: body})
	}
	for _, format := range formats {
		for name, c := range map[string]struct {
			change func(path string, evil []byte) error
			want   error
		}{
			"another file under its name": {func(path string, evil []byte) error {
				return errors.Join(os.Remove(path), os.WriteFile(path, evil, 0o600))
			}, nil},
			"other content in the same file": {func(path string, evil []byte) error {
				return os.WriteFile(path, evil, 0o600)
			}, ErrChanged},
		} {
			t.Run(name+" in "+format, func(t *testing.T) {
				archive := fakepkg.Write(t, t.TempDir(), "p."+format, extra("good"))
				evil, err := os.ReadFile(fakepkg.Write(t, t.TempDir(), "p."+format, extra("evil")))
				if err != nil {
					t.Fatal(err)
				}
				verified := sha256.New()
				a, err := Open(t.Context(), disk.OS{}, archive, func(r io.Reader) error {
					_, err := io.Copy(verified, r)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				if got := hex.EncodeToString(verified.Sum(nil)); got != a.SHA256 {
					t.Errorf("verified %s, read %s", got, a.SHA256)
				}
				if err := c.change(archive, evil); err != nil {
					t.Fatal(err)
				}
				top := t.TempDir()
				if _, err := a.Unpack(t.Context(), top); !errors.Is(err, c.want) {
					t.Fatalf("got %v, want %v", err, c.want)
				}
				got, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(p.Home()), "plugin"))
				if c.want == nil && string(got) != "good" || c.want != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("installed %q, %v", got, err)
				}
			})
		}
	}
}

func TestErrorOfTheVerificationTakesPrecedence(t *testing.T) {
	errUntrusted := errors.New("untrusted")
	for name, verify := range map[string]func(io.Reader) error{
		"at once": func(io.Reader) error { return errUntrusted },
		"at the end": func(r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return cmp.Or(err, errUntrusted)
		},
	} {
		for _, format := range formats {
			sound := fakepkg.Write(t, t.TempDir(), "p."+format, fakepkg.Sound(t, fakepkg.Describe("1.1.0")))
			none := filepath.Join(t.TempDir(), "p."+format)
			if err := os.WriteFile(none, []byte("no archive"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, archive := range []string{sound, none} {
				if _, err := Open(t.Context(), disk.OS{}, archive, verify); !errors.Is(err, errUntrusted) {
					t.Errorf("%s, %s: got %v, want the verification's error", name, archive, err)
				}
			}
		}
	}
}
