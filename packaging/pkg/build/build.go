// Package build builds packages: the archives that hosts download and unpack. `muster
// package build`, tests and the demo call it.
//
// An archive is reproducible byte for byte: the same files and the same Go release
// give the same archive. So entries have a fixed order, one time for all, no owner,
// and mode 0755 or 0644.
package build

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
)

// Archive formats.
const (
	TarGz = "tar.gz"
	Zip   = "zip"
)

const (
	// CommitFile holds the hash at the top of an agent's package, for agents that do not
	// read manifests. The package of a component lacks it, so that those refuse it.
	CommitFile = ".muster-agent.active.commit"

	// program is the program that every package of an agent must contain.
	program = "muster-agent"

	// derivedHashLength is the length of a git commit's hash.
	derivedHashLength = 40
)

// DefaultTime is the default time of entries: the earliest that zip can represent.
func DefaultTime() time.Time { return time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC) }

// Spec describes a package to build.
type Spec struct {
	// Manifest gives Version, Snapshot, Hash, OS and Arch, and may give Checks and
	// Component. VersionedHome and PathMappings are derived and must be empty. An empty
	// Hash is derived from the names, modes and contents of Files, and for a component
	// from Checks and Component too: what runs may be only there, such as an image.
	Manifest manifest.Package
	// Files are the files of the versioned home, in any order. A component may have none.
	Files []File
	// Format is TarGz or Zip; empty means TarGz.
	Format string
	// Time is the time of every entry; zero means DefaultTime.
	Time time.Time
}

// File is one file of the versioned home.
type File struct {
	Name string // slash-separated, relative to the home
	Path string // on the machine that builds
	// Mode determines whether the file is executable. Zero means the mode of the
	// file at Path.
	Mode fs.FileMode
}

// Build writes the package to w and returns its manifest. After an error w may hold a
// part of an archive.
func Build(ctx context.Context, spec Spec, w io.Writer) (manifest.Manifest, error) {
	files, err := scan(ctx, spec)
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("build package: %w", err)
	}
	m, err := describe(spec.Manifest, files)
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("build package: %w", err)
	}
	text, err := m.Encode()
	if err != nil {
		return manifest.Manifest{}, fmt.Errorf("build package: %w", err)
	}
	entries := members(m, text, files)
	if err := write(ctx, spec, entries, w); err != nil {
		return manifest.Manifest{}, fmt.Errorf("build package: %w", err)
	}
	return m, nil
}

// source is a file with its size and digest.
type source struct {
	File
	mode   fs.FileMode
	size   int64
	digest [sha256.Size]byte
}

// scan checks and reads every file, and sorts them by name.
func scan(ctx context.Context, spec Spec) ([]source, error) {
	if spec.Manifest.VersionedHome != "" || len(spec.Manifest.PathMappings) > 0 {
		return nil, errors.New("versioned home and path mappings are derived, leave them empty")
	}
	files := make([]source, 0, len(spec.Files))
	for _, f := range spec.Files {
		if err := checkName(f.Name, spec.Manifest.Component != nil); err != nil {
			return nil, err
		}
		s, err := readSource(ctx, f)
		if err != nil {
			return nil, err
		}
		files = append(files, s)
	}
	slices.SortFunc(files, func(a, b source) int { return strings.Compare(a.Name, b.Name) })
	return files, checkSet(files, spec.Manifest)
}

func checkName(name string, component bool) error {
	switch {
	case name == "" || name != path.Clean(name) || !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, `\:`):
		return fmt.Errorf("file name %q: want a relative path such as muster-agent or plugins/disk", name)
	case name == manifest.FileName:
		return fmt.Errorf("file name %q: the builder writes that file", name)
	case component:
	case name == layout.RunDir || strings.HasPrefix(name, layout.RunDir+"/"):
		// It would overwrite the state of the previous version.
		return fmt.Errorf("file name %q: %s/ belongs to the agent's state", name, layout.RunDir)
	}
	return nil
}

// checkSet checks the names of all files, which are sorted, against each other.
func checkSet(files []source, p manifest.Package) error {
	names := make(map[string]bool, len(files))
	executable := make(map[string]bool, len(files))
	for _, f := range files {
		if names[f.Name] {
			return fmt.Errorf("file name %q is given twice", f.Name)
		}
		names[f.Name] = true
		executable[f.Name] = f.mode&0o111 != 0
	}
	for _, f := range files {
		for dir := path.Dir(f.Name); dir != "."; dir = path.Dir(dir) {
			if names[dir] {
				return fmt.Errorf("file name %q: %s is a file as well", f.Name, dir)
			}
		}
	}
	if p.Component != nil {
		if err := p.Component.Validate(); err != nil {
			return err
		}
		return runtimes.Check(p.Component, executable)
	}
	want := manifest.ProgramName(p.OS, program)
	if !names[want] {
		return fmt.Errorf("no file is named %s, and a package without it cannot be started: add --file %s=PATH", want, want)
	}
	return nil
}

func readSource(ctx context.Context, f File) (source, error) {
	in, err := os.Open(f.Path)
	if err != nil {
		return source{}, fmt.Errorf("file %s: %w", f.Name, err)
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return source{}, fmt.Errorf("file %s: %w", f.Name, err)
	}
	if !fi.Mode().IsRegular() {
		return source{}, fmt.Errorf("file %s: %s is not a regular file", f.Name, f.Path)
	}
	mode := f.Mode
	if mode == 0 {
		mode = fi.Mode()
	}
	h := sha256.New()
	n, err := io.Copy(h, disk.Reader(ctx, in))
	if err != nil {
		return source{}, fmt.Errorf("file %s: %w", f.Name, err)
	}
	s := source{File: f, mode: plainMode(mode), size: n}
	h.Sum(s.digest[:0])
	return s, nil
}

// plainMode reduces a mode to 0755 or 0644, so that it does not depend on the
// builder's umask.
func plainMode(mode fs.FileMode) fs.FileMode {
	if mode&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

// describe completes the manifest. The archive's home is named after the hash alone,
// as agents that read no manifest expect, and mapped to a home that is named after the
// version too.
func describe(p manifest.Package, files []source) (manifest.Manifest, error) {
	if p.Hash == "" {
		var err error
		if p.Hash, err = contentHash(p, files); err != nil {
			return manifest.Manifest{}, err
		}
	}
	p.VersionedHome = p.HomeOf(p.Identity().ShortHash())
	home := p.HomeOf(p.Identity().String())
	p.PathMappings = []map[string]string{{
		p.VersionedHome:   home,
		manifest.FileName: home + "/" + manifest.FileName,
	}}
	return manifest.Manifest{APIVersion: manifest.APIVersion, Kind: manifest.Kind, Package: p}, nil
}

// contentHash returns a hash in place of a commit's. Each name is preceded by its
// length, so that no two sets of files give the same input.
func contentHash(p manifest.Package, files []source) (string, error) {
	h := sha256.New()
	if p.Component != nil {
		text, err := json.Marshal([]any{p.Component, p.Checks})
		if err != nil {
			return "", fmt.Errorf("package.component.settings: %w", err)
		}
		files = append([]source{{File: File{Name: manifest.FileName}, digest: sha256.Sum256(text)}}, files...)
	}
	for _, f := range files {
		var head [12]byte
		binary.BigEndian.PutUint64(head[:], uint64(len(f.Name)))
		binary.BigEndian.PutUint32(head[8:], uint32(f.mode))
		h.Write(head[:])
		io.WriteString(h, f.Name) //nolint:errcheck // a hash cannot fail
		h.Write(f.digest[:])
	}
	return hex.EncodeToString(h.Sum(nil))[:derivedHashLength], nil
}

// entry is one member of the archive: a folder, some text, or a file.
type entry struct {
	name string // without a slash at its end
	mode fs.FileMode
	text []byte
	file *source
}

func (e entry) isDir() bool { return e.mode.IsDir() }

func (e entry) size() int64 {
	if e.file != nil {
		return e.file.size
	}
	return int64(len(e.text))
}

// members returns the archive's members in order: the manifest and the commit first,
// so that a reader of a stream knows what follows, then each folder before its files.
func members(m manifest.Manifest, text []byte, files []source) []entry {
	p := m.Package
	top := TopFolder(p)
	entries := []entry{
		{name: top, mode: fs.ModeDir | 0o755},
		{name: top + "/" + manifest.FileName, mode: 0o644, text: text},
	}
	if p.Component == nil {
		entries = append(entries, entry{name: top + "/" + CommitFile, mode: 0o644, text: []byte(p.Hash + "\n")})
	}
	seen := map[string]bool{top: true}
	for i := range files {
		name := path.Join(top, p.VersionedHome, files[i].Name)
		entries = append(entries, newFolders(path.Dir(name), seen)...)
		entries = append(entries, entry{name: name, mode: files[i].mode, file: &files[i]})
	}
	return entries
}

func newFolders(dir string, seen map[string]bool) []entry {
	if seen[dir] {
		return nil
	}
	above := newFolders(path.Dir(dir), seen)
	seen[dir] = true
	return append(above, entry{name: dir, mode: fs.ModeDir | 0o755})
}

// TopFolder returns the name of the one folder at the top of a package's archive.
func TopFolder(p manifest.Package) string {
	return strings.TrimSuffix(p.ArchiveName(""), ".")
}
