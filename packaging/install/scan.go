package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/packaging/manifest"
)

// Bounds of a package.
const (
	// MaxEntries: the largest agent package in the field has some 3,000.
	MaxEntries = 10_000
	// MaxUnpacked is more than twice the largest agent package in the field,
	// and still fits on the disk of a small host.
	MaxUnpacked int64 = 4 << 30
	// MaxRatio is how many bytes one byte of the archive may become. Programs
	// shrink to a half or a tenth; deflate at its limit makes 1032.
	MaxRatio = 200
	// ratioAllowance is what any archive may unpack to, whatever the ratio: a
	// small file of zeros is no bomb.
	ratioAllowance = 16 << 20
)

// limits are the bounds as values, since a test cannot write 4 GiB.
type limits struct {
	entries  int
	unpacked int64
	ratio    int64
}

func defaultLimits() limits { return limits{MaxEntries, MaxUnpacked, MaxRatio} }

// forArchive is how many bytes an archive of a size may become.
func (l limits) forArchive(size int64) int64 {
	return min(l.unpacked, max(ratioAllowance, size*l.ratio))
}

// contents is what a first reading of an archive tells.
type contents struct {
	manifest *manifest.Manifest
	legacy   bool // the manifest was made here
	files    []Entry
	unpacked int64
	top      string              // the archive's top folder
	places   map[string]string   // see plan
	old      legacyFiles         // by name in the archive, as the next
	programs map[string]platform // those that could be started
}

// scan reads every byte of an archive and decides whether it could be
// unpacked, so that an archive that is refused never touches the disk.
func scan(ctx context.Context, f archiveFile, l limits) (*contents, error) {
	c := &contents{old: legacyFiles{}, programs: map[string]platform{}}
	seen := newSeen()
	err := read(ctx, f, l, func(e checkedEntry, content io.Reader) error {
		if e.name == "." {
			return nil
		}
		if c.top == "" {
			c.top, _, _ = strings.Cut(e.name, "/")
		}
		name, err := belowTop(e, c.top)
		if err != nil {
			return err
		}
		if err := seen.add(e); err != nil || e.dir {
			return err
		}
		size, err := c.consume(name, content)
		if err != nil {
			return err
		}
		c.files = append(c.files, Entry{Name: name, Size: size, Mode: e.mode})
		c.unpacked += size
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, c.resolve()
}

// resolve decides what the files come to, once all have been seen.
func (c *contents) resolve() (err error) {
	if c.legacy = c.manifest == nil; c.legacy {
		if c.manifest, err = c.old.manifest(); err != nil {
			return err
		}
	}
	if c.places, err = plan(c.files, c.manifest.Package); err != nil {
		return err
	}
	if c.legacy {
		if err := ownManifest(c.places); err != nil {
			return err
		}
	}
	return resolvePlatform(&c.manifest.Package, c.programs, c.places)
}

// consume reads a file's content and keeps what tells about the package.
func (c *contents) consume(name string, content io.Reader) (int64, error) {
	switch {
	case name == manifest.FileName:
		return c.consumeManifest(name, content)
	case isLegacyFile(name):
		return c.old.consume(name, content)
	case isProgram(name):
		return c.consumeProgram(name, content)
	}
	return io.Copy(io.Discard, content)
}

func (c *contents) consumeProgram(name string, content io.Reader) (int64, error) {
	head, err := io.ReadAll(io.LimitReader(content, headLength))
	if err != nil {
		return 0, err
	}
	c.programs[name] = platformOf(head)
	rest, err := io.Copy(io.Discard, content)
	return int64(len(head)) + rest, err
}

func (c *contents) consumeManifest(name string, content io.Reader) (int64, error) {
	counted := &countingReader{r: content}
	m, err := manifest.Parse(counted)
	if err != nil {
		if errors.Is(err, ErrDamaged) || isRefused(err) {
			return 0, err
		}
		return 0, &RefusedError{name, "cannot be used: " + err.Error()}
	}
	c.manifest = m
	_, err = io.Copy(io.Discard, counted)
	return counted.n, err
}

func isRefused(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused)
}

// belowTop strips the one top folder every package has. The folder's name comes
// from the entries; the archive's file name may have been changed by anybody.
func belowTop(e checkedEntry, top string) (string, error) {
	first, rest, nested := strings.Cut(e.name, "/")
	if first != top {
		return "", &RefusedError{e.name, fmt.Sprintf("lies beside the package's top folder %q", top)}
	}
	if !nested && !e.dir {
		return "", &RefusedError{e.name, "lies beside a top folder, want everything in one folder"}
	}
	return rest, nil
}

// seen finds names that two entries claim.
type seen struct {
	files   map[string]bool
	folders map[string]bool // named by an entry of their own
	parents map[string]bool // named by something in them
}

func newSeen() seen {
	return seen{map[string]bool{}, map[string]bool{}, map[string]bool{}}
}

func (s seen) add(e checkedEntry) error {
	if s.files[e.name] || s.folders[e.name] || (!e.dir && s.parents[e.name]) {
		return &RefusedError{e.name, "is in the archive twice"}
	}
	for i, r := range e.name {
		if r != '/' {
			continue
		}
		if s.files[e.name[:i]] {
			return &RefusedError{e.name, fmt.Sprintf("lies in %q, which is a file", e.name[:i])}
		}
		s.parents[e.name[:i]] = true
	}
	if e.dir {
		s.folders[e.name] = true
	} else {
		s.files[e.name] = true
	}
	return nil
}

// plan maps the archive's files to their names below the versioned home. Files
// that map nowhere are left out, as the manifest wants it.
func plan(files []Entry, p manifest.Package) (map[string]string, error) {
	home := p.Home() + "/"
	places := make(map[string]string, len(files))
	sources := make(map[string]string, len(files))
	for _, f := range files {
		mapped, ok := p.Map(f.Name)
		if !ok {
			continue
		}
		inHome, ok := strings.CutPrefix(mapped, home)
		if !ok {
			return nil, &RefusedError{f.Name, fmt.Sprintf("maps to %s, which is outside the versioned home %s", mapped, p.Home())}
		}
		if inHome == layout.DigestsFile {
			return nil, &RefusedError{f.Name, "maps to a name that unpacking keeps for itself"}
		}
		if other, taken := sources[inHome]; taken {
			return nil, &RefusedError{f.Name, fmt.Sprintf("and %q map to the same file %s", other, mapped)}
		}
		sources[inHome], places[f.Name] = f.Name, inHome
	}
	for target, source := range sources {
		for i, r := range target {
			if r == '/' && sources[target[:i]] != "" {
				return nil, &RefusedError{source, fmt.Sprintf("maps into %s, which is a file", home+target[:i])}
			}
		}
	}
	if len(places) == 0 {
		return nil, &RefusedError{Why: "none of its files maps into the versioned home " + p.Home()}
	}
	return places, nil
}
