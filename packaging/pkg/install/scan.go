package install

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
)

// Bounds of a package.
const (
	// MaxEntries: the largest agent package in the field has some 3,000.
	MaxEntries = 10_000
	// MaxUnpacked is more than twice the largest agent package in the field,
	// and still fits on the disk of a small host.
	MaxUnpacked int64 = 4 << 30
	// MaxRatio bounds the unpacked bytes for each byte of the archive. Programs
	// compress to a half or a tenth; deflate's limit is 1032.
	MaxRatio = 200
	// ratioAllowance is the size any archive may unpack to, whatever the ratio: a
	// small file of zeros does no harm.
	ratioAllowance = 16 << 20
)

// limits holds the bounds, which tests lower.
type limits struct {
	entries  int
	unpacked int64
	ratio    int64
	elastic  bool // see InspectElastic
}

func defaultLimits() limits {
	return limits{entries: MaxEntries, unpacked: MaxUnpacked, ratio: MaxRatio, elastic: false}
}

// forArchive returns how many bytes an archive of that size may unpack to.
func (l limits) forArchive(size int64) int64 {
	return min(l.unpacked, max(ratioAllowance, size*l.ratio))
}

// contents is the result of scanning an archive.
type contents struct {
	manifest *manifest.Manifest
	legacy   bool // the archive has no manifest; it was derived
	files    []Entry
	unpacked int64
	sums     digests           // of files, by their name in the archive
	top      string            // the archive's top folder
	places   map[string]string // see plan
	old      legacyFiles
	programs map[string]platform // of programs and of executable files, by name in the archive
	elastic  bool                // see InspectElastic
}

// scan reads every byte of an archive and checks that it can be unpacked, so that
// nothing is written for a refused archive. It copies the archive to raw.
func scan(ctx context.Context, f archiveFile, raw io.Writer, l limits) (*contents, error) {
	c := &contents{sums: digests{}, old: legacyFiles{}, programs: map[string]platform{}, elastic: l.elastic}
	seen := newSeen()
	err := read(ctx, f, raw, l, func(e checkedEntry, content io.Reader) error {
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
		sum := sha256.New()
		size, err := c.consume(name, e.mode, io.TeeReader(content, sum))
		if err != nil {
			return err
		}
		c.sums[name] = [sha256.Size]byte(sum.Sum(nil))
		c.files = append(c.files, Entry{Name: name, Size: size, Mode: e.mode})
		c.unpacked += size
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, c.resolve()
}

// resolve determines manifest, places and platform once all entries have been read.
func (c *contents) resolve() (err error) {
	if c.legacy = c.manifest == nil; c.legacy {
		if c.manifest, err = c.old.manifest(); err != nil {
			return err
		}
	}
	if c.places, err = plan(c.files, c.manifest.Package, c.elastic); err != nil {
		return err
	}
	if c.legacy {
		if err := refuseManifestInHome(c.places); err != nil {
			return err
		}
	}
	if err := c.checkComponent(); err != nil {
		return err
	}
	return resolvePlatform(&c.manifest.Package, c.programs, c.places)
}

// checkComponent refuses a component's package that lacks files, or has settings that no
// host can use: otherwise only an upgrade would notice.
func (c *contents) checkComponent() error {
	component := c.manifest.Package.Component
	if component == nil {
		return nil
	}
	home := make(map[string]bool, len(c.places))
	for _, f := range c.files {
		if place, ok := c.places[f.Name]; ok {
			home[place] = f.Mode&0o111 != 0
		}
	}
	if err := runtimes.Check(component, home); err != nil {
		return &RefusedError{manifest.FileName, "cannot be used: package.component: " + err.Error()}
	}
	return nil
}

// consume reads a file's content and stores what describes the package.
func (c *contents) consume(name string, mode fs.FileMode, content io.Reader) (int64, error) {
	switch {
	case name == manifest.FileName:
		return c.consumeManifest(name, content)
	case isLegacyFile(name):
		return c.old.consume(name, content)
	case isProgram(name) || mode&0o111 != 0: // the manifest, which says what counts, may follow
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

// belowTop strips the one top folder that every package has. Its name is taken from
// the entries, since the archive's file name may have been changed.
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

// seen detects names that two entries use.
type seen struct {
	files   map[string]bool
	folders map[string]bool // with an entry of their own
	parents map[string]bool // of another entry
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

// plan returns the path in the versioned home of each of the archive's files that
// the manifest maps. For a package of Elastic's it leaves out those that map outside the
// home.
func plan(files []Entry, p manifest.Package, elastic bool) (map[string]string, error) {
	home := p.Home() + "/"
	places := make(map[string]string, len(files))
	sources := make(map[string]string, len(files))
	for _, f := range files {
		mapped, ok := p.Map(f.Name)
		if !ok {
			continue
		}
		inHome, ok := strings.CutPrefix(mapped, home)
		if !ok && elastic {
			continue
		}
		if !ok {
			return nil, &RefusedError{f.Name, fmt.Sprintf("maps to %s, which is outside the versioned home %s", mapped, p.Home())}
		}
		if inHome == layout.DigestsFile {
			return nil, &RefusedError{f.Name, "maps to a name that is reserved for digests"}
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
