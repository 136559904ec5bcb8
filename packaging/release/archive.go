package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// serverArchive makes the archive of the server, for systems without a package. Its files are
// those of the package, without the scripts of package managers.
func (r *release) serverArchive(p programs) (err error) {
	k, err := r.serverPackage(p)
	if err != nil {
		return err
	}
	top := fmt.Sprintf("muster-%s-linux-%s", r.Version, p.arch)
	list := []file{
		{path.Join(top, "muster"), p.server, "", 0o755},
		{path.Join(top, "LICENSE"), filepath.Join(r.Root, "LICENSE"), "", 0o644},
		{path.Join(top, "completions", "_muster"), k.zsh, "", 0o644},
	}
	for _, f := range k.files {
		name := path.Base(f.to)
		switch dir := path.Dir(f.to); {
		case strings.HasPrefix(dir, "/usr/share/man"):
			name = path.Join("man", name)
		case strings.Contains(dir, "completions"):
			name = path.Join("completions", name)
		case strings.HasSuffix(dir, ".d"):
			name = path.Join(path.Base(dir), name)
		case strings.HasPrefix(dir, "/usr/libexec"), strings.HasPrefix(dir, "/usr/share/doc"):
			continue
		}
		list = append(list, file{path.Join(top, name), f.from, "", f.mode})
	}
	out, err := os.Create(filepath.Join(r.dir, top+".tar.gz"))
	if err != nil {
		return err
	}
	return errors.Join(r.writeArchive(out, list), out.Close())
}

// writeArchive writes files sorted by name, of root, and all of the same time.
func (r *release) writeArchive(w io.Writer, list []file) error {
	slices.SortFunc(list, func(a, b file) int { return strings.Compare(a.to, b.to) })
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, f := range list {
		if err := r.addToArchive(t, f); err != nil {
			return fmt.Errorf("%s: %w", f.to, err)
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func (r *release) addToArchive(t *tar.Writer, f file) error {
	in, err := os.Open(f.from)
	if err != nil {
		return err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.to, Mode: int64(f.mode), Size: fi.Size(), ModTime: r.Time, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(t, in)
	return err
}
