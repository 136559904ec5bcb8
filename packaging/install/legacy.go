package install

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/manifest"
)

// legacyFiles are the small files of a package that has no manifest. They are
// kept while an archive is read, since the manifest may be its last entry.
type legacyFiles map[string][]byte

// isLegacyFile says whether such a package tells of itself in this file.
func isLegacyFile(name string) bool {
	_, version := manifest.LegacyVersionHome(name)
	return version || slices.Contains(manifest.LegacyCommitFiles(), name)
}

// consume keeps one byte more than a file may have, for it to be found too long.
func (l legacyFiles) consume(name string, content io.Reader) (int64, error) {
	head, err := io.ReadAll(io.LimitReader(content, manifest.MaxLegacyFile+1))
	if err != nil {
		return 0, err
	}
	l[name] = head
	rest, err := io.Copy(io.Discard, content)
	return int64(len(head)) + rest, err
}

// manifest describes the package as its manifest would have. It decides by what
// lies in the archive, never by the archive's name: files are renamed.
func (l legacyFiles) manifest() (*manifest.Manifest, error) {
	var versions, commits []string
	for name := range l {
		if _, ok := manifest.LegacyVersionHome(name); ok {
			versions = append(versions, name)
		} else {
			commits = append(commits, name)
		}
	}
	version, err := theOne(versions, "data/<folder>/"+manifest.LegacyVersionFile)
	if err != nil {
		return nil, err
	}
	commit, err := theOne(commits, strings.Join(manifest.LegacyCommitFiles(), " or "))
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

// theOne refuses a package that lacks a file and one that has two of it: which
// version it is must not be anybody's guess.
func theOne(names []string, what string) (string, error) {
	switch len(names) {
	case 1:
		return names[0], nil
	case 0:
		return "", &RefusedError{Why: fmt.Sprintf("it has no %s in its top folder, nor %s as a package without one has: so it is no Muster package", manifest.FileName, what)}
	}
	slices.Sort(names)
	return "", &RefusedError{Why: fmt.Sprintf("it has no %s, and without one %s could each say what it is: want one of them", manifest.FileName, strings.Join(names[:2], " and "))}
}

// ownManifest refuses a legacy package whose home brings what the unpacker is
// about to write there.
func ownManifest(places map[string]string) error {
	for name, place := range places {
		if place == manifest.FileName {
			return &RefusedError{name, "is a manifest that lies in the home and not at the top: want it in the package's top folder"}
		}
	}
	return nil
}

// writeManifest puts the package's description into a home that does not get it
// from the archive. The running agent, the upgrade and the rollback all learn
// from it which version the home holds.
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
