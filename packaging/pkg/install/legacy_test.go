package install

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

func TestUnpackWritesAManifestForALegacyPackage(t *testing.T) {
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			p := fakepkg.DescribeLegacy("1.1.0-SNAPSHOT")
			// The legacy files may be an archive's last entries.
			entries := fakepkg.SoundLegacy(p)
			slices.Reverse(entries)
			archive := fakepkg.Write(t, t.TempDir(), "renamed to 9.9.9 by somebody."+format, entries)
			c, err := Inspect(t.Context(), archive)
			if err != nil {
				t.Fatal(err)
			}
			if !c.Legacy || c.Manifest.Package.Identity() != p.Identity() {
				t.Errorf("Inspect tells of %+v, legacy %v", c.Manifest.Package, c.Legacy)
			}
			top := t.TempDir()
			got, err := Unpack(t.Context(), disk.OS{}, archive, top)
			if err != nil {
				t.Fatal(err)
			}
			const home = "data/muster-agent-3f2a9c"
			if got.Home() != home || got.Identity() != p.Identity() {
				t.Errorf("unpacked %+v to %s", got.Identity(), got.Home())
			}
			want := map[string]string{
				"data/":                   "drwxr-xr-x",
				home + "/":                "drwxr-xr-x",
				home + "/.digests":        "-rw-r--r--",
				home + "/manifest.yaml":   "-rw-r--r--",
				home + "/package.version": "-rw-r--r--",
				home + "/muster-agent":    "-rwxr-xr-x",
				home + "/muster-watcher":  "-rwxr-xr-x",
			}
			if got := modes(t, top); !maps.Equal(got, want) {
				t.Errorf("the host has\n%v\nwant\n%v", got, want)
			}
			read, err := ReadHome(disk.OS{}, top, home)
			if err != nil || read.Identity() != p.Identity() || read.Home() != home {
				t.Errorf("the home says it is %+v at %s, %v", read.Identity(), read.Home(), err)
			}
		})
	}
}

func TestElasticAgentPackageWithoutManifestIsInspected(t *testing.T) {
	const top = "elastic-agent-8.11.0-linux-x86_64"
	archive := fakepkg.Write(t, t.TempDir(), "e.tar.gz", []fakepkg.Entry{
		{Name: top + "/.elastic-agent.active.commit", Body: "15658b38b48ba4487afadc5563b1576b85ce0264"},
		{Name: top + "/elastic-agent.yml", Body: "outputs: {}\n"},
		{Name: top + "/data/elastic-agent-15658b/package.version", Body: "8.11.0"},
		{Name: top + "/data/elastic-agent-15658b/elastic-agent", Body: fakepkg.Program("linux", "arm64"), Mode: 0o755},
	})
	c, err := Inspect(t.Context(), archive)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Manifest.Package
	if p.Home() != "data/elastic-agent-15658b" || p.FullVersion() != "8.11.0" || p.OS != "linux" || p.Arch != "arm64" {
		t.Errorf("it is %+v", p)
	}
}

// A legacy package and one with a manifest have the same identity if they hold the
// same build.
func TestLegacyAndManifestPackageOfOneBuildHaveTheSameIdentity(t *testing.T) {
	modern, legacy := fakepkg.Describe("1.1.0"), fakepkg.DescribeLegacy("1.1.0")
	one, err := Inspect(t.Context(), fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, modern)))
	if err != nil {
		t.Fatal(err)
	}
	other, err := Inspect(t.Context(), fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.SoundLegacy(legacy)))
	if err != nil {
		t.Fatal(err)
	}
	if one.Legacy || !other.Legacy || one.Manifest.Package.Identity() != other.Manifest.Package.Identity() {
		t.Errorf("%+v and %+v differ", one.Manifest.Package.Identity(), other.Manifest.Package.Identity())
	}
}

// A package may have both: then only the manifest is used.
func TestManifestTakesPrecedenceOverLegacyFiles(t *testing.T) {
	p := fakepkg.Describe("1.1.0")
	top := fakepkg.Top(p)
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", append(fakepkg.Sound(t, p),
		fakepkg.Entry{Name: top + "/" + p.VersionedHome + "/package.version", Body: "9.9.9"},
		fakepkg.Entry{Name: top + "/.elastic-agent.active.commit", Body: "abcdef"}))
	c, err := Inspect(t.Context(), archive)
	if err != nil {
		t.Fatal(err)
	}
	if c.Legacy || c.Manifest.Package.Identity() != p.Identity() {
		t.Errorf("it is %+v, legacy %v", c.Manifest.Package, c.Legacy)
	}
}

// A package that does not map its manifest would leave the home without one, and the
// running agent would not know its version.
func TestUnpackWritesAManifestThatThePackageDoesNotMap(t *testing.T) {
	p := fakepkg.Describe("1.1.0")
	delete(p.PathMappings[0], manifest.FileName)
	top := t.TempDir()
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.Sound(t, p))
	if _, err := Unpack(t.Context(), disk.OS{}, archive, top); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadHome(disk.OS{}, top, p.Home()); err != nil || got.Identity() != p.Identity() {
		t.Errorf("the home says %+v, %v", got, err)
	}
}

// The derived manifest is synced like the other files, before the rename.
func TestLegacyHomeIsCompleteOrAbsent(t *testing.T) {
	archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.SoundLegacy(fakepkg.DescribeLegacy("1.1.0")))
	var calls []string
	if _, err := Unpack(t.Context(), failingDisk{calls: &calls}, archive, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	const tail = "create manifest.yaml|write manifest.yaml|sync manifest.yaml|create .digests|write .digests|sync .digests|syncdir .|rename muster-agent-3f2a9c|syncdir data"
	if !strings.HasSuffix(strings.Join(calls, "|"), tail) {
		t.Errorf("the calls are %q, want them to end with %s", calls, tail)
	}
	for n, call := range calls {
		top := t.TempDir()
		if err := os.Mkdir(filepath.Join(top, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		before := modes(t, top)
		if _, err := Unpack(t.Context(), failingDisk{calls: new([]string), fail: n + 1, err: os.ErrInvalid}, archive, top); err == nil {
			t.Errorf("%s fails, but Unpack succeeds", call)
		}
		if after := modes(t, top); !maps.Equal(before, after) {
			t.Errorf("%s fails: left behind %v", call, after)
		}
	}
}

func TestTwoLegacyVersionsOfOneCommitDoNotShareAHome(t *testing.T) {
	top := t.TempDir()
	for i, version := range []string{"1.1.0", "1.2.0"} {
		archive := fakepkg.Write(t, t.TempDir(), "p.tar.gz", fakepkg.SoundLegacy(fakepkg.DescribeLegacy(version)))
		_, err := Unpack(t.Context(), disk.OS{}, archive, top)
		if (err == nil) != (i == 0) {
			t.Errorf("unpack %s: %v", version, err)
		}
	}
	if p, err := ReadHome(disk.OS{}, top, "data/muster-agent-3f2a9c"); err != nil || p.Version != "1.1.0" {
		t.Errorf("the home holds %s, %v, want the first version", p.Version, err)
	}
}

func TestPlatformOfProgramHeaders(t *testing.T) {
	fat := func(cpus ...byte) string {
		head := []byte{0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, byte(len(cpus))}
		for _, cpu := range cpus {
			head = append(head, append([]byte{1, 0, 0, cpu}, make([]byte, 16)...)...)
		}
		return string(head)
	}
	for _, c := range []struct{ what, head, want string }{
		{"linux/amd64", fakepkg.Program("linux", "amd64"), "linux/amd64"},
		{"linux/arm64", fakepkg.Program("linux", "arm64"), "linux/arm64"},
		{"linux/riscv64", fakepkg.Program("linux", "riscv64"), "linux/riscv64"},
		{"linux/ppc64le", fakepkg.Program("linux", "ppc64le"), "linux/ppc64le"},
		{"big endian", fakepkg.Program("linux", "s390x"), "linux/s390x"},
		{"windows/amd64", fakepkg.Program("windows", "amd64"), "windows/amd64"},
		{"windows/arm64", fakepkg.Program("windows", "arm64"), "windows/arm64"},
		{"darwin/arm64", fakepkg.Program("darwin", "arm64"), "darwin/arm64"},
		{"universal", fat(7, 12), "darwin/amd64"},
		{"universal that is a Java class", "\xca\xfe\xba\xbe\x00\x00\x00\x41" + strings.Repeat("x", 100), "unknown/unknown"},
		{"script", "#!/bin/sh\necho hello and a long comment, more than a header has\n", "unknown/unknown"},
		{"empty", "", "unknown/unknown"},
		{"MS-DOS program whose PE header lies outside", "MZ" + strings.Repeat("\xff", 200), "unknown/unknown"},
		{"ELF cut short", fakepkg.Program("linux", "amd64")[:12], "unknown/unknown"},
		{"FreeBSD", fakepkg.Program("linux", "amd64")[:7] + "\x09" + fakepkg.Program("linux", "amd64")[8:], "freebsd/amd64"},
	} {
		if got := platformOf([]byte(c.head)).String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
	// A program of Go's own linker, whatever this machine is.
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, headLength))
	if err != nil {
		t.Fatal(err)
	}
	if p := platformOf(head); !slices.Contains(p.oses, runtime.GOOS) || !slices.Contains(p.arches, runtime.GOARCH) {
		t.Errorf("this test is a program for %s, want %s/%s", p, runtime.GOOS, runtime.GOARCH)
	}
}

func FuzzPlatform(f *testing.F) {
	for _, goos := range []string{"linux", "windows", "darwin"} {
		f.Add([]byte(fakepkg.Program(goos, "amd64")))
	}
	f.Fuzz(func(_ *testing.T, head []byte) { _ = platformOf(head).String() }) // must not panic
}

// A program for another platform is refused before anything is unpacked, by its
// header and not by a name.
func TestPlatformIsTakenFromTheProgramIfThePackageHasNone(t *testing.T) {
	p := fakepkg.DescribeLegacy("1.1.0")
	legacy := fakepkg.SoundLegacy(p)
	with := func(agent string) []fakepkg.Entry {
		entries := slices.Clone(legacy)
		for i := range entries {
			if strings.HasSuffix(entries[i].Name, "/muster-agent") {
				entries[i].Body = agent
			}
		}
		return entries
	}
	for _, c := range []struct{ goos, goarch, agent string }{
		{"linux", "arm64", fakepkg.Program("linux", "arm64")},
		{"windows", "amd64", fakepkg.Program("windows", "amd64")},
		{"", "", "#!/bin/sh\n"},
	} {
		got, err := Inspect(t.Context(), fakepkg.Write(t, t.TempDir(), build.TarGz, with(c.agent)))
		if err != nil {
			t.Fatal(err)
		}
		if pkg := got.Manifest.Package; pkg.OS != c.goos || pkg.Arch != c.goarch {
			t.Errorf("it is for %q/%q, want %q/%q", pkg.OS, pkg.Arch, c.goos, c.goarch)
		}
	}
	got, err := Inspect(t.Context(), fakepkg.Write(t, t.TempDir(), build.TarGz, with(fakepkg.Program("linux", "arm64"))))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Manifest.Package.Fits("linux", "amd64"); err == nil || !strings.Contains(err.Error(), "linux/arm64") {
		t.Errorf("on linux/amd64: %v, want a refusal that names linux/arm64", err)
	}
}
