// Package manifest is the file manifest.yaml that every package carries: which
// version it holds and where its files go on a host. The builder writes it, the
// unpacker and the running agent read it. The whole format is in this file, the
// order of versions in the one beside it.
//
// Two spellings of the version line are understood: muster/v1, which adds the
// platform, and co.elastic.agent/v1, where a package fits any platform.
package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/layout"
)

const (
	// FileName is the manifest's name at the top of a package.
	FileName = "manifest.yaml"
	// Kind is the only kind there is.
	Kind = "PackageManifest"

	// APIVersion is what Muster writes.
	APIVersion = "muster/v1"
	// ElasticAPIVersion is read as well.
	ElasticAPIVersion = "co.elastic.agent/v1"

	// MaxSize bounds a manifest. A real one has some 500 bytes; the bound only
	// keeps a hostile archive from filling memory.
	MaxSize = 64 << 10
	// HashLength is how much of a hash goes into the name of a versioned home,
	// as in data/muster-agent-1.1.0-3f2a9c.
	HashLength = 6
)

// Manifest is the file.
type Manifest struct {
	APIVersion string  `yaml:"version"`
	Kind       string  `yaml:"kind"`
	Package    Package `yaml:"package"`
}

// Package describes what an archive holds.
type Package struct {
	// Version is the version of record: what an agent started from this
	// package reports, whatever was compiled into its binary.
	Version  string `yaml:"version"`
	Snapshot bool   `yaml:"snapshot"`
	// Hash tells builds of one version apart: 6 or more lower-case
	// hexadecimal digits, usually a commit.
	Hash string `yaml:"hash"`
	// OS and Arch are Go's names (linux, amd64). Empty fits any.
	OS   string `yaml:"os,omitempty"`
	Arch string `yaml:"arch,omitempty"`
	// VersionedHome is the folder inside the package that holds the program.
	VersionedHome string `yaml:"versioned-home"`
	// PathMappings say which path of the package becomes which path under the
	// top folder of a host: prefix to prefix, first match wins.
	PathMappings []map[string]string `yaml:"path-mappings,omitempty"`
	// Checks are asked of this version while the watcher judges it.
	Checks []Check `yaml:"checks,omitempty"`
}

// Identity is what makes two packages the same or not.
type Identity struct {
	Version  string `json:"version"`
	Snapshot bool   `json:"snapshot"`
	Hash     string `json:"hash"`
}

// String is the identity as it stands in folder names: 1.1.0-SNAPSHOT-3f2a9c.
func (id Identity) String() string {
	s := id.FullVersion()
	if id.Hash != "" {
		s += "-" + id.ShortHash()
	}
	return s
}

// FullVersion is the version as an operator types it: 1.1.0 or 1.1.0-SNAPSHOT.
func (id Identity) FullVersion() string {
	if id.Snapshot {
		return id.Version + "-SNAPSHOT"
	}
	return id.Version
}

// ShortHash is the first [HashLength] digits of the hash.
func (id Identity) ShortHash() string { return id.Hash[:min(len(id.Hash), HashLength)] }

// Identity returns the package's (version, snapshot, hash).
func (p Package) Identity() Identity {
	return Identity{Version: p.Version, Snapshot: p.Snapshot, Hash: p.Hash}
}

// FullVersion is the version with -SNAPSHOT where the package is one: what an
// operator types and an agent reports.
func (p Package) FullVersion() string { return p.Identity().FullVersion() }

// Fits says whether the package runs on a platform given by Go's names.
func (p Package) Fits(goos, goarch string) error {
	if (p.OS != "" && p.OS != goos) || (p.Arch != "" && p.Arch != goarch) {
		return fmt.Errorf("package is for %s/%s, this host is %s/%s", cmp.Or(p.OS, "any"), cmp.Or(p.Arch, "any"), goos, goarch)
	}
	return nil
}

// ArchiveName is the file name a package has at every source:
// muster-agent-<version>-<os>-<arch>.<format>, format being "tar.gz" or "zip".
func ArchiveName(fullVersion, goos, goarch, format string) string {
	return fmt.Sprintf(layout.HomePrefix+"%s-%s-%s.%s", fullVersion, goos, goarch, format)
}

// Map gives the place of a package file below a host's top folder, both
// slash-separated and relative. ok is false for a file that no mapping and no
// data/ prefix puts anywhere, and for a name that is not a clean path inside the
// package, since a ".." after a mapped prefix would lead out of the host's data/:
// such files are not unpacked.
func (p Package) Map(name string) (mapped string, ok bool) {
	if !localPath(name) {
		return "", false
	}
	for _, m := range p.PathMappings {
		// One entry may hold several prefixes; the longest decides, since a
		// map has no order.
		var from string
		for prefix := range m {
			if (name == prefix || strings.HasPrefix(name, prefix+"/")) && len(prefix) > len(from) {
				from = prefix
			}
		}
		if from != "" {
			return path.Clean(m[from] + strings.TrimPrefix(name, from)), true
		}
	}
	if strings.HasPrefix(name, layout.DataDir+"/") {
		return path.Clean(name), true
	}
	return "", false
}

// Home is the versioned home below a host's top folder.
func (p Package) Home() string {
	home, _ := p.Map(p.VersionedHome)
	return home
}

var (
	hashForm = regexp.MustCompile(`^[0-9a-f]{6,128}$`)
	// Platforms become part of file names.
	platformForm = regexp.MustCompile(`^[a-z0-9]{1,32}$`)
)

// Validate checks every field and names those that are wrong.
func (m *Manifest) Validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s: %s", FileName, field, fmt.Sprintf(format, args...)))
	}
	if m.APIVersion != APIVersion && m.APIVersion != ElasticAPIVersion {
		bad("version", "is %q, want %s or %s", m.APIVersion, APIVersion, ElasticAPIVersion)
	}
	if m.Kind != Kind {
		bad("kind", "is %q, want %s", m.Kind, Kind)
	}
	p := m.Package
	if _, err := ParseVersion(p.Version); err != nil {
		bad("package.version", "%v", err)
	}
	if strings.HasSuffix(p.Version, "-SNAPSHOT") {
		bad("package.version", "is %q: say snapshot: true instead of the suffix", p.Version)
	}
	if !hashForm.MatchString(p.Hash) {
		bad("package.hash", "is %q, want 6 to 128 lower-case hexadecimal digits", p.Hash)
	}
	if m.APIVersion == APIVersion && (p.OS == "" || p.Arch == "") {
		bad("package.os, package.arch", "are required in %s (Go's names, such as linux and amd64)", APIVersion)
	}
	if p.OS != "" && !platformForm.MatchString(p.OS) {
		bad("package.os", "is %q, want one of Go's names such as linux", p.OS)
	}
	if p.Arch != "" && !platformForm.MatchString(p.Arch) {
		bad("package.arch", "is %q, want one of Go's names such as amd64", p.Arch)
	}
	if !localPath(p.VersionedHome) || !strings.HasPrefix(p.VersionedHome, layout.DataDir+"/") {
		bad("package.versioned-home", "is %q, want a relative path under data/", p.VersionedHome)
	}
	for i, mapping := range p.PathMappings {
		for from, to := range mapping {
			if !localPath(from) || !localPath(to) {
				bad(fmt.Sprintf("package.path-mappings[%d]", i), "%q: %q: both must be relative paths that stay inside", from, to)
			} else if !strings.HasPrefix(to, layout.DataDir+"/") {
				bad(fmt.Sprintf("package.path-mappings[%d]", i), "%q leads to %q, which is not under data/", from, to)
			}
		}
	}
	if len(p.Checks) > MaxChecks {
		bad("package.checks", "has %d checks, want at most %d", len(p.Checks), MaxChecks)
	}
	for i, c := range p.Checks {
		if err := c.Validate(); err != nil {
			bad(fmt.Sprintf("package.checks[%d]", i), "%q: %v", c.Name, err)
		}
	}
	// The clean-up of old versions removes whole homes, so a home must never
	// hold, or lie in, another one.
	if home := p.Home(); len(errs) == 0 && !layout.IsHome(home) {
		bad("package.versioned-home", "becomes %q, want data/<folder>", home)
	}
	return errors.Join(errs...)
}

func localPath(p string) bool {
	return p != "" && p != "." && !path.IsAbs(p) && path.Clean(p) == p && p != ".." &&
		!strings.HasPrefix(p, "../") && !strings.ContainsAny(p, `\:`) && !strings.ContainsFunc(p, unicode.IsControl)
}

// Parse reads and validates a manifest. Unknown keys of a muster/v1 file are
// refused by name; those of a co.elastic.agent/v1 file are passed over, since
// that format grows without us.
func Parse(r io.Reader) (*Manifest, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", FileName, err)
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%s: has more than %d bytes", FileName, MaxSize)
	}
	var m Manifest
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(!bytes.Contains(data, []byte(ElasticAPIVersion)))
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("%s: %w", FileName, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: has more than one document, want one", FileName)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return &m, nil
}

// Encode renders a manifest that Parse accepts.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(m); err != nil {
		return nil, err
	}
	return buf.Bytes(), enc.Close()
}
