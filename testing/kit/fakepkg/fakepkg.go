// Package fakepkg creates archives for tests: valid packages, and packages with one defect
// each, which package build refuses to write. Tests of the unpacker, of the agent and of
// whole fleets use it. It writes archives entry by entry with the standard library.
package fakepkg

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Hash is the commit hash of the packages.
const Hash = "3f2a9c0000000000000000000000000000000000"

// Kind is the kind of an entry.
type Kind int

// Kinds of entries. The zero value is a regular file.
const (
	File Kind = iota
	Folder
	Symlink
	Hardlink
	CharDevice
	Fifo
)

// Entry is one member of an archive. It is written as it is.
type Entry struct {
	Name string
	Kind Kind
	Body string
	// Zeros are written after Body.
	Zeros int64
	// Mode has the bits of Unix (04000 is setuid); 0 means 0644.
	Mode int64
	// Link is the target of a link.
	Link string
	// ZipMethod and ZipFlags are written to a zip header as they are. The content is then
	// stored without compression.
	ZipMethod uint16
	ZipFlags  uint16
}

// Describe returns the manifest's package section for a version of linux/amd64, as package
// build derives it.
func Describe(version string) manifest.Package {
	return describe(version, nil)
}

func describe(version string, c *manifest.Component) manifest.Package {
	v, snapshot := manifest.SplitSnapshot(version)
	p := manifest.Package{Version: v, Snapshot: snapshot, Hash: Hash, OS: "linux", Arch: "amd64", Component: c}
	p.VersionedHome = p.HomeOf(p.Identity().ShortHash())
	home := p.HomeOf(p.Identity().String())
	p.PathMappings = []map[string]string{{
		p.VersionedHome:   home,
		manifest.FileName: home + "/" + manifest.FileName,
	}}
	return p
}

// Top returns the folder at the top of a package's archive.
func Top(p manifest.Package) string { return build.TopFolder(p) }

// Manifest returns the entry for the manifest of p.
func Manifest(t testing.TB, p manifest.Package) Entry {
	t.Helper()
	m := manifest.Manifest{APIVersion: manifest.APIVersion, Kind: manifest.Kind, Package: p}
	text, err := m.Encode()
	if err != nil {
		t.Fatalf("manifest of the test package: %v", err)
	}
	return Entry{Name: Top(p) + "/" + manifest.FileName, Body: string(text)}
}

// Sound returns a valid package: manifest, agent and watcher. Callers may append entries.
func Sound(t testing.TB, p manifest.Package) []Entry {
	t.Helper()
	home := Top(p) + "/" + p.VersionedHome
	return []Entry{
		{Name: Top(p) + "/", Kind: Folder, Mode: 0o755},
		Manifest(t, p),
		{Name: Top(p) + "/" + build.CommitFile, Body: p.Hash + "\n"},
		{Name: home + "/", Kind: Folder, Mode: 0o755},
		{Name: home + "/muster-agent", Body: "#!/bin/sh\necho agent " + p.FullVersion() + "\n", Mode: 0o755},
		{Name: home + "/muster-watcher", Body: "#!/bin/sh\necho watcher " + p.FullVersion() + "\n", Mode: 0o755},
	}
}

// Write writes an archive into dir and returns its path. It is a zip if name ends in .zip,
// and a tar.gz otherwise.
func Write(t testing.TB, dir, name string, entries []Entry) string {
	t.Helper()
	path := filepath.Join(dir, name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".zip") {
		err = writeZip(f, entries)
	} else {
		err = writeTarGz(f, entries)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
	return path
}

func (e Entry) size() int64 { return int64(len(e.Body)) + e.Zeros }

func (e Entry) mode() int64 {
	if e.Mode == 0 {
		return 0o644
	}
	return e.Mode
}

func (e Entry) writeTo(w io.Writer) error {
	if _, err := io.WriteString(w, e.Body); err != nil {
		return err
	}
	_, err := io.CopyN(w, zeros{}, e.Zeros)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func writeTarGz(w io.Writer, entries []Entry) error {
	gz, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(gz)
	types := map[Kind]byte{
		File: tar.TypeReg, Folder: tar.TypeDir, Symlink: tar.TypeSymlink, Hardlink: tar.TypeLink,
		CharDevice: tar.TypeChar, Fifo: tar.TypeFifo,
	}
	for _, e := range entries {
		h := &tar.Header{Typeflag: types[e.Kind], Name: e.Name, Linkname: e.Link, Mode: e.mode(), ModTime: time.Unix(0, 0)}
		if e.Kind == File {
			h.Size = e.size()
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if e.Kind != File {
			continue
		}
		if err := e.writeTo(tw); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return gz.Close()
}

func writeZip(w io.Writer, entries []Entry) error {
	zw := zip.NewWriter(w)
	for _, e := range entries {
		if err := writeZipEntry(zw, e); err != nil {
			return err
		}
	}
	return zw.Close()
}

func writeZipEntry(zw *zip.Writer, e Entry) error {
	h := &zip.FileHeader{Name: e.Name, Method: zip.Deflate, Flags: e.ZipFlags}
	kinds := map[Kind]fs.FileMode{
		Folder: fs.ModeDir, Symlink: fs.ModeSymlink, CharDevice: fs.ModeDevice | fs.ModeCharDevice, Fifo: fs.ModeNamedPipe,
	}
	mode := fs.FileMode(e.mode()&0o777) | kinds[e.Kind]
	if e.mode()&0o4000 != 0 {
		mode |= fs.ModeSetuid
	}
	h.SetMode(mode)
	create := zw.CreateHeader
	if e.ZipMethod != 0 || e.ZipFlags != 0 {
		h.Method = e.ZipMethod
		h.CompressedSize64, h.UncompressedSize64 = uint64(e.size()), uint64(e.size())
		create = zw.CreateRaw
	}
	out, err := create(h)
	if err != nil || e.Kind == Folder {
		return err
	}
	if e.Kind == Symlink {
		_, err := io.WriteString(out, e.Link)
		return err
	}
	return e.writeTo(out)
}

// Truncate truncates a file to a fraction of its length.
func Truncate(t testing.TB, path string, keep float64) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(float64(fi.Size())*keep)); err != nil {
		t.Fatal(err)
	}
}

// FlipBit changes one bit in the middle of a file.
func FlipBit(t testing.TB, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Build builds a real package into dir under its standard name, and returns the archive's path.
func Build(t testing.TB, dir string, spec build.Spec) string {
	t.Helper()
	format := spec.Format
	if format == "" {
		format = build.TarGz
	}
	path := filepath.Join(dir, spec.Manifest.ArchiveName(format))
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := build.Build(context.Background(), spec, f); err != nil {
		t.Fatal(err)
	}
	return path
}
