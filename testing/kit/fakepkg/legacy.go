package fakepkg

import (
	"os"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// DescribeLegacy describes a legacy package of a version of linux/amd64: its home has no
// version in its name, and it maps no files.
func DescribeLegacy(version string) manifest.Package {
	p := Describe(version)
	p.PathMappings = nil
	return p
}

// SoundLegacy returns a valid package of the generation before manifests: the hash is at the
// top, the version beside the programs. Callers may append entries.
func SoundLegacy(p manifest.Package) []Entry {
	return legacy(p, "#!/bin/sh\necho agent "+p.FullVersion()+"\n", "#!/bin/sh\necho watcher "+p.FullVersion()+"\n")
}

// Legacy returns such a package with real programs, read from two files.
func Legacy(t testing.TB, p manifest.Package, agent, watcher string) []Entry {
	t.Helper()
	var bodies [2]string
	for i, path := range []string{agent, watcher} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bodies[i] = string(b)
	}
	return legacy(p, bodies[0], bodies[1])
}

func legacy(p manifest.Package, agent, watcher string) []Entry {
	home := Top(p) + "/" + p.VersionedHome
	return []Entry{
		{Name: Top(p) + "/", Kind: Folder, Mode: 0o755},
		{Name: Top(p) + "/" + build.CommitFile, Body: p.Hash + "\n"},
		{Name: Top(p) + "/README.md", Body: "goes nowhere"},
		{Name: home + "/", Kind: Folder, Mode: 0o755},
		{Name: home + "/" + manifest.LegacyVersionFile, Body: p.FullVersion() + "\n"},
		{Name: home + "/muster-agent", Body: agent, Mode: 0o755},
		{Name: home + "/muster-watcher", Body: watcher, Mode: 0o755},
	}
}

// EvilLegacyPackages returns legacy packages of one version with one defect each: those of
// any package, and those that only a legacy package can have.
func EvilLegacyPackages(version string) []Evil {
	p := DescribeLegacy(version)
	b := base{p: p, sound: SoundLegacy(p), top: Top(p), home: Top(p) + "/" + p.VersionedHome}
	versionFile, commitFile := b.home+"/"+manifest.LegacyVersionFile, b.top+"/"+build.CommitFile
	return append(b.evil(), []Evil{
		{Name: "no version", Entries: b.without(manifest.LegacyVersionFile), Why: "nor data/<folder>/package.version"},
		{Name: "version not beside the program", Entries: append(b.without(manifest.LegacyVersionFile), Entry{Name: b.home + "/docs/package.version", Body: version}), Why: "nor data/<folder>/package.version"},
		{Name: "no commit", Entries: b.without(build.CommitFile), Why: "nor .muster-agent.active.commit or .elastic-agent.active.commit"},
		{Name: "two versions", Entries: b.with(Entry{Name: b.top + "/data/muster-agent-abcdef/package.version", Body: "9.9.9"}), Why: "could each say what it is"},
		{Name: "two commits", Entries: b.with(Entry{Name: b.top + "/.elastic-agent.active.commit", Body: p.Hash}), Why: "could each say what it is"},
		{Name: "version twice", Entries: b.with(Entry{Name: versionFile, Body: "9.9.9"}), Why: "is in the archive twice"},
		{Name: "version of zeros", Entries: b.replace(versionFile, strings.Repeat("\x00", 6)), Why: "package.version: holds 6 zero bytes"},
		{Name: "empty version", Entries: b.replace(versionFile, "\n"), Why: "package.version: is empty"},
		{Name: "version that is none", Entries: b.replace(versionFile, "latest"), Why: "package.version: version is \"latest\""},
		{Name: "version that never ends", Entries: b.replace(versionFile, strings.Repeat("1", 1<<20)), Why: "package.version: has more than 256 bytes"},
		{Name: "commit of zeros", Entries: b.replace(commitFile, strings.Repeat("\x00", 41)), Why: "active.commit: holds 41 zero bytes"},
		{Name: "short commit", Entries: b.replace(commitFile, "3f2a9\n"), Why: "want 6 to 128 lower-case hexadecimal digits"},
		{Name: "commit that is a path", Entries: b.replace(commitFile, "../../evil"), Why: "want 6 to 128 lower-case hexadecimal digits"},
		{Name: "home of another commit", Entries: b.replace(commitFile, "abcdef0000"), Why: `want data/muster-agent-abcdef`},
		{Name: "manifest in the home", Entries: b.with(Entry{Name: b.home + "/manifest.yaml", Body: "x"}), Why: "lies in the home and not at the top"},
	}...)
}
