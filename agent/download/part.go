package download

import (
	"bufio"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
)

// part is a download that may have begun in an earlier process.
type part struct {
	fetcher              *Fetcher
	want                 Want
	path, checkpointPath string
	meter                *meter
	limit                *limiter
	buf                  []byte

	file disk.File
	out  *bufio.Writer // writes to the file in blocks of one size
	sum  hash.Hash     // of the first have bytes

	beginning
	// mixed means that not all bytes came from one source in this process.
	mixed bool
	// strict means that bytes from several sources were not the package. From then
	// on a part belongs to one source although the digest is known.
	strict bool
	// high is the length of the file when progress was last counted.
	high int64
	// saved is the length in the checkpoint on disk, written at savedAt.
	saved   int64
	savedAt time.Time
}

// beginning identifies the file that the part is the beginning of.
type beginning struct {
	url, tag string
	have     int64
	size     int64 // of the whole file; -1 unknown
}

func newPart(f *Fetcher, final string, want Want, m *meter) *part {
	return &part{
		fetcher: f, want: want, path: final + partSuffix, checkpointPath: final + checkpointSuffix, meter: m,
		limit: newLimiter(f.RateLimit), buf: make([]byte, bufferSize), sum: sha512.New(),
		beginning: beginning{size: want.Size}, savedAt: time.Now(),
	}
}

// open opens the part and resumes from the checkpoint of an earlier process, if there is a
// valid one.
func (p *part) open(ctx context.Context) error {
	d := p.fetcher.Disk
	file, err := d.OpenFile(op, p.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return onDisk(p.path, err)
	}
	p.file, p.out = file, bufio.NewWriterSize(file, bufferSize)
	var n checkpoint
	nerr := disk.ReadRecord(d, opCheckpoint, p.checkpointPath, checkpointKind, checkpointVersion, &n)
	if nerr == nil && n.fits(p.want) {
		ok, err := p.resume(ctx, n)
		if ok || err != nil {
			return err
		}
	}
	if !errors.Is(nerr, fs.ErrNotExist) {
		p.saved = n.Length + 1 // makes restart remove the checkpoint
	}
	return p.restart()
}

// resume truncates the part to the length in the checkpoint, and checks that the bytes
// have the digest in it.
func (p *part) resume(ctx context.Context, n checkpoint) (bool, error) {
	fi, err := p.file.Stat()
	if err != nil || fi.Size() < n.Length {
		return false, nil
	}
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return false, onDisk(p.path, err)
	}
	read, err := hashUpTo(ctx, p.sum, p.file, n.Length)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err != nil || read != n.Length || !sameDigest(digestOf(p.sum), n.SHA512) {
		return false, nil
	}
	if err := p.file.Truncate(n.Length); err != nil {
		return false, onDisk(p.path, err)
	}
	if _, err := p.file.Seek(n.Length, io.SeekStart); err != nil {
		return false, onDisk(p.path, err)
	}
	p.url, p.tag, p.have, p.size = n.URL, n.Tag, n.Length, n.Size
	if p.want.Size >= 0 {
		p.size = p.want.Size
	}
	p.saved, p.high, p.mixed = n.Length, n.Length, true
	p.meter.set(p.have, p.size)
	return true, nil
}

// restart empties the part. It removes the checkpoint before the bytes.
func (p *part) restart() error {
	if p.saved > 0 {
		if err := disk.RemoveRecord(p.fetcher.Disk, opCheckpoint, p.checkpointPath); err != nil {
			return onDisk(p.checkpointPath, err)
		}
		p.saved = 0
	}
	if err := p.file.Truncate(0); err != nil {
		return onDisk(p.path, err)
	}
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return onDisk(p.path, err)
	}
	p.out.Reset(p.file)
	p.sum.Reset()
	p.beginning, p.mixed = beginning{size: p.want.Size}, false
	p.meter.set(0, p.size)
	return nil
}

// verifiable reports whether the digest verifies the whole file in the end, so that bytes
// may come from any source.
func (p *part) verifiable() bool { return p.want.SHA512 != "" && !p.strict }

// attempt requests the missing bytes from a source, appends them, and compares the whole
// file with the wanted one. moved reports whether the file has grown.
func (p *part) attempt(ctx context.Context, s *source) (moved bool, err error) {
	p.meter.attempt()
	if p.size < 0 || p.have < p.size {
		err = watched(ctx, func(ctx context.Context, dog *watchdog) error { return p.request(ctx, dog, s) })
	}
	if moved = p.have-p.high >= MinProgress; moved {
		p.high = p.have
	}
	if err == nil {
		err = p.compare()
	}
	return moved, err
}

func (p *part) request(ctx context.Context, dog *watchdog, s *source) error {
	from, tag := p.resumeAt(s)
	a, err := p.fetcher.open(ctx, s, from, tag)
	var beyond *beyondEnd
	if errors.As(err, &beyond) {
		return p.atEnd(beyond)
	}
	if err != nil {
		return err
	}
	defer a.body.Close()
	if err := p.checkSize(a.size); err != nil {
		return err
	}
	if err := p.join(s, a); err != nil {
		return err
	}
	if err := p.checkSpace(); err != nil {
		return err
	}
	return p.copy(ctx, dog.watch(a.body), a.start, s.url.Scheme != schemeFile)
}

// resumeAt returns from which byte to request the file from a source. Without a digest only
// the source that sent the beginning is asked for the rest.
func (p *part) resumeAt(s *source) (from int64, tag string) {
	if s.raw == p.url && p.tag != "" {
		return p.have, p.tag
	}
	if p.verifiable() {
		return p.have, ""
	}
	return 0, ""
}

// atEnd handles a source that has no bytes after those that have been received.
func (p *part) atEnd(b *beyondEnd) error {
	if err := p.checkSize(b.size); err != nil {
		return err
	}
	if b.size == p.have {
		p.size = b.size // the part is the whole file, and only has to be committed
		return nil
	}
	if err := p.restart(); err != nil {
		return err
	}
	return b
}

// checkSize returns an error if size is not that of the wanted file.
func (p *part) checkSize(size int64) error {
	switch {
	case size > MaxSize:
		return refused("has %d bytes, the limit is %d: check the URL", size, int64(MaxSize))
	case size >= 0 && p.want.Size >= 0 && size != p.want.Size:
		return refused("%w (%d bytes, want %d): replace the file there by the one that was published", ErrContent, size, p.want.Size)
	}
	return nil
}

// join prepares the part for the bytes of an answer, which may be the rest of the file, the
// whole file again, or another file.
func (p *part) join(s *source, a answer) error {
	if p.have > 0 && !p.continues(s.raw, a, p.verifiable()) {
		if err := p.restart(); err != nil {
			return err
		}
		if a.start > 0 {
			return errors.New("the file at the source has changed")
		}
	}
	if p.have > 0 && s.raw != p.url {
		p.mixed = true
	}
	p.url, p.tag = s.raw, a.tag
	if p.size < 0 {
		p.size = a.size
	}
	p.meter.set(p.have, p.size)
	return nil
}

// continues reports whether an answer belongs to the file that the part is the beginning
// of. An answer from the same URL with another tag does not, even if the digest is known.
func (b beginning) continues(url string, a answer, verifiable bool) bool {
	if b.size >= 0 && a.size >= 0 && b.size != a.size {
		return false
	}
	if url != b.url {
		return verifiable
	}
	if b.tag != "" && (a.tag == b.tag || a.tag == "" && a.start > 0) {
		return true // a range without a tag: the request was for this tag
	}
	return verifiable && a.tag == b.tag
}

func (p *part) checkSpace() error {
	if p.size < 0 {
		return nil
	}
	dir := filepath.Dir(p.path)
	free, err := p.fetcher.Disk.Free(op, dir)
	if err != nil {
		return onDisk(dir, err)
	}
	if need := p.size - p.have + disk.SpaceMargin; free < need {
		return &fault{ours: true, err: fmt.Errorf("not enough disk space in %s: the download needs %d bytes, %d are free; free some and upgrade again", dir, need, free)}
	}
	return nil
}

// copy appends the new bytes of a body, whose first byte is byte at of the file.
func (p *part) copy(ctx context.Context, body io.Reader, at int64, limited bool) error {
	limit := p.limit
	if !limited {
		limit = nil
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx) // reading a file does not end with ctx
		}
		n, err := body.Read(p.buf[:limit.chunk(len(p.buf))])
		if n > 0 {
			p.meter.received(n)
			known := min(max(p.have-at, 0), int64(n))
			if werr := p.add(p.buf[known:n]); werr != nil {
				return werr
			}
			at += int64(n)
			if lerr := limit.pay(ctx, n); lerr != nil {
				return lerr
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return p.finish(at, errors.Is(err, io.EOF))
		case err != nil:
			return err
		}
	}
}

// finish handles the end of a body. orderly is false if the connection broke.
func (p *part) finish(at int64, orderly bool) error {
	if p.size < 0 && at == p.have && orderly {
		p.size = at // the source did not report the size
	}
	switch {
	case p.size >= 0 && at < p.size:
		return fmt.Errorf("the connection ended after %d of %d bytes", at, p.size)
	case p.size < 0 || at < p.have:
		return fmt.Errorf("the connection ended after %d bytes", at)
	}
	return nil
}

func (p *part) add(data []byte) error {
	limit := int64(MaxSize)
	if p.size >= 0 {
		limit = p.size
	}
	if p.have+int64(len(data)) > limit {
		return refused("sends more than the %d bytes it should have: replace the file there by the one that was published", limit)
	}
	if _, err := p.out.Write(data); err != nil {
		return onDisk(p.path, err)
	}
	p.sum.Write(data)
	p.have += int64(len(data))
	p.meter.set(p.have, p.size)
	if fresh := p.have - p.saved; fresh >= p.checkpointEvery() || fresh > 0 && time.Since(p.savedAt) >= CheckpointInterval {
		return p.save()
	}
	return nil
}

func (p *part) checkpointEvery() int64 {
	if p.fetcher.testOnlyCheckpointEvery > 0 {
		return p.fetcher.testOnlyCheckpointEvery
	}
	return CheckpointEvery
}

// save makes the bytes so far durable, and then writes the checkpoint.
func (p *part) save() error {
	p.savedAt = time.Now()
	if p.want.SHA512 == "" && p.tag == "" {
		return nil // the download could not be resumed from it
	}
	if err := p.sync(); err != nil {
		return err
	}
	n := checkpoint{Digest: p.want.SHA512, URL: p.url, Tag: p.tag, Size: p.size, Length: p.have, SHA512: digestOf(p.sum)}
	if err := disk.WriteRecord(p.fetcher.Disk, opCheckpoint, p.checkpointPath, checkpointKind, checkpointVersion, n); err != nil {
		return onDisk(p.checkpointPath, err)
	}
	p.saved = p.have
	return nil
}

func (p *part) sync() error {
	if err := p.out.Flush(); err != nil {
		return onDisk(p.path, err)
	}
	if err := p.file.Sync(); err != nil {
		return onDisk(p.path, err)
	}
	return nil
}

// compare checks that the whole file is the wanted one. If it is not and one source sent
// all of it, that source is refused. If several did, the part becomes strict.
func (p *part) compare() error {
	got := digestOf(p.sum)
	if p.want.SHA512 == "" || sameDigest(got, p.want.SHA512) {
		return nil
	}
	mixed := p.mixed
	p.strict = p.strict || mixed
	p.high = 0 // receiving it again counts as progress, at most once for each source
	if err := p.restart(); err != nil {
		return err
	}
	if mixed {
		return errors.New("the bytes of several answers are not the expected file: it is fetched again")
	}
	return refused("%w (sha512 %.16s…, want %.16s…): replace the file there by the one that was published", ErrContent, got, p.want.SHA512)
}

// commit makes the file durable under its name.
func (p *part) commit(final string) error {
	d := p.fetcher.Disk
	if err := p.sync(); err != nil {
		return err
	}
	err := p.file.Close()
	p.file = nil
	if err != nil {
		return onDisk(p.path, err)
	}
	if p.want.SHA512 == "" {
		// The record comes before the rename: without it the file is fetched again.
		done := completion{URL: p.url, Tag: p.tag, Size: p.have, SHA512: digestOf(p.sum)}
		if err := disk.WriteRecord(d, opCheckpoint, final+doneSuffix, doneKind, doneVersion, done); err != nil {
			return onDisk(final+doneSuffix, err)
		}
	}
	if err := d.Rename(op, p.path, final); err != nil {
		return onDisk(final, err)
	}
	if err := d.SyncDir(op, filepath.Dir(final)); err != nil {
		return onDisk(final, err)
	}
	// The rename must be durable first: a part without its checkpoint is discarded.
	if err := disk.RemoveCopies(d, opCheckpoint, p.checkpointPath); err != nil {
		return onDisk(p.checkpointPath, err)
	}
	return nil
}

// end closes the part, and either saves a checkpoint or removes the part. After a commit
// it does nothing.
func (p *part) end(keep bool) {
	if p.file == nil {
		return
	}
	if keep && p.have > p.saved {
		_ = p.save() // if it fails, the last checkpoint remains
	}
	_ = p.file.Close()
	p.file = nil
	if !keep {
		// The caller's Discard tries again and returns the error.
		_ = removeLeftovers(p.fetcher.Disk, strings.TrimSuffix(p.path, partSuffix))
	}
}
