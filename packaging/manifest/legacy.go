package manifest

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/muster-fleet/muster/packaging/layout"
)

// A package of the generation before manifests tells of itself in two small
// files: which version it is beside its program, which build at its top.
const (
	// LegacyVersionFile lies beside the program and holds the version as an
	// operator types it: 1.1.0 or 1.1.0-SNAPSHOT.
	LegacyVersionFile = "package.version"
	// MaxLegacyFile bounds each of the two files in bytes: a version has at
	// most 100 characters, a hash 128.
	MaxLegacyFile = 256
)

// LegacyCommitFiles are the names under which the hash may stand at the top of
// such a package: ours, and the one of packages made for Elastic Agent.
func LegacyCommitFiles() []string {
	return []string{".muster-agent.active.commit", ".elastic-agent.active.commit"}
}

// legacyPrograms name the homes: data/<program>-<first 6 digits of the hash>.
// There is no version in the name.
func legacyPrograms() []string { return []string{"muster-agent", "elastic-agent"} }

// Legacy is what a package without a manifest tells of itself.
type Legacy struct {
	Home       string // the folder that holds LegacyVersionFile, inside the package
	Version    []byte // what LegacyVersionFile holds
	CommitFile string // the name it has
	Commit     []byte // what it holds
}

// Manifest is the manifest such a package would have had. OS and Arch are left
// open: the files do not tell. An error names the file it is about.
func (l Legacy) Manifest() (*Manifest, error) {
	full, err := legacyText(l.Version)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", LegacyVersionFile, err)
	}
	version, snapshot := SplitSnapshot(full)
	if _, err := ParseVersion(version); err != nil {
		return nil, fmt.Errorf("%s: %w", LegacyVersionFile, err)
	}
	hash, err := legacyText(l.Commit)
	if err == nil && !hashForm.MatchString(hash) {
		err = fmt.Errorf("holds %q, want 6 to 128 lower-case hexadecimal digits", hash)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.CommitFile, err)
	}
	m := &Manifest{APIVersion: ElasticAPIVersion, Kind: Kind, Package: Package{
		Version: version, Snapshot: snapshot, Hash: hash, VersionedHome: l.Home,
	}}
	if err := checkLegacyHome(l.Home, m.Package.Identity().ShortHash()); err != nil {
		return nil, err
	}
	return m, m.Validate()
}

// legacyText is the one line of a file. A power cut leaves files of zeros, which
// must not pass for anything.
func legacyText(content []byte) (string, error) {
	text := strings.TrimSpace(string(content))
	switch {
	case len(content) > MaxLegacyFile:
		return "", fmt.Errorf("has more than %d bytes", MaxLegacyFile)
	case text == "":
		return "", errors.New("is empty")
	case strings.Trim(text, "\x00") == "":
		return "", fmt.Errorf("holds %d zero bytes and no text: it was damaged before the package was made", len(content))
	}
	return text, nil
}

// checkLegacyHome: the name and the hash must say the same, or two builds could
// claim one home.
func checkLegacyHome(home, hash string) error {
	var want []string
	for _, program := range legacyPrograms() {
		if home == layout.DataDir+"/"+program+"-"+hash {
			return nil
		}
		want = append(want, layout.DataDir+"/"+program+"-"+hash)
	}
	return fmt.Errorf("%s lies in %q, want %s by the hash", LegacyVersionFile, home, strings.Join(want, " or "))
}

// LegacyVersionHome says whether a package's file is a LegacyVersionFile where a
// program may lie beside it, and in which folder.
func LegacyVersionHome(name string) (home string, ok bool) {
	home, base := path.Split(name)
	home = strings.TrimSuffix(home, "/")
	return home, base == LegacyVersionFile && path.Dir(home) == layout.DataDir
}

// ProgramName is the file name of a program for a system given by Go's name:
// muster-agent, on Windows muster-agent.exe.
func ProgramName(goos, program string) string {
	if goos == "windows" {
		return program + ".exe"
	}
	return program
}
