package manifest

import (
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const elasticSample = `version: co.elastic.agent/v1
kind: PackageManifest
package:
  version: 8.13.0
  snapshot: true
  hash: 15658b38b48ba4487afadc5563b1576b85ce0264
  versioned-home: data/elastic-agent-15658b
  path-mappings:
    - data/elastic-agent-15658b: data/elastic-agent-8.13.0-SNAPSHOT-15658b
      manifest.yaml: data/elastic-agent-8.13.0-SNAPSHOT-15658b/manifest.yaml
  fips: false
  flavors:
    basic: [agentbeat]
`

const musterSample = `version: muster/v1
kind: PackageManifest
package:
  version: 1.1.0
  snapshot: false
  hash: 3f2a9c52f1e6a0b7d8c9
  os: linux
  arch: amd64
  versioned-home: data/muster-agent-3f2a9c
  path-mappings:
    - data/muster-agent-3f2a9c: data/muster-agent-1.1.0-3f2a9c
      manifest.yaml: data/muster-agent-1.1.0-3f2a9c/manifest.yaml
`

func TestParseAcceptsAnElasticAgentManifest(t *testing.T) {
	m, err := Parse(strings.NewReader(elasticSample))
	if err != nil {
		t.Fatal(err)
	}
	p := m.Package
	if p.FullVersion() != "8.13.0-SNAPSHOT" || p.Identity().String() != "8.13.0-SNAPSHOT-15658b" {
		t.Errorf("it is %s, %s", p.FullVersion(), p.Identity())
	}
	if home := p.Home(); home != "data/elastic-agent-8.13.0-SNAPSHOT-15658b" {
		t.Errorf("home is %s", home)
	}
	if err := p.Fits("plan9", "mips"); err != nil {
		t.Errorf("a package that names no platform fits any: %v", err)
	}
	for name, want := range map[string]string{
		"data/elastic-agent-15658b/elastic-agent":        "data/elastic-agent-8.13.0-SNAPSHOT-15658b/elastic-agent",
		"data/elastic-agent-15658b/components/agentbeat": "data/elastic-agent-8.13.0-SNAPSHOT-15658b/components/agentbeat",
		"manifest.yaml":                "data/elastic-agent-8.13.0-SNAPSHOT-15658b/manifest.yaml",
		"data/other":                   "data/other",
		"data/elastic-agent-15658bb/x": "data/elastic-agent-15658bb/x",
		"manifest.yaml.bak":            "",
		"README.md":                    "",
		"LICENSE.txt":                  "",
		// A name that leads out through a mapping is not mapped.
		"data/elastic-agent-15658b/../../etc/passwd":    "",
		"data/elastic-agent-15658b/../../../etc/passwd": "",
		"data/../etc/passwd":                            "",
		"data/./x":                                      "",
		"data//x":                                       "",
		"/data/x":                                       "",
		`data\x`:                                        "",
		"":                                              "",
	} {
		got, ok := p.Map(name)
		if got != want || ok != (want != "") {
			t.Errorf("Map(%q) = %q, %v, want %q", name, got, ok, want)
		}
	}
}

func TestMapUsesTheFirstMappingAndItsLongestPrefix(t *testing.T) {
	p := Package{PathMappings: []map[string]string{
		{"data/a": "data/x", "data/a/deep": "data/y"},
		{"data/a": "data/never", "data/b": "data/z"},
	}}
	for name, want := range map[string]string{
		"data/a/f": "data/x/f", "data/a/deep/f": "data/y/f", "data/a/deeper": "data/x/deeper", "data/b": "data/z", "data/c": "data/c",
	} {
		if got, ok := p.Map(name); got != want || !ok {
			t.Errorf("Map(%q) = %q, %v, want %q", name, got, ok, want)
		}
	}
}

func TestParseErrorNamesTheField(t *testing.T) {
	swap := func(old, with string) string {
		if !strings.Contains(musterSample, old) {
			t.Fatalf("the sample has no %q", old)
		}
		return strings.Replace(musterSample, old, with, 1)
	}
	if _, err := Parse(strings.NewReader(musterSample)); err != nil {
		t.Fatalf("the sample itself: %v", err)
	}
	for name, tc := range map[string]struct{ text, says string }{
		"nothing":                {"", "manifest.yaml"},
		"no yaml":                {"version: [", "manifest.yaml"},
		"a list":                 {"- a\n", "manifest.yaml"},
		"unknown format":         {swap("muster/v1", "muster/v2"), "manifest.yaml: version"},
		"other kind":             {swap("PackageManifest", "Pod"), "kind"},
		"unknown key":            {swap("  os: linux", "  oss: linux"), "oss"},
		"two documents":          {musterSample + "---\n" + musterSample, "more than one document"},
		"key twice":              {musterSample + "kind: PackageManifest\n", "kind"},
		"two numbers":            {swap("1.1.0", "1.1"), "package.version"},
		"leading v":              {swap("version: 1.1.0", "version: v1.1.0"), "package.version"},
		"suffix":                 {swap("version: 1.1.0", "version: 1.1.0-SNAPSHOT"), "say snapshot: true"},
		"hash too short":         {swap("3f2a9c52f1e6a0b7d8c9", "3f2a9"), "package.hash"},
		"hash in capitals":       {swap("3f2a9c52f1e6a0b7d8c9", "3F2A9C52"), "package.hash"},
		"hash with a path":       {swap("3f2a9c52f1e6a0b7d8c9", "../../../etc"), "package.hash"},
		"no platform":            {swap("  arch: amd64\n", ""), "package.os, package.arch"},
		"platform with a path":   {swap("os: linux", "os: ../../linux"), "package.os"},
		"home not under data":    {swap("versioned-home: data/", "versioned-home: opt/"), "package.versioned-home"},
		"home climbs":            {swap("versioned-home: data/", "versioned-home: data/../"), "package.versioned-home"},
		"home is absolute":       {swap("versioned-home: data/", "versioned-home: /data/"), "package.versioned-home"},
		"home is data":           {swap("3f2a9c: data/muster-agent-1.1.0-3f2a9c", "3f2a9c: data/x/y"), "want data/<folder>"},
		"home is the downloads":  {swap("3f2a9c: data/muster-agent-1.1.0-3f2a9c", "3f2a9c: data/downloads"), "want data/<folder>"},
		"home is hidden":         {swap("3f2a9c: data/muster-agent-1.1.0-3f2a9c", "3f2a9c: data/.unpack-x"), "want data/<folder>"},
		"mapping out":            {swap("3f2a9c: data/muster-agent-1.1.0-3f2a9c", "3f2a9c: ../muster-agent"), "path-mappings[0]"},
		"mapping out and back":   {swap("3f2a9c: data/muster-agent-1.1.0-3f2a9c", "3f2a9c: data/../etc"), "path-mappings[0]"},
		"mapping elsewhere":      {swap("3f2a9c: data/muster-agent-1.1.0-3f2a9c", "3f2a9c: etc/muster"), "not under data/"},
		"mapping to a drive":     {swap("3f2a9c: data/muster-agent-1.1.0-3f2a9c", `3f2a9c: "data/C:x"`), "path-mappings[0]"},
		"mapping with backslash": {swap("3f2a9c: data/muster-agent-1.1.0-3f2a9c", `3f2a9c: 'data/a\b'`), "path-mappings[0]"},
		"mapping with a newline": {swap("3f2a9c: data/muster-agent-1.1.0-3f2a9c", `3f2a9c: "data/a\nb"`), "path-mappings[0]"},
		"too long":               {musterSample + strings.Repeat("#", MaxSize), "more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

func TestValidateNamesAllInvalidFields(t *testing.T) {
	err := (&Manifest{}).Validate()
	for _, field := range []string{"version:", "kind:", "package.version:", "package.hash:", "package.versioned-home:"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

func TestFits(t *testing.T) {
	for _, tc := range []struct {
		os, arch string
		fits     bool
	}{{"linux", "amd64", true}, {"linux", "arm64", false}, {"windows", "amd64", false}, {"", "", true}, {"linux", "", true}, {"", "arm64", false}} {
		if err := (Package{OS: tc.os, Arch: tc.arch}).Fits("linux", "amd64"); (err == nil) != tc.fits {
			t.Errorf("a package for %q/%q on linux/amd64: %v", tc.os, tc.arch, err)
		}
	}
	err := Package{Arch: "arm64"}.Fits("linux", "amd64")
	if err == nil || err.Error() != "package is for any/arm64, this host is linux/amd64" {
		t.Errorf("got %v", err)
	}
}

func TestVersions(t *testing.T) {
	for _, good := range []string{"0.0.0", "1.2.3", "10.20.30", "1.2.3-rc.1", "1.2.3+build5", "1.2.3-SNAPSHOT"} {
		if _, err := ParseVersion(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "1", "1.2", "1.2.3.4", "v1.2.3", "1.2.x", " 1.2.3", "1.2.3 ", "1.2.3-", "../1.2.3", "1.2.3/4", "1.2.3-a/b", "01.2.3", "1.2.3-a..b", "1.2.3~1", "1.2.3-" + strings.Repeat("x", 100)} {
		if v, err := ParseVersion(bad); err == nil {
			t.Errorf("ParseVersion(%q) = %v", bad, v)
		}
	}
	for full, want := range map[string]Package{
		"1.1.0":               {Version: "1.1.0"},
		"1.1.0-SNAPSHOT":      {Version: "1.1.0", Snapshot: true},
		"1.1.0-rc.1-SNAPSHOT": {Version: "1.1.0-rc.1", Snapshot: true},
	} {
		v, snapshot := SplitSnapshot(full)
		if v != want.Version || snapshot != want.Snapshot || want.FullVersion() != full {
			t.Errorf("%s is %s %v and back %s", full, v, snapshot, want.FullVersion())
		}
	}
	if got := ArchiveName("1.1.0-SNAPSHOT", "linux", "arm64", "zip"); got != "muster-agent-1.1.0-SNAPSHOT-linux-arm64.zip" {
		t.Error(got)
	}
}

func TestVersionsSortNewestFirst(t *testing.T) {
	want := []string{"10.0.0", "2.0.0", "1.10.0", "1.9.0", "1.9.0-rc.1", "1.9.0-SNAPSHOT", "1.2.0+b", "1.2.0+a", "x", "nonsense"}
	rapid.Check(t, func(t *rapid.T) {
		got := rapid.Permutation(want).Draw(t, "versions")
		SortVersions(got)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestShortHashOfAShortHash(t *testing.T) {
	for hash, want := range map[string]string{"": "", "abc": "abc", "abcdef": "abcdef", "abcdef0": "abcdef"} {
		if got := (Identity{Hash: hash}).ShortHash(); got != want {
			t.Errorf("ShortHash of %q is %q", hash, got)
		}
	}
	if got := (Identity{Version: "1.0.0"}).String(); got != "1.0.0" {
		t.Errorf("an identity without a hash is %q", got)
	}
}

// part draws parts of hostile paths.
func part() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"data", "..", ".", "", "a", "b", "muster-agent-3f2a9c", "manifest.yaml", `..\..`, "C:", "downloads", ".x", "é", "\x00", "\n"})
}

func anyPath(t *rapid.T, label string) string {
	return strings.Join(rapid.SliceOfN(part(), 0, 6).Draw(t, label), "/")
}

func anyManifest(t *rapid.T) *Manifest {
	p := Package{
		Version: rapid.SampledFrom([]string{"1.1.0", "1.2.3-rc.1", "1.0"}).Draw(t, "version"), Snapshot: rapid.Bool().Draw(t, "snapshot"),
		Hash: "3f2a9c52", OS: "linux", Arch: "amd64",
		VersionedHome: rapid.OneOf(rapid.Just("data/muster-agent-3f2a9c"), rapid.Custom(func(t *rapid.T) string { return anyPath(t, "home") })).Draw(t, "home"),
	}
	if rapid.Bool().Draw(t, "component") {
		p.Component = anyComponent(t)
		p.VersionedHome = rapid.SampledFrom([]string{p.HomeOf(p.Identity().String()), p.VersionedHome}).Draw(t, "home of the component")
	}
	for range rapid.IntRange(0, 2).Draw(t, "mappings") {
		m := map[string]string{}
		for range rapid.IntRange(1, 3).Draw(t, "prefixes") {
			m[anyPath(t, "from")] = "data/" + anyPath(t, "to")
		}
		p.PathMappings = append(p.PathMappings, m)
	}
	return &Manifest{APIVersion: APIVersion, Kind: Kind, Package: p}
}

// Whatever the manifest and the name, Map returns a clean path under data/ or nothing.
func TestMapNeverLeavesTheDataFolder(t *testing.T) {
	var valid int
	rapid.Check(t, func(t *rapid.T) {
		m := anyManifest(t)
		if m.Validate() != nil {
			return
		}
		valid++
		name := anyPath(t, "name")
		got, ok := m.Package.Map(name)
		if ok && (!strings.HasPrefix(got, "data/") || path.Clean(got) != got || !filepath.IsLocal(got)) {
			t.Fatalf("%q maps to %q in %+v", name, got, m.Package)
		}
		if !ok && got != "" {
			t.Fatalf("%q maps nowhere, and to %q", name, got)
		}
		home := m.Package.Home()
		if path.Dir(home) != "data" || strings.HasPrefix(path.Base(home), ".") || path.Base(home) == "downloads" {
			t.Fatalf("home is %q", home)
		}
	})
	if valid == 0 {
		t.Error("no manifest drawn was valid: the property was never tested")
	}
}

func TestParseAcceptsWhatEncodeWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyManifest(t)
		text, err := m.Encode()
		if invalid := m.Validate(); (err == nil) != (invalid == nil) {
			t.Fatalf("Encode says %v, Validate %v", err, invalid)
		}
		if err != nil {
			return
		}
		back, err := Parse(strings.NewReader(string(text)))
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		again, err := back.Encode()
		if err != nil || string(again) != string(text) {
			t.Fatalf("%v:\n%s\nbecomes\n%s", err, text, again)
		}
	})
}

func TestParseReturnsReadErrors(t *testing.T) {
	errDisk := errors.New("input/output error")
	if _, err := Parse(failingReader{errDisk}); !errors.Is(err, errDisk) {
		t.Errorf("got %v", err)
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func FuzzParse(f *testing.F) {
	f.Add(elasticSample)
	f.Add(musterSample)
	f.Add("a: &a [*a]\n")
	f.Add(componentSample)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		if home := m.Package.Home(); path.Dir(home) != "data" {
			t.Errorf("home is %q", home)
		}
		if _, err := m.Encode(); err != nil {
			t.Errorf("what parses does not encode: %v", err)
		}
	})
}
