package install

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// legacyFiles holds the small files that describe a package without a manifest, by
// name. They are collected while an archive is read, since the manifest may be its
// last entry.
type legacyFiles map[string][]byte

// isLegacyFile reports whether the file describes a package without a manifest.
func isLegacyFile(name string) bool {
	_, version := manifest.LegacyVersionHome(name)
	return version || slices.Contains(manifest.LegacyCommitFiles(), name)
}

// consume stores one byte more than a file may have, so that a longer one is refused.
func (l legacyFiles) consume(name string, content io.Reader) (int64, error) {
	head, err := io.ReadAll(io.LimitReader(content, manifest.MaxLegacyFile+1))
	if err != nil {
		return 0, err
	}
	l[name] = head
	rest, err := io.Copy(io.Discard, content)
	return int64(len(head)) + rest, err
}

// manifest derives a manifest from the files in the archive. It does not use the
// archive's name, since files are renamed.
func (l legacyFiles) manifest() (*manifest.Manifest, error) {
	var versions, commits []string
	for name := range l {
		if _, ok := manifest.LegacyVersionHome(name); ok {
			versions = append(versions, name)
		} else {
			commits = append(commits, name)
		}
	}
	version, err := exactlyOne(versions, "data/<folder>/"+manifest.LegacyVersionFile)
	if err != nil {
		return nil, err
	}
	commit, err := exactlyOne(commits, strings.Join(manifest.LegacyCommitFiles(), " or "))
	if err != nil {
		return nil, err
	}
	home, _ := manifest.LegacyVersionHome(version)
	m, err := manifest.Legacy{Home: home, Version: l[version], CommitFile: commit, Commit: l[commit]}.Manifest()
	if err != nil {
		return nil, &RefusedError{Why: "it has no " + manifest.FileName + ", and without one: " + err.Error()}
	}
	return m, nil
}

// exactlyOne refuses a package that lacks the file and one that has two of it, since
// its version would be ambiguous.
func exactlyOne(names []string, what string) (string, error) {
	switch len(names) {
	case 1:
		return names[0], nil
	case 0:
		return "", &RefusedError{Why: fmt.Sprintf("it has no %s in its top folder, nor %s as a package without one has: so it is no Muster package", manifest.FileName, what)}
	}
	slices.Sort(names)
	return "", &RefusedError{Why: fmt.Sprintf("it has no %s, and without one %s could each say what it is: want one of them", manifest.FileName, strings.Join(names[:2], " and "))}
}

// refuseManifestInHome refuses a legacy package that maps a file to the place of the
// manifest that Unpack writes.
func refuseManifestInHome(places map[string]string) error {
	for name, place := range places {
		if place == manifest.FileName {
			return &RefusedError{name, "is a manifest that lies in the home and not at the top: want it in the package's top folder"}
		}
	}
	return nil
}

// writeManifest writes the manifest into a home that does not get one from the
// archive. The running agent, the upgrade and the rollback read the home's version
// from it.
func (w *writer) writeManifest() error {
	for _, place := range w.contents.places {
		if place == manifest.FileName {
			return nil
		}
	}
	text, err := w.contents.manifest.Encode()
	if err != nil {
		return errors.New("describe the package: " + err.Error())
	}
	return w.writeFile(manifest.FileName, 0o644, strings.NewReader(string(text)))
}
