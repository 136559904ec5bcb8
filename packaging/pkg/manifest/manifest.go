// Package manifest defines the file manifest.yaml of a package: which version it holds
// and where its files go on a host. The builder writes it, the unpacker and the running
// agent read it.
//
// There are two formats: muster/v1, which has the platform, and co.elastic.agent/v1,
// whose packages fit any platform.
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

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/yamltext"
)

const (
	// FileName is the manifest's name at the top of a package.
	FileName = layout.ManifestFile
	// Kind is the only value of the field kind.
	Kind = "PackageManifest"

	// APIVersion is the version that Muster writes.
	APIVersion = "muster/v1"
	// ElasticAPIVersion is accepted as well.
	ElasticAPIVersion = "co.elastic.agent/v1"

	// MaxSize bounds a manifest in bytes. A real one has some 500; the bound keeps
	// a hostile archive from filling memory.
	MaxSize = 64 << 10
	// HashLength is the number of the hash's digits in the name of a versioned
	// home, as in data/muster-agent-1.1.0-3f2a9c.
	HashLength = 6
)

// Manifest is the content of the file.
type Manifest struct {
	APIVersion string  `yaml:"version"`
	Kind       string  `yaml:"kind"`
	Package    Package `yaml:"package"`
}

// Package describes the content of an archive.
type Package struct {
	// Version is what an agent started from this package reports, whatever was
	// compiled into its binary.
	Version  string `yaml:"version"`
	Snapshot bool   `yaml:"snapshot"`
	// Hash distinguishes builds of one version: 6 or more lower-case hexadecimal
	// digits, usually a commit.
	Hash string `yaml:"hash"`
	// OS and Arch are Go's names (linux, amd64). Empty fits any.
	OS   string `yaml:"os,omitempty"`
	Arch string `yaml:"arch,omitempty"`
	// VersionedHome is the folder inside the package that holds the program.
	VersionedHome string `yaml:"versioned-home"`
	// PathMappings map prefixes of paths in the package to prefixes of paths under
	// the top folder of a host. The first match wins.
	PathMappings []map[string]string `yaml:"path-mappings,omitempty"`
	// Checks are run by the watcher while it observes this version.
	Checks []Check `yaml:"checks,omitempty"`
	// Component makes it the package of a component instead of an agent's. The checks are
	// then run by the agent, which observes the component.
	Component *Component `yaml:"component,omitempty"`
}

// Identity identifies a package: two packages with the same Identity are the same.
type Identity struct {
	Version  string `json:"version"`
	Snapshot bool   `json:"snapshot"`
	Hash     string `json:"hash"`
}

// String returns the identity as in folder names: 1.1.0-SNAPSHOT-3f2a9c.
func (id Identity) String() string {
	s := id.FullVersion()
	if id.Hash != "" {
		s += "-" + id.ShortHash()
	}
	return s
}

// FullVersion returns the version as an operator types it: 1.1.0 or 1.1.0-SNAPSHOT.
func (id Identity) FullVersion() string {
	if id.Snapshot {
		return id.Version + "-SNAPSHOT"
	}
	return id.Version
}

// Is reports whether name means this package: its full version, or as [Identity.String] returns it, which
// distinguishes two builds of one version.
func (id Identity) Is(name string) bool { return name == id.FullVersion() || name == id.String() }

// ShortHash returns the first [HashLength] digits of the hash.
func (id Identity) ShortHash() string { return id.Hash[:min(len(id.Hash), HashLength)] }

// Identity returns the package's (version, snapshot, hash).
func (p Package) Identity() Identity {
	return Identity{Version: p.Version, Snapshot: p.Snapshot, Hash: p.Hash}
}

// FullVersion returns the version as an operator types it and an agent reports it:
// 1.1.0 or 1.1.0-SNAPSHOT.
func (p Package) FullVersion() string { return p.Identity().FullVersion() }

// Fits returns an error if the package is for another platform than goos/goarch.
func (p Package) Fits(goos, goarch string) error {
	if (p.OS != "" && p.OS != goos) || (p.Arch != "" && p.Arch != goarch) {
		return fmt.Errorf("package is for %s/%s, this host is %s/%s", cmp.Or(p.OS, "any"), cmp.Or(p.Arch, "any"), goos, goarch)
	}
	return nil
}

// ArchiveName returns a package's file name at every source:
// muster-agent-<version>-<os>-<arch>.<format>, format being "tar.gz" or "zip".
func ArchiveName(fullVersion, goos, goarch, format string) string {
	return fmt.Sprintf(layout.HomePrefix+"%s-%s-%s.%s", fullVersion, goos, goarch, format)
}

// Map returns the path of a package's file below a host's top folder, both
// slash-separated and relative. ok is false for a file that is not unpacked: one that
// neither a mapping nor the prefix data/ covers, and one whose name is not a clean
// path inside the package, since a ".." after a mapped prefix would leave the host's
// data/.
func (p Package) Map(name string) (mapped string, ok bool) {
	if !localPath(name) {
		return "", false
	}
	for _, m := range p.PathMappings {
		// A map has no order, so the longest prefix of one entry wins.
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

// Home returns the path of the versioned home below a host's top folder.
func (p Package) Home() string {
	home, _ := p.Map(p.VersionedHome)
	return home
}

var (
	hashForm = regexp.MustCompile(`^[0-9a-f]{6,128}$`)
	// platformForm restricts names that become part of file names.
	platformForm = regexp.MustCompile(`^[a-z0-9]{1,32}$`)
)

// Validate returns an error that names all invalid fields.
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
	if p.Component != nil {
		if err := p.Component.validate("package.component."); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", FileName, err))
		}
		if err := p.validateMigrations(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", FileName, err))
		}
		if m.APIVersion != APIVersion { // Parse ignores misspelt keys in the other format
			bad("version", "is %q, want %s for a component", m.APIVersion, APIVersion)
		}
		if home := p.HomeOf(p.Identity().String()); p.Home() != home {
			bad("package.versioned-home", "becomes %q, want %s for this component", p.Home(), home)
		}
	}
	// The clean-up of old versions removes whole homes, so no home may contain
	// another one.
	if home := p.Home(); len(errs) == 0 && !layout.IsHome(home) {
		bad("package.versioned-home", "becomes %q, want data/<folder>", home)
	}
	return errors.Join(errs...)
}

func localPath(p string) bool {
	return p != "" && p != "." && !path.IsAbs(p) && path.Clean(p) == p && p != ".." &&
		!strings.HasPrefix(p, "../") && !strings.ContainsAny(p, `\:`) && !strings.ContainsFunc(p, unicode.IsControl)
}

// Parse reads and validates a manifest. It refuses unknown keys of a muster/v1 file,
// and ignores those of a co.elastic.agent/v1 file, whose format others extend.
func Parse(r io.Reader) (*Manifest, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", FileName, err)
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%s: has more than %d bytes", FileName, MaxSize)
	}
	if err := yamltext.CheckText(data); err != nil {
		return nil, fmt.Errorf("%s: %w", FileName, err)
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

// Encode returns a manifest that Parse accepts.
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
