package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

// Bounds of a component.
const (
	// MaxConfigFiles bounds what is written between a stop and a start.
	MaxConfigFiles = 100
	// MaxSettings bounds the settings of a runtime in bytes of JSON.
	MaxSettings = 32 << 10
)

// Component describes a workload that agents run and upgrade. A package with a component
// has no agent in it: its home is unpacked below the folder of the component on the host.
//
// Everything that decides which code runs is here, where the publishers sign it. A policy
// only says which hosts run the component, and in which version.
type Component struct {
	// Name is the component's name in policies and on the host.
	Name string `yaml:"name" json:"name"`
	// Runtime is how it is run: process, systemd, docker, or another one of the agent's.
	Runtime string `yaml:"runtime" json:"runtime"`
	// Settings are those of the runtime, which alone knows them: the program of a process,
	// the unit of systemd, the image and the mounts of a container.
	Settings map[string]any `yaml:"settings,omitempty" json:"settings,omitempty"`
	// DataDir is the absolute path of the folder that holds the component's state. Muster
	// never changes it.
	DataDir string `yaml:"data-dir,omitempty" json:"data_dir,omitempty"`
	// ConfigFiles are written to the host with each version.
	ConfigFiles []ConfigFile `yaml:"config-files,omitempty" json:"config_files,omitempty"`
	// ServerFiles are the files, and with a slash at the end the folders, whose content the
	// server may render. Empty: the server may write no configuration.
	ServerFiles []string `yaml:"server-files,omitempty" json:"server_files,omitempty"`
	// Reload means that the running component reads changed configuration without a
	// restart.
	Reload bool `yaml:"reload,omitempty" json:"reload,omitempty"`
	// Hooks are programs that are run when the version changes.
	Hooks *Hooks `yaml:"hooks,omitempty" json:"hooks,omitempty"`
	// StatePaths are the files and folders that are copied before the version changes, and
	// put back if a migration has to be undone.
	StatePaths []string `yaml:"state-paths,omitempty" json:"state_paths,omitempty"`
	// Migrations are all that the component ever had, oldest first.
	Migrations []Migration `yaml:"migrations,omitempty" json:"migrations,omitempty"`
}

// ConfigFile is a configuration file that comes with the package.
type ConfigFile struct {
	Path string `yaml:"path" json:"path"` // absolute
	// From is the file in the home of the package.
	From string `yaml:"from" json:"from"`
	// Mode is octal, such as "0640"; empty: 0644.
	Mode string `yaml:"mode,omitempty" json:"mode,omitempty"`
	// Owner and Group are names or numbers; empty: the agent's own.
	Owner string `yaml:"owner,omitempty" json:"owner,omitempty"`
	Group string `yaml:"group,omitempty" json:"group,omitempty"`
}

// componentName also becomes part of file names, container names and cgroups.
var (
	componentName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,61}[a-z0-9]$`)
	runtimeName   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	modeForm      = regexp.MustCompile(`^0?[0-7]{3}$`)
	accountForm   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}$`)
)

// ValidComponentName returns an error if a component cannot have the name.
func ValidComponentName(name string) error {
	if !componentName.MatchString(name) {
		return fmt.Errorf("is %q, want 2 to 63 lower-case letters, digits and dashes, a letter or digit at both ends", name)
	}
	return nil
}

// ValidRuntimeName returns an error if a runtime cannot have the name.
func ValidRuntimeName(name string) error {
	if !runtimeName.MatchString(name) {
		return fmt.Errorf("is %q, want a name such as systemd", name)
	}
	return nil
}

// ParseMode parses the mode of a configuration file. An empty one is 0644. It is not an
// fs.FileMode because the rules of the server, which read manifests, touch no files.
func ParseMode(mode string) (uint32, error) {
	if mode == "" {
		return 0o644, nil
	}
	if !modeForm.MatchString(mode) {
		return 0, fmt.Errorf("is %q, want three octal digits such as 0640", mode)
	}
	var m uint32
	for _, digit := range mode {
		m = m<<3 | uint32(digit-'0')
	}
	return m, nil
}

// ValidAccount returns an error if a user or group cannot have the name or number.
func ValidAccount(name string) error {
	if name != "" && !accountForm.MatchString(name) {
		return fmt.Errorf("is %q, want the name or the number of an account", name)
	}
	return nil
}

// ValidHostPath returns an error unless p is an absolute path in its shortest form.
func ValidHostPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || strings.ContainsAny(p, "\x00\n") {
		return fmt.Errorf("is %q, want an absolute path in its shortest form", p)
	}
	return nil
}

// WrittenFile is a configuration file as it is written to a host.
type WrittenFile struct {
	Path   string
	Mode   uint32
	SHA256 [sha256.Size]byte // of the content
}

// ConfigDigest identifies configuration files by their paths, modes and contents. They are
// sorted by path. It is empty if there are none. Agents report it of what they have written,
// and the server computes it of what it renders.
func ConfigDigest(files []WrittenFile) string {
	if len(files) == 0 {
		return ""
	}
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s\x00%o\x00%x\n", f.Path, f.Mode, f.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ServerMayWrite reports whether the server may render the file at a path.
func (c *Component) ServerMayWrite(file string) bool {
	return slices.ContainsFunc(c.ServerFiles, func(allowed string) bool {
		return file == allowed || strings.HasSuffix(allowed, "/") && strings.HasPrefix(file, allowed)
	})
}

// CheckFiles returns an error if the package's home lacks a configuration file that comes
// with the package. has reports whether the home has a file.
func (c *Component) CheckFiles(has func(name string) bool) error {
	for i, f := range c.ConfigFiles {
		if !has(f.From) {
			return fmt.Errorf("config-files[%d].from: %q is not in the package, for %s: %s", i, f.From, f.Path, AddFile(f.From))
		}
	}
	return nil
}

// AddFile says how a publisher adds a file to a package.
func AddFile(name string) string { return fmt.Sprintf("build it with --file %s=PATH", name) }

// validSettings returns an error if agents could not hand the settings to their runtime.
func validSettings(settings map[string]any) error {
	text, err := json.Marshal(settings)
	if err != nil {
		return fmt.Errorf("want what JSON can hold: text as keys, no .nan or .inf: %w", err)
	}
	if len(text) > MaxSettings {
		return fmt.Errorf("have %d bytes of JSON, want at most %d", len(text), MaxSettings)
	}
	return nil
}

// Validate returns an error that names all invalid fields. Of the settings it knows only the
// form; package runtimes knows more.
func (c *Component) Validate() error { return c.validate("") }

// validate names fields with a prefix, which is where the description is in its file.
func (c *Component) validate(prefix string) error {
	var errs []error
	check := func(field string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%s: %w", prefix, field, err))
		}
	}
	check("name", ValidComponentName(c.Name))
	check("runtime", ValidRuntimeName(c.Runtime))
	check("settings", validSettings(c.Settings))
	if c.DataDir != "" {
		check("data-dir", ValidHostPath(c.DataDir))
	}
	if n := len(c.ConfigFiles) + len(c.ServerFiles); n > MaxConfigFiles {
		check("config-files", fmt.Errorf("has %d entries with server-files, want at most %d", n, MaxConfigFiles))
	}
	seen := map[string]bool{}
	for i, f := range c.ConfigFiles {
		field := fmt.Sprintf("config-files[%d].", i)
		check(field+"path", ValidHostPath(f.Path))
		if seen[f.Path] {
			check(field+"path", fmt.Errorf("%q occurs twice", f.Path))
		}
		seen[f.Path] = true
		if !localPath(f.From) {
			check(field+"from", fmt.Errorf("is %q, want a file of the package", f.From))
		}
		_, err := ParseMode(f.Mode)
		check(field+"mode", err)
		check(field+"owner", ValidAccount(f.Owner))
		check(field+"group", ValidAccount(f.Group))
	}
	for i, f := range c.ServerFiles {
		if err := ValidHostPath(strings.TrimSuffix(f, "/")); err != nil {
			check(fmt.Sprintf("server-files[%d]", i), err)
		}
	}
	c.validateState(check)
	return errors.Join(errs...)
}

// ComponentPrefix begins the names of archives of components. Those of agents begin with
// layout.HomePrefix.
const ComponentPrefix = "muster-component-"

// ComponentArchiveName returns the file name of a component's package at every source:
// muster-component-<name>-<version>-<os>-<arch>.<format>.
func ComponentArchiveName(name, fullVersion, goos, goarch, format string) string {
	return fmt.Sprintf(ComponentPrefix+"%s-%s-%s-%s.%s", name, fullVersion, goos, goarch, format)
}

// ArchiveName returns the package's file name at every source.
func (p Package) ArchiveName(format string) string {
	if p.Component != nil {
		return ComponentArchiveName(p.Component.Name, p.FullVersion(), p.OS, p.Arch, format)
	}
	return ArchiveName(p.FullVersion(), p.OS, p.Arch, format)
}

// ComponentName returns the name of the package's component, or "" for an agent's package.
func (p Package) ComponentName() string {
	if p.Component == nil {
		return ""
	}
	return p.Component.Name
}

// CheckComponent returns an error unless the package is one of the component, or with an
// empty name, one of an agent.
func (p Package) CheckComponent(name string) error {
	switch is := p.ComponentName(); {
	case is == name:
		return nil
	case is == "":
		return fmt.Errorf("package is an agent's, want one of component %s", name)
	case name == "":
		return fmt.Errorf("package is one of component %s, want an agent's", is)
	default:
		return fmt.Errorf("package is one of component %s, want one of component %s", is, name)
	}
}

// homePrefix begins the names of the package's homes.
func (p Package) homePrefix() string {
	if p.Component != nil {
		return layout.DataDir + "/" + p.Component.Name + "-"
	}
	return layout.DataDir + "/" + layout.HomePrefix
}

// HomeOf returns the home of a build of the package. id is its version and hash, or only
// its hash.
func (p Package) HomeOf(id string) string { return p.homePrefix() + id }
