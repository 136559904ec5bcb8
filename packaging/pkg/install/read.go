package install

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zip"
	"github.com/mholt/archiver/v4"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// archiveFile is the part of disk.File that reading an archive needs.
type archiveFile interface {
	io.Reader
	io.Seeker
}

// read calls visit for every entry in order. The content of an entry is valid until
// visit returns. The first bytes determine the format, never a name. read copies the whole
// archive to raw, also a refused one: the very bytes that it reads of a tar.gz, and those of a
// zip file, whose parts are not in order, before it reads them.
func read(ctx context.Context, f archiveFile, raw io.Writer, l limits, visit func(checkedEntry, io.Reader) error) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	magic := make([]byte, 4)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	n, err := io.ReadFull(f, magic)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	b := &budget{entries: l.entries, maxEntries: l.entries, bytes: l.forArchive(size), elastic: l.elastic}
	stream := io.TeeReader(disk.Reader(ctx, f), raw)
	rest := func(err error) error {
		_, cerr := io.Copy(io.Discard, stream)
		return cmp.Or(err, cerr)
	}
	switch magic = magic[:n]; {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return rest(damaged(readTarGz(ctx, stream, b, visit)))
	case bytes.Equal(magic, []byte("PK\x03\x04")):
		if err := rest(nil); err != nil {
			return err
		}
		return damaged(readZip(ctx, f, b, visit))
	}
	return rest(&RefusedError{Why: "it is neither a tar.gz nor a zip file"})
}

// readTarGz limits the output of the decompressor, not only the content of the
// entries: a tar file can hide any amount of zeros between them.
func readTarGz(ctx context.Context, archive io.Reader, b *budget, visit func(checkedEntry, io.Reader) error) error {
	stream, err := archiver.Gz{}.OpenReader(archive)
	if err != nil {
		return err
	}
	defer stream.Close()
	limited := &budgetReader{r: stream, budget: b}
	if err := (archiver.Tar{}).Extract(ctx, limited, b.handler(visit)); err != nil {
		return err
	}
	// The checksum is at the end of the stream, behind the end of the tar.
	_, err = io.Copy(io.Discard, limited)
	return err
}

func readZip(ctx context.Context, f archiveFile, b *budget, visit func(checkedEntry, io.Reader) error) error {
	source := &seekingReaderAt{f: f, directory: maxZipDirectory}
	limitedVisit := func(e checkedEntry, content io.Reader) error {
		return visit(e, &budgetReader{r: disk.Reader(ctx, content), budget: b})
	}
	handle := b.handler(limitedVisit)
	return archiver.Zip{}.Extract(ctx, source, func(ctx context.Context, f archiver.FileInfo) error {
		source.directoryRead = true
		return handle(ctx, f)
	})
}

// budget holds what remains of the limits while an archive is read.
type budget struct {
	entries    int
	maxEntries int
	bytes      int64
	elastic    bool // see InspectElastic
}

func (b *budget) handler(visit func(checkedEntry, io.Reader) error) archiver.FileHandler {
	return func(_ context.Context, f archiver.FileInfo) error {
		if b.entries--; b.entries < 0 {
			return &RefusedError{f.NameInArchive, fmt.Sprintf("is one too many: a package has at most %d entries", b.maxEntries)}
		}
		if b.elastic && isTopLink(f) {
			return nil
		}
		e, err := checkEntry(f)
		if err != nil {
			return err
		}
		if e.dir {
			return visit(e, bytes.NewReader(nil))
		}
		content, err := f.Open()
		if err != nil {
			return err
		}
		defer content.Close()
		return visit(e, content)
	}
}

// budgetReader fails once it has read more bytes than the archive may unpack to.
type budgetReader struct {
	r      io.Reader
	budget *budget
}

func (l *budgetReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.budget.bytes -= int64(n); l.budget.bytes < 0 {
		return 0, &RefusedError{Why: fmt.Sprintf(
			"it unpacks to too much: a package may grow to %d times its size and to %d GiB at most", MaxRatio, MaxUnpacked>>30)}
	}
	return n, err
}

// damaged wraps errors that mean a broken archive with [ErrDamaged], so that callers
// can distinguish an archive to fetch again from a refused one and a failing disk.
func damaged(err error) error {
	if err == nil || isRefused(err) {
		return err
	}
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) {
		return fmt.Errorf("%w (%w)", ErrDamaged, err)
	}
	for _, broken := range []error{
		io.ErrUnexpectedEOF, io.EOF, tar.ErrHeader, tar.ErrFieldTooLong,
		gzip.ErrHeader, gzip.ErrChecksum, zip.ErrFormat, zip.ErrChecksum, zip.ErrAlgorithm,
	} {
		if errors.Is(err, broken) {
			return fmt.Errorf("%w (%w)", ErrDamaged, err)
		}
	}
	return err
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// maxZipDirectory bounds in bytes the directory of a zip file, which the library
// reads into memory before the first entry. MaxEntries entries with names of usual
// length take a tenth of it.
const maxZipDirectory = 16 << 20

// seekingReaderAt implements the io.ReaderAt that zip needs on a file that can only
// seek. It is not safe for concurrent use.
type seekingReaderAt struct {
	f             archiveFile
	directory     int64 // what may still be read before directoryRead
	directoryRead bool
}

func (s *seekingReaderAt) Read(p []byte) (int, error)                { return s.f.Read(p) }
func (s *seekingReaderAt) Seek(off int64, whence int) (int64, error) { return s.f.Seek(off, whence) }

func (s *seekingReaderAt) ReadAt(p []byte, off int64) (int, error) {
	if _, err := s.f.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(s.f, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	if s.directory -= int64(n); s.directory < 0 && !s.directoryRead {
		return 0, &RefusedError{Why: fmt.Sprintf("its directory of entries has more than %d MiB", maxZipDirectory>>20)}
	}
	return n, err
}
