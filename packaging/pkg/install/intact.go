package install

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

const opIntact = "check version"

// digests holds the SHA-256 of a home's files, by their path in the home. They are
// stored in the home when it is installed, in the format of sha256sum, because a
// rollback may start the version weeks later. They detect damage, not tampering:
// whoever can write the files can write the digests.
type digests map[string][sha256.Size]byte

func (g digests) encode() []byte {
	var buf bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(g)) {
		sum := g[name]
		fmt.Fprintf(&buf, "%s  %s\n", hex.EncodeToString(sum[:]), name)
	}
	return buf.Bytes()
}

func parseDigests(text []byte) (digests, error) {
	g := digests{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		sum, name, ok := bytes.Cut(lines.Bytes(), []byte("  "))
		var digest [sha256.Size]byte
		if n, err := hex.Decode(digest[:], sum); !ok || err != nil || n != len(digest) || len(name) == 0 {
			return nil, fmt.Errorf("%s is damaged", layout.DigestsFile)
		}
		g[string(name)] = digest
	}
	if len(g) == 0 {
		return nil, fmt.Errorf("%s is empty", layout.DigestsFile)
	}
	return g, lines.Err()
}

// CheckIntact is [ReadHome] for a home that is about to be started: it also reads
// every file, and returns [ErrDamagedHome] if one differs from what was installed.
func CheckIntact(ctx context.Context, d disk.Disk, top, home string) (manifest.Package, error) {
	p, err := ReadHome(d, top, home)
	if err == nil {
		err = CheckDigests(ctx, d, top, home)
	}
	return p, err
}

// CheckDigests is the part of [CheckIntact] that reads every file.
func CheckDigests(ctx context.Context, d disk.Disk, top, home string) error {
	full := layout.Path(top, home)
	text, err := d.ReadFile(opIntact, filepath.Join(full, layout.DigestsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: it has no %s", full, ErrDamagedHome, layout.DigestsFile)
	}
	if err != nil {
		return err
	}
	want, err := parseDigests(text)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", full, ErrDamagedHome, err)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		got, err := digestOf(d, filepath.Join(full, filepath.FromSlash(name)))
		if err != nil {
			return fmt.Errorf("%s: %w: %w", full, ErrDamagedHome, err)
		}
		if got != want[name] {
			return fmt.Errorf("%s: %w: %s is not what was installed", full, ErrDamagedHome, name)
		}
	}
	return nil
}

func digestOf(d disk.Disk, file string) (sum [sha256.Size]byte, err error) {
	f, err := d.OpenFile(opIntact, file, os.O_RDONLY, 0)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// RecordDigests writes the digests of a folder that is to become a home, for
// [CheckIntact]. Unpack does so itself.
func RecordDigests(d disk.Disk, folder string) error { return recordDigests(d, folder, folder) }

// recordDigests writes the digests of the files in from.
func recordDigests(d disk.Disk, from, folder string) error {
	g := digests{}
	if err := g.walk(d, from, "."); err != nil {
		return err
	}
	return disk.WriteFile(d, opUnpack, filepath.Join(folder, layout.DigestsFile), g.encode(), 0o644)
}

func (g digests) walk(d disk.Disk, folder, dir string) error {
	entries, err := d.ReadDir(opUnpack, filepath.Join(folder, filepath.FromSlash(dir)))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case name == layout.RunDir || name == layout.DigestsFile:
		case e.IsDir():
			err = g.walk(d, folder, name)
		case e.Type().IsRegular():
			g[name], err = digestOf(d, filepath.Join(folder, filepath.FromSlash(name)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
