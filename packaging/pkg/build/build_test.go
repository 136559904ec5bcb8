package build_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

func file(t testing.TB, dir, name, body string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(body), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// spec returns a small package. Each call writes its files again, with other times.
func spec(t testing.TB, format string) build.Spec {
	t.Helper()
	dir := t.TempDir()
	return build.Spec{
		Manifest: manifest.Package{Version: "1.1.0", OS: "linux", Arch: "amd64"},
		Format:   format,
		Files: []build.File{
			{Name: "muster-agent", Path: file(t, dir, "a", "agent", 0o700)},
			{Name: "muster-watcher", Path: file(t, dir, "w", "watcher", 0o755)},
			{Name: "plugins/disk", Path: file(t, dir, "d", "disk", 0o600)},
		},
	}
}

func mustBuild(t testing.TB, s build.Spec) ([]byte, manifest.Manifest) {
	t.Helper()
	var buf bytes.Buffer
	m, err := build.Build(context.Background(), s, &buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), m
}

func TestBuiltPackageUnpacks(t *testing.T) {
	for _, format := range []string{build.TarGz, build.Zip} {
		t.Run(format, func(t *testing.T) {
			s := spec(t, format)
			s.Manifest.Snapshot = true
			archive, m := mustBuild(t, s)
			path := file(t, t.TempDir(), "p", string(archive), 0o644)
			top := t.TempDir()
			p, err := install.Unpack(t.Context(), disk.OS{}, path, top)
			if err != nil {
				t.Fatal(err)
			}
			if p.Identity() != m.Package.Identity() || p.Home() != "data/muster-agent-1.1.0-SNAPSHOT-"+p.Hash[:6] {
				t.Errorf("unpacked %+v at %s, built %+v", p.Identity(), p.Home(), m.Package.Identity())
			}
			for name, want := range map[string]struct {
				body string
				mode os.FileMode
			}{"muster-agent": {"agent", 0o755}, "muster-watcher": {"watcher", 0o755}, "plugins/disk": {"disk", 0o644}} {
				full := filepath.Join(top, p.Home(), name)
				body, err := os.ReadFile(full)
				if err != nil {
					t.Error(err)
					continue
				}
				fi, err := os.Stat(full)
				if err != nil || string(body) != want.body || fi.Mode() != want.mode {
					t.Errorf("%s is %q %v (%v), want %q %v", name, body, fi.Mode(), err, want.body, want.mode)
				}
			}
			// The running agent reads its version from the manifest in the home.
			f, err := os.Open(filepath.Join(top, p.Home(), manifest.FileName))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if read, err := manifest.Parse(f); err != nil || read.Package.Identity() != m.Package.Identity() {
				t.Errorf("the home's manifest: %+v, %v", read, err)
			}
		})
	}
}

func TestBuildIsReproducible(t *testing.T) {
	for _, format := range []string{build.TarGz, build.Zip} {
		first, _ := mustBuild(t, spec(t, format))
		again := spec(t, format)
		slices.Reverse(again.Files)
		for _, f := range again.Files {
			if err := os.Chtimes(f.Path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if second, _ := mustBuild(t, again); !bytes.Equal(first, second) {
			t.Errorf("%s: two builds differ", format)
		}
		later := spec(t, format)
		later.Time = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		if dated, _ := mustBuild(t, later); bytes.Equal(first, dated) {
			t.Errorf("%s: the time given does not show", format)
		}
	}
}

// The bytes of a release must not depend on the machine. If this test fails on a new
// Go release, the compressor changed: update the digests.
func TestBuildHasKnownDigests(t *testing.T) {
	for format, want := range map[string]string{
		build.TarGz: "10e157c1def55e86d7643f346b2ad6d2dbf2a7ab01e88dce2d334d98b9c18aab",
		build.Zip:   "57c4a8c35ecd18c83fb3b79cfd45fbcb20a7df4d9d9ef14687b6598b39be8fce",
	} {
		archive, _ := mustBuild(t, spec(t, format))
		sum := sha256.Sum256(archive)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s: digest is %s, want %s", format, got, want)
		}
	}
}

func TestTarHoldsNothingOfTheBuilder(t *testing.T) {
	archive, m := mustBuild(t, spec(t, build.TarGz))
	gz, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if !gz.ModTime.IsZero() || gz.Name != "" || gz.OS != 255 {
		t.Errorf("gzip header is %+v", gz.Header)
	}
	tr := tar.NewReader(gz)
	var names []string
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || !h.ModTime.Equal(build.DefaultTime()) || (h.Mode != 0o755 && h.Mode != 0o644) {
			t.Errorf("%s has owner %d:%d %q:%q, time %s, mode %o", h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime, h.Mode)
		}
		if h.Name == build.TopFolder(m.Package)+"/"+build.CommitFile {
			if body, err := io.ReadAll(tr); err != nil || string(body) != m.Package.Hash+"\n" {
				t.Errorf("commit file holds %q, %v", body, err)
			}
		}
	}
	const top = "muster-agent-1.1.0-linux-amd64"
	home := top + "/data/muster-agent-" + m.Package.Hash[:6]
	want := []string{
		top + "/", top + "/manifest.yaml", top + "/.muster-agent.active.commit",
		top + "/data/", home + "/", home + "/muster-agent", home + "/muster-watcher", home + "/plugins/", home + "/plugins/disk",
	}
	if !slices.Equal(names, want) {
		t.Errorf("entries are\n%q\nwant\n%q", names, want)
	}
}

func TestDerivedHashDependsOnFiles(t *testing.T) {
	_, base := mustBuild(t, spec(t, build.TarGz))
	_, zipped := mustBuild(t, spec(t, build.Zip))
	if base.Package.Hash != zipped.Package.Hash {
		t.Error("the format counts for the hash")
	}
	for name, change := range map[string]func(*build.Spec){
		"content": func(s *build.Spec) { s.Files[0].Path = s.Files[1].Path },
		"name":    func(s *build.Spec) { s.Files[1].Name = "muster-watchers" },
		"mode":    func(s *build.Spec) { s.Files[2].Mode = 0o755 },
		"fewer":   func(s *build.Spec) { s.Files = s.Files[:2] },
	} {
		s := spec(t, build.TarGz)
		change(&s)
		if _, m := mustBuild(t, s); m.Package.Hash == base.Package.Hash {
			t.Errorf("%s does not count for the hash", name)
		}
	}
	s := spec(t, build.TarGz)
	s.Manifest.Hash = "abcdef0123"
	if _, m := mustBuild(t, s); m.Package.Hash != "abcdef0123" || m.Package.Home() != "data/muster-agent-1.1.0-abcdef" {
		t.Errorf("a given hash becomes %s at %s", m.Package.Hash, m.Package.Home())
	}
}

func TestBuildErrorNamesTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*build.Spec)
		says   string
	}{
		"version":          {func(s *build.Spec) { s.Manifest.Version = "1.1" }, "package.version"},
		"snapshot suffix":  {func(s *build.Spec) { s.Manifest.Version = "1.1.0-SNAPSHOT" }, "snapshot: true"},
		"hash":             {func(s *build.Spec) { s.Manifest.Hash = "xyz" }, "package.hash"},
		"no platform":      {func(s *build.Spec) { s.Manifest.OS = "" }, "package.os"},
		"platform":         {func(s *build.Spec) { s.Manifest.Arch = "../x" }, "package.arch"},
		"home given":       {func(s *build.Spec) { s.Manifest.VersionedHome = "data/x" }, "derived"},
		"format":           {func(s *build.Spec) { s.Format = "rar" }, `"rar"`},
		"no agent":         {func(s *build.Spec) { s.Files = s.Files[1:] }, "no file is named muster-agent"},
		"no windows agent": {func(s *build.Spec) { s.Manifest.OS = "windows" }, "muster-agent.exe"},
		"name twice":       {func(s *build.Spec) { s.Files = append(s.Files, s.Files[0]) }, "given twice"},
		"file as folder":   {func(s *build.Spec) { s.Files[2].Name = "muster-agent/x" }, "muster-agent is a file as well"},
		"manifest":         {func(s *build.Spec) { s.Files[2].Name = "manifest.yaml" }, "the builder writes"},
		"state":            {func(s *build.Spec) { s.Files[2].Name = "run/queue" }, "agent's state"},
		"absolute name":    {func(s *build.Spec) { s.Files[2].Name = "/etc/passwd" }, "relative path"},
		"climbing name":    {func(s *build.Spec) { s.Files[2].Name = "../x" }, "relative path"},
		"absent file":      {func(s *build.Spec) { s.Files[2].Path += ".absent" }, "plugins/disk"},
		"folder":           {func(s *build.Spec) { s.Files[2].Path = filepath.Dir(s.Files[2].Path) }, "not a regular file"},
		"ancient time":     {func(s *build.Spec) { s.Time = time.Unix(0, 0) }, "before 1980"},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t, build.TarGz)
			tc.change(&s)
			_, err := build.Build(t.Context(), s, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

// writerFunc implements io.Writer by a function.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestBuildFailsIfAFileChanges(t *testing.T) {
	for change, body := range map[string]string{"same length": "watcheR", "longer": "watcher+", "shorter": "watch"} {
		s := spec(t, build.Zip)
		// Large enough for the archive to be written to before the second file is
		// opened again.
		noise := make([]byte, 64<<10)
		rand.NewChaCha8([32]byte{}).Read(noise)
		s.Files[0].Path = file(t, t.TempDir(), "noise", string(noise), 0o755)
		var once bool
		_, err := build.Build(t.Context(), s, writerFunc(func(p []byte) (int, error) {
			if !once {
				once = true
				if err := os.WriteFile(s.Files[1].Path, []byte(body), 0o755); err != nil {
					t.Error(err)
				}
			}
			return len(p), nil
		}))
		if !once {
			t.Fatal("the file was never changed")
		}
		if err == nil || !strings.Contains(err.Error(), "changed while it was packed") {
			t.Errorf("%s: got %v", change, err)
		}
	}
}

func TestBuildStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := build.Build(ctx, spec(t, build.TarGz), io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestBuildReturnsWriteErrors(t *testing.T) {
	full := errors.New("no space left on device")
	for _, format := range []string{build.TarGz, build.Zip} {
		_, err := build.Build(t.Context(), spec(t, format), writerFunc(func([]byte) (int, error) { return 0, full }))
		if !errors.Is(err, full) {
			t.Errorf("%s: got %v", format, err)
		}
	}
}

// component returns the package of a component with one configuration file.
func component(t testing.TB) build.Spec {
	t.Helper()
	c := fakepkg.Component("web")
	return fakepkg.ComponentSpec(t, c, "2.4.0", map[string]string{"bin/web": "program", "conf/web.conf": "port 80", "run/seed": "x"})
}

func TestComponentPackageHasNoAgent(t *testing.T) {
	archive, m := mustBuild(t, component(t))
	c, err := install.Inspect(t.Context(), file(t, t.TempDir(), "p", string(archive), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if c.Manifest.Package.Component == nil || c.Top != strings.TrimSuffix(m.Package.ArchiveName("tar.gz"), ".tar.gz") || !strings.HasPrefix(c.Top, "muster-component-web-2.4.0-") {
		t.Errorf("the archive has %s for %+v", c.Top, c.Manifest.Package)
	}
	for _, f := range c.Files {
		// An agent that reads no manifest would take the package for an agent's.
		if f.Name == build.CommitFile || strings.Contains(f.Name, "muster-agent") {
			t.Errorf("the archive has %s", f.Name)
		}
	}
	if home := c.Manifest.Package.Home(); home != "data/web-2.4.0-"+m.Package.Hash[:6] {
		t.Errorf("its home is %s", home)
	}
}

// What a container runs is only in the manifest.
func TestComponentWithoutFilesIsBuiltFromItsDescription(t *testing.T) {
	built := map[string]bool{}
	change := map[string]func(*manifest.Package){
		"": func(*manifest.Package) {},
		"another image": func(p *manifest.Package) {
			p.Component.Settings["image"] = "example.com/web@sha256:" + strings.Repeat("b", 64)
		},
		"another name":    func(p *manifest.Package) { p.Component.Name = "db" },
		"another check":   func(p *manifest.Package) { p.Checks = []manifest.Check{{Name: "up", TCP: "127.0.0.1:80"}} },
		"another runtime": func(p *manifest.Package) { p.Component.Runtime = "other" },
	}
	for what, do := range change {
		c := manifest.Component{Name: "web", Runtime: "docker", Settings: map[string]any{"image": "example.com/web@sha256:" + strings.Repeat("a", 64)}}
		s := fakepkg.ComponentSpec(t, c, "2.4.0", nil)
		do(&s.Manifest)
		archive, m := mustBuild(t, s)
		if built[m.Package.Hash] {
			t.Errorf("%s does not count for the hash", what)
		}
		built[m.Package.Hash] = true
		top := t.TempDir()
		p, err := install.Unpack(t.Context(), disk.OS{}, file(t, t.TempDir(), "p", string(archive), 0o644), top)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := install.CheckIntact(t.Context(), disk.OS{}, top, p.Home()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestBuildErrorNamesTheCauseInAComponent(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*manifest.Component)
		says   string
	}{
		"no configuration file": {func(c *manifest.Component) { c.ConfigFiles[0].From = "conf/wev.conf" }, `config-files[0].from: "conf/wev.conf" is not in the package, for /etc/web/web.conf: build it with --file conf/wev.conf=PATH`},
		"no program":            {func(c *manifest.Component) { c.Settings["program"] = "bin/webb" }, `settings.program: "bin/webb" is not in the package`},
		"not executable":        {func(c *manifest.Component) { c.Settings["program"] = "conf/web.conf" }, `settings.program: "conf/web.conf" is not executable`},
		"misspelt setting":      {func(c *manifest.Component) { c.Settings["programm"] = "bin/web" }, "settings.programm: is no setting, want one of program, "},
		"name":                  {func(c *manifest.Component) { c.Name = "Web" }, `build package: name: is "Web", want`},
		"relative path":         {func(c *manifest.Component) { c.ConfigFiles[0].Path = "web.conf" }, `build package: config-files[0].path: is "web.conf"`},
		"settings":              {func(c *manifest.Component) { c.Settings["f"] = func() {} }, "build package: settings: want what JSON can hold"},
	} {
		s := component(t)
		tc.change(s.Manifest.Component)
		if _, err := build.Build(t.Context(), s, io.Discard); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want %q", name, err, tc.says)
		}
	}
}

// Files with valid names are unpacked with the content they were built from.
func TestUnpackedFilesEqualTheBuiltOnes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "m")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		bodies := rapid.MapOfN(rapid.StringMatching(`f[a-z0-9._ é-]{0,20}(/[a-z]{1,9}){0,3}x`), rapid.String(), 0, 6).Draw(rt, "files")
		bodies["muster-agent"] = "agent"
		var described *manifest.Component
		if rapid.Bool().Draw(rt, "component") {
			c := fakepkg.Component("web")
			described = &c
			delete(bodies, "muster-agent")
			bodies["conf/web.conf"], bodies["bin/web"] = "port 80", "web"
		}
		s := build.Spec{
			Manifest: manifest.Package{Version: "1.1.0", OS: "linux", Arch: "amd64", Component: described},
			Format:   rapid.SampledFrom([]string{build.TarGz, build.Zip}).Draw(rt, "format"),
		}
		for name, body := range bodies {
			mode := os.FileMode(0o644)
			if name == "bin/web" {
				mode = 0o755
			}
			s.Files = append(s.Files, build.File{Name: name, Path: file(t, dir, hex.EncodeToString([]byte(name))[:min(2*len(name), 200)], body, mode)})
		}
		var buf bytes.Buffer
		if _, err := build.Build(t.Context(), s, &buf); err != nil {
			// A name may be the folder of another, which is refused.
			if strings.Contains(err.Error(), "is a file as well") {
				return
			}
			rt.Fatal(err)
		}
		top := filepath.Join(dir, "top")
		if err := os.Mkdir(top, 0o755); err != nil {
			rt.Fatal(err)
		}
		p, err := install.Unpack(t.Context(), disk.OS{}, file(t, dir, "archive", buf.String(), 0o644), top)
		if err != nil {
			rt.Fatal(err)
		}
		for name, body := range bodies {
			got, err := os.ReadFile(filepath.Join(top, p.Home(), name))
			if err != nil || string(got) != body {
				rt.Fatalf("%s: %q, %v, want %q", name, got, err, body)
			}
		}
	})
}
