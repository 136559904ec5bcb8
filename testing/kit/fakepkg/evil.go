package fakepkg

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Evil is a package that must be refused, whoever signed it.
type Evil struct {
	Name    string // the defect, for the name of a test
	Entries []Entry
	// Why is a part of the error that the refusal must have.
	Why string
	// Only is "tar.gz" or "zip" if the other format cannot express the defect.
	Only string
}

// EvilPackages returns packages of one version with one defect each, which are otherwise
// valid.
func EvilPackages(t testing.TB, version string) []Evil {
	t.Helper()
	p := Describe(version)
	b := base{p: p, sound: Sound(t, p), top: Top(p), home: Top(p) + "/" + p.VersionedHome}
	return append(b.evil(), []Evil{
		{Name: "manifest twice", Entries: b.with(Manifest(t, p)), Why: "is in the archive twice"},
		{Name: "two names for one place", Entries: b.with(
			Entry{Name: b.top + "/data/muster-agent-" + p.Identity().String() + "/muster-agent", Body: "other"}), Why: "map to the same file"},
		{Name: "no folder at all", Entries: []Entry{{Name: "muster-agent", Body: "x", Mode: 0o755}}, Why: "want everything in one folder"},
		{Name: "no manifest", Entries: b.without("manifest.yaml"), Why: "has no manifest.yaml"},
		{Name: "manifest that is not one", Entries: append(b.without("manifest.yaml"), Entry{Name: b.top + "/manifest.yaml", Body: "version: [\n"}), Why: "cannot be used"},
		{Name: "manifest that leads out", Entries: append(b.without("manifest.yaml"), Entry{Name: b.top + "/manifest.yaml", Body: escapingManifest}), Why: "package.path-mappings[0]"},
		{Name: "manifest that never ends", Entries: append(b.without("manifest.yaml"), Entry{Name: b.top + "/manifest.yaml", Zeros: 1 << 20}), Why: "more than 65536 bytes"},
		{Name: "program for another system", Entries: b.replace(b.home+"/muster-agent", Program("windows", "amd64")), Why: "is a program for windows/amd64"},
		{Name: "program for another machine", Entries: b.replace(b.home+"/muster-agent", Program("linux", "riscv64")), Why: "is a program for linux/riscv64"},
		// Counted before the generation is known: 10,000 files once are enough.
		{Name: "too many entries", Entries: b.with(many(b.home, 10_000)...), Why: "at most 10000 entries"},
		{Name: "nothing for the home", Entries: []Entry{{Name: b.top + "/", Kind: Folder}, {Name: b.top + "/README", Body: "x"}, unmapped(t, version)}, Why: "none of its files"},
	}...)
}

// base is the valid package of which evil ones are variants, of either generation.
type base struct {
	p         manifest.Package
	sound     []Entry
	top, home string
}

func (b base) with(extra ...Entry) []Entry { return append(slices.Clone(b.sound), extra...) }

// replace returns the entries with another content of a file.
func (b base) replace(name, body string) []Entry {
	entries := slices.Clone(b.sound)
	for i := range entries {
		if entries[i].Name == name {
			entries[i].Body = body
		}
	}
	return entries
}

func (b base) without(part string) []Entry {
	return slices.DeleteFunc(slices.Clone(b.sound), func(e Entry) bool { return strings.Contains(e.Name, part) })
}

// evil returns the packages whose defect does not depend on the generation.
func (b base) evil() []Evil {
	top, home, with := b.top, b.home, b.with
	return []Evil{
		{Name: "path that climbs", Entries: with(Entry{Name: home + "/../../../../evil", Body: "x"}), Why: "leads out of the package through .."},
		{Name: "path that climbs and comes back", Entries: with(Entry{Name: home + "/../" + b.p.VersionedHome + "/evil", Body: "x"}), Why: "leads out of the package through .."},
		{Name: "path that begins with a climb", Entries: with(Entry{Name: "../evil", Body: "x"}), Why: "leads out of the package through .."},
		{Name: "absolute path", Entries: with(Entry{Name: "/tmp/evil", Body: "x"}), Why: "is an absolute path"},
		{Name: "backslash", Entries: with(Entry{Name: home + `/..\..\evil`, Body: "x"}), Why: "has a backslash"},
		{Name: "drive letter", Entries: with(Entry{Name: "C:/evil", Body: "x"}), Why: "has a colon"},
		{Name: "newline in a name", Entries: with(Entry{Name: home + "/a\nb", Body: "x"}), Why: "control characters"},
		{Name: "empty part in a path", Entries: with(Entry{Name: home + "//evil", Body: "x"}), Why: "not in its shortest form"},
		{Name: "dot in a path", Entries: with(Entry{Name: home + "/./evil", Body: "x"}), Why: "not in its shortest form"},
		{Name: "name too long", Entries: with(Entry{Name: home + "/" + strings.Repeat("n", 256), Body: "x"}), Why: "more than 255 bytes"},
		{Name: "path too long", Entries: with(Entry{Name: home + strings.Repeat("/deeper", 200), Body: "x"}), Why: "more than 1024 bytes"},
		{Name: "symbolic link", Entries: with(Entry{Name: home + "/link", Kind: Symlink, Link: "../../../.."}), Why: "is a symbolic link"},
		{Name: "write through a symbolic link", Entries: with(
			Entry{Name: home + "/link", Kind: Symlink, Link: "/tmp"}, Entry{Name: home + "/link/evil", Body: "x"}), Why: "is a symbolic link"},
		{Name: "hard link", Entries: with(Entry{Name: home + "/link", Kind: Hardlink, Link: "../../../../etc/passwd"}), Why: "is a hard link", Only: "tar.gz"},
		{Name: "device", Entries: with(Entry{Name: home + "/null", Kind: CharDevice}), Why: "is a device"},
		{Name: "pipe", Entries: with(Entry{Name: home + "/pipe", Kind: Fifo}), Why: "is a device or a pipe"},
		{Name: "same name twice", Entries: with(Entry{Name: home + "/muster-agent", Body: "other"}), Why: "is in the archive twice"},
		{Name: "file used as a folder", Entries: with(Entry{Name: home + "/muster-agent/evil", Body: "x"}), Why: "which is a file"},
		{Name: "file used as a folder where nothing is unpacked", Entries: with(
			Entry{Name: top + "/README", Body: "x"}, Entry{Name: top + "/README/evil", Body: "x"}), Why: "which is a file"},
		{Name: "folder used as a file", Entries: with(Entry{Name: home + "/x/y", Body: "x"}, Entry{Name: home + "/x", Body: "x"}), Why: "is in the archive twice"},
		{Name: "file for another home", Entries: with(Entry{Name: top + "/data/muster-agent-9.9.9-abcdef/muster-agent", Body: "x"}), Why: "outside the versioned home"},
		{Name: "file over the active commit", Entries: with(Entry{Name: top + "/data/active.commit", Body: "x"}), Why: "outside the versioned home"},
		{Name: "second top folder", Entries: with(Entry{Name: "other/evil", Body: "x"}), Why: "beside the package's top folder"},
		{Name: "file beside the top folder", Entries: with(Entry{Name: "evil", Body: "x"}), Why: "beside the package's top folder"},
		{Name: "compression bomb", Entries: with(Entry{Name: home + "/bomb", Zeros: 18 << 20}), Why: "unpacks to too much"},
		{Name: "bomb in a file that is not unpacked", Entries: with(Entry{Name: top + "/bomb", Zeros: 18 << 20}), Why: "unpacks to too much"},
		{Name: "watcher for another machine than the agent", Entries: base{sound: b.replace(home+"/muster-agent", Program("linux", "amd64"))}.
			replace(home+"/muster-watcher", Program("linux", "arm64")), Why: "is a program for linux/arm64, but the package is for linux/amd64"},
		{Name: "encrypted file", Entries: with(Entry{Name: home + "/secret", Body: "x", ZipFlags: 1}), Why: "is encrypted", Only: "zip"},
		{Name: "exotic compression", Entries: with(Entry{Name: home + "/x", Body: "x", ZipMethod: 93}), Why: "compressed by method 93", Only: "zip"},
	}
}

const escapingManifest = `version: muster/v1
kind: PackageManifest
package:
  version: 1.1.0
  hash: 3f2a9c
  os: linux
  arch: amd64
  versioned-home: data/muster-agent-3f2a9c
  path-mappings:
    - data/muster-agent-3f2a9c: data/../../evil
`

// unmapped returns a valid manifest that does not map its own file.
func unmapped(t testing.TB, version string) Entry {
	p := Describe(version)
	delete(p.PathMappings[0], "manifest.yaml")
	return Manifest(t, p)
}

func many(home string, n int) []Entry {
	entries := make([]Entry, n)
	for i := range entries {
		entries[i].Name = fmt.Sprintf("%s/many/%d", home, i)
	}
	return entries
}
