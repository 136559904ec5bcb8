package build

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// container is an archive of either format.
type container interface {
	// begin starts a member; its content, if any, is written to the result.
	begin(e entry, at time.Time) (io.Writer, error)
	Close() error
}

func write(ctx context.Context, spec Spec, entries []entry, w io.Writer) error {
	at := spec.Time.UTC().Truncate(time.Second)
	if spec.Time.IsZero() {
		at = DefaultTime()
	}
	if at.Before(DefaultTime()) {
		return fmt.Errorf("time %s is before 1980, which zip cannot write", at.Format(time.RFC3339))
	}
	c, err := newContainer(spec.Format, w)
	if err != nil {
		return err
	}
	for _, e := range entries {
		out, err := c.begin(e, at)
		if err == nil && !e.isDir() {
			err = copyContent(ctx, out, e)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return c.Close()
}

func newContainer(format string, w io.Writer) (container, error) {
	switch format {
	case "", TarGz:
		// The header stays empty: no name, no time, and an unknown system.
		gz, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return nil, err
		}
		return tarGz{tar.NewWriter(gz), gz}, nil
	case Zip:
		zw := zip.NewWriter(w)
		zw.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
			return flate.NewWriter(out, flate.BestCompression)
		})
		return zipFile{zw}, nil
	}
	return nil, fmt.Errorf("format %q: want %s or %s", format, TarGz, Zip)
}

type tarGz struct {
	tar *tar.Writer
	gz  *gzip.Writer
}

func (t tarGz) begin(e entry, at time.Time) (io.Writer, error) {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode.Perm()), Size: e.size(), ModTime: at}
	if e.isDir() {
		h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
	}
	return t.tar, t.tar.WriteHeader(h)
}

func (t tarGz) Close() error {
	if err := t.tar.Close(); err != nil {
		return err
	}
	return t.gz.Close()
}

type zipFile struct{ *zip.Writer }

func (z zipFile) begin(e entry, at time.Time) (io.Writer, error) {
	h := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
	if e.isDir() {
		h.Name, h.Method = e.name+"/", zip.Store
	}
	h.SetMode(e.mode)
	return z.CreateHeader(h)
}

// copyContent writes a member's content. It fails if the file has changed since scan,
// because the hash would not match the content.
func copyContent(ctx context.Context, w io.Writer, e entry) error {
	if e.file == nil {
		_, err := io.Copy(w, bytes.NewReader(e.text))
		return err
	}
	in, err := os.Open(e.file.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), disk.Reader(ctx, io.LimitReader(in, e.file.size+1)))
	if ctx.Err() == nil && (n != e.file.size || [sha256.Size]byte(h.Sum(nil)) != e.file.digest) {
		return fmt.Errorf("%s changed while it was packed: build again when nothing writes to it", e.file.Path)
	}
	return err
}
