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

	"github.com/muster-fleet/muster/packaging/trust/tuf"
)

// shelf is the folder where a publisher keeps signed files. The oldest root in it
// is believed as it lies there; every other file is, once enough of the right keys
// have signed it. What was once on the shelf is never followed by something older,
// whatever a server says.
type shelf struct {
	dir string
	// roots are consecutive versions, each signed as far as needed.
	roots [][]byte
	// targets is the newest that is signed as far as needed; nil when there is none.
	targets []byte
	// draft is why the newest root does not count yet, nil when all do.
	draft error
	// single is a shelf made of one root file: nothing is kept beside it.
	single bool
}

var signedName = regexp.MustCompile(`^[1-9][0-9]{0,15}\.(root|targets)\.json$`)

// openShelf reads a folder, or one root file.
func openShelf(path string) (*shelf, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, hinted(fmt.Errorf("--root: %w", err), "name the folder that muster package keys init made, or a root file")
	}
	if !info.IsDir() {
		root, err := readSignedFile(path)
		if err != nil {
			return nil, err
		}
		if root.Role != tuf.RoleRoot {
			return nil, fmt.Errorf("--root %s: is a %s file, want a root", path, root.Role)
		}
		return &shelf{dir: filepath.Dir(path), roots: [][]byte{root.data}, single: true}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	s := &shelf{dir: path}
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
			return nil, fmt.Errorf("%s: holds %s: give it its own name", filepath.Join(path, e.Name()), f.FileName)
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b signedFile) int { return int(a.Version - b.Version) })
	for _, f := range files {
		if f.Role == tuf.RoleRoot {
			if err := s.stack(f); err != nil {
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

// signedFile is a root or targets file that was read.
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

// stack puts the next root on those there are. One that lacks signatures is a
// draft, and so is what comes behind it.
func (s *shelf) stack(f signedFile) error {
	if s.draft != nil {
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
		s.draft = &tuf.ThresholdError{Progress: p}
		return nil
	}
	s.roots = append(s.roots, f.data)
	return nil
}

// root is the newest that counts, nil when there is none.
func (s *shelf) root() []byte {
	if len(s.roots) == 0 {
		return nil
	}
	return s.roots[len(s.roots)-1]
}

// mustRoot is root with words for somebody who has none.
func (s *shelf) mustRoot() ([]byte, error) {
	switch {
	case s.root() != nil:
		return s.root(), nil
	case s.draft != nil:
		return nil, hinted(fmt.Errorf("%s: %w", s.dir, s.draft), "muster package keys sign %s --key KEY", filepath.Join(s.dir, tuf.FileName(tuf.RoleRoot, 1)))
	}
	return nil, hinted(fmt.Errorf("%s holds no root file", s.dir),
		"muster package keys init --dir %s, or muster package keys fetch --trust-root sha256:… for a publisher that there is, or name the folder with --root", s.dir)
}

// rootOf is the root before version, which has to sign it too; nil for the first.
func (s *shelf) rootOf(version int64) ([]byte, error) {
	if version == 1 {
		return nil, nil
	}
	for _, r := range s.roots {
		if info, err := tuf.Inspect(r); err == nil && info.Version == version-1 {
			return r, nil
		}
	}
	return nil, hinted(fmt.Errorf("%s is not in %s, or lacks signatures; it names who signs the next", tuf.FileName(tuf.RoleRoot, version-1), s.dir),
		"muster package keys fetch --root %s", s.dir)
}

// trustedFor is the root that names a file's signers.
func (s *shelf) trustedFor(f signedFile) ([]byte, error) {
	if f.Role == tuf.RoleRoot {
		return s.rootOf(f.Version)
	}
	return s.mustRoot()
}

// signedByAny is for what lies on the shelf: a root may have taken away keys that
// signed the targets before it.
func (s *shelf) signedByAny(targets []byte) bool {
	return slices.ContainsFunc(s.roots, func(root []byte) bool { return signedBy(targets, root) })
}

func signedBy(targets, root []byte) bool {
	p, err := tuf.Signatures(targets, root)
	return err == nil && p.Done()
}

// follow takes in what a server has, as far as it is signed. It returns the files
// that are new here.
func (s *shelf) follow(files [][]byte) ([]tuf.File, error) {
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
	newest, err := s.mustRoot()
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
		p, err := tuf.Signatures(f.data, s.root())
		if err == nil && !p.Done() {
			err = &tuf.ThresholdError{Progress: p}
		}
		if err != nil {
			return nil, fmt.Errorf("the server's %s cannot be believed: %w", f.FileName, err)
		}
		s.roots = append(s.roots, f.data)
		fresh = append(fresh, tuf.File{Name: f.FileName, Data: f.data})
	}
	if targets == nil {
		return fresh, nil
	}
	took, err := s.followTargets(*targets)
	if took {
		fresh = append(fresh, tuf.File{Name: targets.FileName, Data: targets.data})
	}
	return fresh, err
}

func (s *shelf) followTargets(f signedFile) (took bool, err error) {
	if s.targets != nil {
		have, err := tuf.Inspect(s.targets)
		if err != nil {
			return false, err
		}
		switch {
		case bytes.Equal(f.data, s.targets), f.Version < have.Version:
			return false, nil // ours is the newer one, and goes up next
		case f.Version == have.Version:
			if _, err := tuf.Merge(s.targets, f.data); err != nil {
				return false, fmt.Errorf("the server's %s is not the one in %s: find out who signed it: %w", f.FileName, s.dir, err)
			}
		}
	}
	p, err := tuf.Signatures(f.data, s.root())
	if err == nil && !p.Done() {
		err = &tuf.ThresholdError{Progress: p}
	}
	if err != nil {
		return false, fmt.Errorf("the server's %s cannot be believed, so nothing is signed on top of it: %w", f.FileName, err)
	}
	s.targets = f.data
	return true, nil
}

// keep writes what was learnt, so that nobody can show this publisher an older
// state later.
func (s *shelf) keep(files []tuf.File) error {
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

// draftAt refuses to write a file over another that people are signing.
func draftAt(path string, data []byte) error {
	have, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case bytes.Equal(have, data):
		return nil
	}
	return hinted(fmt.Errorf("%s is there and waits for signatures", path),
		"muster package keys sign %s --key KEY and then muster package keys publish %s, or remove it", path, path)
}
