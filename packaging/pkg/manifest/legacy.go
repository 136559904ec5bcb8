package manifest

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

// A package without a manifest is described by two small files: its version is beside
// its program, its hash at its top.
const (
	// LegacyVersionFile is beside the program and holds the full version: 1.1.0 or
	// 1.1.0-SNAPSHOT.
	LegacyVersionFile = "package.version"
	// MaxLegacyFile bounds each of the two files in bytes: a version has at
	// most 100 characters, a hash 128.
	MaxLegacyFile = 256
)

// LegacyCommitFiles returns the names of the file with the hash at the top of a
// package: Muster's, and that of packages made for Elastic Agent.
func LegacyCommitFiles() []string {
	return []string{".muster-agent.active.commit", ".elastic-agent.active.commit"}
}

// legacyPrograms returns the programs after which homes are named:
// data/<program>-<first 6 digits of the hash>.
func legacyPrograms() []string { return []string{"muster-agent", "elastic-agent"} }

// Legacy holds the files that describe a package without a manifest.
type Legacy struct {
	Home       string // the folder that holds LegacyVersionFile, inside the package
	Version    []byte // the content of LegacyVersionFile
	CommitFile string // one of LegacyCommitFiles
	Commit     []byte // the content of CommitFile
}

// Manifest returns the manifest for such a package. OS and Arch are empty, since the
// files do not contain them. An error names the file that is invalid.
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

// legacyText returns the one line of a file. It refuses a file of zeros, as a power
// cut leaves them.
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

// checkLegacyHome checks that the home's name ends in the hash, so that two builds
// cannot use one home.
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

// LegacyVersionHome reports whether name is a LegacyVersionFile in a folder of data/,
// and returns the folder.
func LegacyVersionHome(name string) (home string, ok bool) {
	home, base := path.Split(name)
	home = strings.TrimSuffix(home, "/")
	return home, base == LegacyVersionFile && path.Dir(home) == layout.DataDir
}

// ProgramName returns the file name of a program on the system goos: muster-agent, on
// Windows muster-agent.exe.
func ProgramName(goos, program string) string {
	if goos == "windows" {
		return program + ".exe"
	}
	return program
}
