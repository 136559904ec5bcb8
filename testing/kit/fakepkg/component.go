package fakepkg

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Component is the description of a component that runs as a process, with one configuration
// file.
func Component(name string) manifest.Component {
	return manifest.Component{
		Name: name, Runtime: "process",
		Settings: map[string]any{"program": "bin/" + name, "args": []any{"--config", "/etc/" + name + "/" + name + ".conf"}},
		ConfigFiles: []manifest.ConfigFile{
			{Path: "/etc/" + name + "/" + name + ".conf", From: "conf/" + name + ".conf", Mode: "0640"},
		},
	}
}

// DescribeComponent is [Describe] for the package of a component.
func DescribeComponent(c manifest.Component, version string) manifest.Package {
	return describe(version, &c)
}

// SoundComponent returns a valid package of a component: its manifest, a program, and each
// configuration file that the description names. Callers may append entries.
func SoundComponent(t testing.TB, p manifest.Package) []Entry {
	t.Helper()
	home := Top(p) + "/" + p.VersionedHome
	entries := []Entry{
		{Name: Top(p) + "/", Kind: Folder, Mode: 0o755},
		Manifest(t, p),
		{Name: home + "/bin/" + p.Component.Name, Body: Program(p.OS, p.Arch) + p.FullVersion(), Mode: 0o755},
	}
	for _, f := range p.Component.ConfigFiles {
		entries = append(entries, Entry{Name: home + "/" + f.From, Body: "version " + p.FullVersion() + "\n"})
	}
	return entries
}

// EvilComponentPackages returns packages of a component with one defect each.
func EvilComponentPackages(t testing.TB, version string) []Evil {
	t.Helper()
	p := DescribeComponent(Component("web"), version)
	b := base{p: p, sound: SoundComponent(t, p), top: Top(p), home: Top(p) + "/" + p.VersionedHome}
	// refused is the package with a manifest that package manifest does not write.
	refused := func(section string) []Entry {
		return append(b.without("manifest.yaml"), Entry{Name: b.top + "/manifest.yaml", Body: section})
	}
	const head = "version: muster/v1\nkind: PackageManifest\npackage:\n  version: 1.1.0\n  snapshot: false\n  hash: " + Hash + "\n  os: linux\n  arch: amd64\n"
	const home = "  versioned-home: data/web-3f2a9c\n  path-mappings: [{data/web-3f2a9c: data/web-1.1.0-3f2a9c, manifest.yaml: data/web-1.1.0-3f2a9c/manifest.yaml}]\n"
	return []Evil{
		{Name: "program for another machine", Entries: b.replace(b.home+"/bin/web", Program("linux", "arm64")), Why: "is a program for linux/arm64"},
		{Name: "tool for another system", Entries: b.with(Entry{Name: b.home + "/libexec/deep/tool", Body: Program("darwin", "arm64"), Mode: 0o755}), Why: "is a program for darwin/arm64"},
		{Name: "no configuration file", Entries: b.without("conf/web.conf"), Why: `config-files[0].from: "conf/web.conf" is not in the package`},
		{Name: "configuration file that is not unpacked", Entries: append(b.without("conf/web.conf"), Entry{Name: b.top + "/conf/web.conf", Body: "x"}), Why: "is not in the package"},
		{Name: "home of another component", Entries: refused(head +
			"  versioned-home: data/other\n  component: {name: web, runtime: process}\n"), Why: "want data/web-1.1.0-3f2a9c"},
		{Name: "misspelt key", Entries: refused(head + home + "  component: {name: web, runtime: process, server_files: [/etc/]}\n"), Why: "server_files not found"},
		{Name: "description in the other format", Entries: refused("version: co.elastic.agent/v1" + head[len("version: muster/v1"):] + home +
			"  component: {name: web, runtime: process, server_files: [/etc/]}\n"), Why: "want muster/v1 for a component"},
		{Name: "settings that JSON cannot hold", Entries: refused(head + home + "  component: {name: web, runtime: process, settings: {a: {1: 2}}}\n"), Why: "package.component.settings"},
		{Name: "no program", Entries: b.without("bin/web"), Why: `package.component: settings.program: "bin/web" is not in the package`},
		{Name: "program that is not executable", Entries: append(b.without("bin/web"), Entry{Name: b.home + "/bin/web", Body: "#!/bin/sh\n"}), Why: `settings.program: "bin/web" is not executable`},
		{Name: "misspelt setting", Entries: refused(head + home + "  component: {name: web, runtime: process, settings: {programm: bin/web}}\n"), Why: "settings.programm: is no setting, want one of program, args"},
		{Name: "image without a digest", Entries: refused(head + home + "  component: {name: web, runtime: docker, settings: {image: 'nginx:1.27'}}\n"), Why: "settings.image: is \"nginx:1.27\", want <repository>@sha256:<digest>"},
		{Name: "nothing but a name", Entries: refused(head + home + "  component: {name: ../web, runtime: ''}\n"), Why: "package.component.runtime"},
	}
}

// ComponentSpec returns a package of a component to build, for the system that the test runs
// on. files are those of its home by name, with their contents; those below bin/ are
// executable.
func ComponentSpec(t testing.TB, c manifest.Component, version string, files map[string]string) build.Spec {
	t.Helper()
	v, snapshot := manifest.SplitSnapshot(version)
	spec := build.Spec{Manifest: manifest.Package{Version: v, Snapshot: snapshot, OS: runtime.GOOS, Arch: runtime.GOARCH, Component: &c}}
	dir := t.TempDir()
	for name, body := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if filepath.ToSlash(filepath.Dir(name)) == "bin" {
			mode = 0o755
		}
		if err := os.WriteFile(path, []byte(body), mode); err != nil {
			t.Fatal(err)
		}
		spec.Files = append(spec.Files, build.File{Name: name, Path: path, Mode: mode})
	}
	return spec
}

// BuildComponent builds a component's package into dir, and returns the archive's path.
func BuildComponent(t testing.TB, dir string, c manifest.Component, version string, files map[string]string) string {
	t.Helper()
	return Build(t, dir, ComponentSpec(t, c, version, files))
}
