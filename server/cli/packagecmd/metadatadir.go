package packagecmd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

// metadataDir is the folder with a publisher's signed files. The oldest root in it is
// trusted as it is; every other file only if a threshold of the right keys has signed it.
// A server cannot replace a file in the folder by an older one.
type metadataDir struct {
	dir string
	// roots are consecutive versions, each with enough signatures.
	roots [][]byte
	// targets is the newest targets file with enough signatures, or nil.
	targets []byte
	// unsigned names the signatures that the next root lacks, or is nil.
	unsigned error
	// single reports that path was a root file and not a folder: nothing is written.
	single bool
}

var signedName = regexp.MustCompile(`^[1-9][0-9]{0,15}\.(root|targets)\.json$`)

// openMetadataDir reads a folder, or a single root file.
func openMetadataDir(path string) (*metadataDir, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, hinted(fmt.Errorf("--root: %w", err), "the folder that muster package keys init wrote, or a root file")
	}
	if !info.IsDir() {
		root, err := readSignedFile(path)
		if err != nil {
			return nil, err
		}
		if root.Role != tuf.RoleRoot {
			return nil, fmt.Errorf("--root %s: is a %s file, want a root", path, root.Role)
		}
		return &metadataDir{dir: filepath.Dir(path), roots: [][]byte{root.data}, single: true}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	s := &metadataDir{dir: path}
	var files []signedFile
	for _, e := range entries {
		if !signedName.MatchString(e.Name()) {
			continue
		}
		f, err := readSignedFile(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, err
		}
		if f.FileName != e.Name() {
			return nil, fmt.Errorf("%s: contains %s: rename it to that", filepath.Join(path, e.Name()), f.FileName)
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b signedFile) int { return int(a.Version - b.Version) })
	for _, f := range files {
		if f.Role == tuf.RoleRoot {
			if err := s.addRoot(f); err != nil {
				return nil, err
			}
		}
	}
	for _, f := range files {
		if f.Role == tuf.RoleTargets && s.signedByAny(f.data) {
			s.targets = f.data // the newest comes last
		}
	}
	return s, nil
}

// signedFile is a root or targets file.
type signedFile struct {
	tuf.Info
	data []byte
}

func readSignedFile(path string) (signedFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return signedFile{}, err
	}
	info, err := tuf.Inspect(data)
	if err != nil {
		return signedFile{}, fmt.Errorf("%s: %w", path, err)
	}
	return signedFile{info, data}, nil
}

// addRoot appends the next root. It ignores a root that lacks signatures, and every root
// after that.
func (s *metadataDir) addRoot(f signedFile) error {
	if s.unsigned != nil {
		return nil
	}
	if len(s.roots) == 0 && f.Version > 1 {
		s.roots = append(s.roots, f.data)
		return nil
	}
	p, err := tuf.Signatures(f.data, s.root())
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(s.dir, f.FileName), err)
	}
	if !p.Done() {
		s.unsigned = &tuf.ThresholdError{Progress: p}
		return nil
	}
	s.roots = append(s.roots, f.data)
	return nil
}

// root returns the newest root with enough signatures, or nil.
func (s *metadataDir) root() []byte {
	if len(s.roots) == 0 {
		return nil
	}
	return s.roots[len(s.roots)-1]
}

// requireRoot is root with an error that says what to do if there is none.
func (s *metadataDir) requireRoot() ([]byte, error) {
	switch {
	case s.root() != nil:
		return s.root(), nil
	case s.unsigned != nil:
		return nil, hinted(fmt.Errorf("%s: %w", s.dir, s.unsigned), "muster package keys sign %s --key KEY", filepath.Join(s.dir, tuf.FileName(tuf.RoleRoot, 1)))
	}
	return nil, hinted(fmt.Errorf("%s has no root file", s.dir),
		"muster package keys init --dir %s, or muster package keys fetch --trust-root sha256:… to join an existing publisher, or name the folder with --root", s.dir)
}

// openPublisher is openMetadataDir of a folder that must have a root.
func openPublisher(path string) (*metadataDir, error) {
	s, err := openMetadataDir(path)
	if err == nil {
		_, err = s.requireRoot()
	}
	return s, err
}

// rootBefore returns the root before a version, whose keys must sign that version too. It
// returns nil for version 1.
func (s *metadataDir) rootBefore(version int64) ([]byte, error) {
	if version == 1 {
		return nil, nil
	}
	for _, r := range s.roots {
		if info, err := tuf.Inspect(r); err == nil && info.Version == version-1 {
			return r, nil
		}
	}
	return nil, hinted(fmt.Errorf("%s is not in %s, or lacks signatures: it names the keys that sign the next root", tuf.FileName(tuf.RoleRoot, version-1), s.dir),
		"muster package keys fetch --root %s", s.dir)
}

// trustedFor returns the root whose keys must sign a file.
func (s *metadataDir) trustedFor(f signedFile) ([]byte, error) {
	if f.Role == tuf.RoleRoot {
		return s.rootBefore(f.Version)
	}
	return s.requireRoot()
}

// signedByAny reports whether the keys of any root have signed targets: a newer root may
// have removed them.
func (s *metadataDir) signedByAny(targets []byte) bool {
	return slices.ContainsFunc(s.roots, func(root []byte) bool { return signedBy(targets, root) })
}

func signedBy(targets, root []byte) bool {
	p, err := tuf.Signatures(targets, root)
	return err == nil && p.Done()
}

// update adds the server's files that are newer and have enough signatures. It returns
// the files that it added.
func (s *metadataDir) update(files [][]byte) ([]tuf.File, error) {
	var roots []signedFile
	var targets *signedFile
	for _, data := range files {
		info, err := tuf.Inspect(data)
		if err != nil {
			return nil, fmt.Errorf("from the server: %w", err)
		}
		switch f := (signedFile{info, data}); info.Role {
		case tuf.RoleRoot:
			roots = append(roots, f)
		case tuf.RoleTargets:
			targets = &f
		}
	}
	newest, err := s.requireRoot()
	if err != nil {
		return nil, err
	}
	have, err := tuf.Inspect(newest)
	if err != nil {
		return nil, err
	}
	var fresh []tuf.File
	slices.SortFunc(roots, func(a, b signedFile) int { return int(a.Version - b.Version) })
	for _, f := range roots {
		if f.Version <= have.Version {
			continue
		}
		if err := s.checkSigned(f); err != nil {
			return nil, fmt.Errorf("the server's %s cannot be trusted: %w", f.FileName, err)
		}
		s.roots = append(s.roots, f.data)
		fresh = append(fresh, tuf.File{Name: f.FileName, Data: f.data})
	}
	if targets == nil {
		return fresh, nil
	}
	added, err := s.updateTargets(*targets)
	if added {
		fresh = append(fresh, tuf.File{Name: targets.FileName, Data: targets.data})
	}
	return fresh, err
}

// checkSigned returns an error if a file does not have enough signatures.
func (s *metadataDir) checkSigned(f signedFile) error {
	p, err := tuf.Signatures(f.data, s.root())
	if err == nil && !p.Done() {
		err = &tuf.ThresholdError{Progress: p}
	}
	return err
}

func (s *metadataDir) updateTargets(f signedFile) (added bool, err error) {
	if s.targets != nil {
		have, err := tuf.Inspect(s.targets)
		if err != nil {
			return false, err
		}
		switch {
		case bytes.Equal(f.data, s.targets), f.Version < have.Version:
			return false, nil // ours is newer and is published next
		case f.Version == have.Version:
			if _, err := tuf.Merge(s.targets, f.data); err != nil {
				return false, fmt.Errorf("the server's %s differs from the one in %s: find out who signed it: %w", f.FileName, s.dir, err)
			}
		}
	}
	if err := s.checkSigned(f); err != nil {
		return false, fmt.Errorf("the server's %s cannot be trusted, so nothing is signed on top of it: %w", f.FileName, err)
	}
	s.targets = f.data
	return true, nil
}

// save writes files to the folder, so that a server cannot present older ones later.
func (s *metadataDir) save(files []tuf.File) error {
	if s.single {
		return nil
	}
	for _, f := range files {
		path := filepath.Join(s.dir, f.Name)
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, f.Data) {
			continue
		}
		if err := writeSigned(path, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// checkOverwrite returns an error if path has another file, which may be waiting for
// signatures.
func checkOverwrite(path string, data []byte) error {
	have, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case bytes.Equal(have, data):
		return nil
	}
	return hinted(fmt.Errorf("%s exists and waits for signatures", path),
		"muster package keys sign %s --key KEY and then muster package keys publish %s, or remove it", path, path)
}
