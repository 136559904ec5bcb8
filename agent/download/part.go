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

	"github.com/muster-fleet/muster/packaging/host/disk"
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
	// on a part belongs to one source.
	strict bool
	// high is the length of the file when progress was last counted.
	high int64
	// saved is the length in the checkpoint on disk, written at savedAt.
	saved   int64
	savedAt time.Time
}

// beginning is what the part has, and the source and tag of the last answer.
type beginning struct {
	url, tag string
	have     int64
}

func newPart(f *Fetcher, final string, want Want, m *meter) *part {
	return &part{
		fetcher: f, want: want, path: final + partSuffix, checkpointPath: final + checkpointSuffix, meter: m,
		limit: newLimiter(f.RateLimit), buf: make([]byte, bufferSize), sum: sha512.New(),
		savedAt: time.Now(),
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
	p.beginning = beginning{url: n.URL, tag: n.Tag, have: n.Length}
	p.saved, p.high, p.mixed = n.Length, n.Length, true
	p.meter.set(p.have)
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
	p.beginning, p.mixed = beginning{}, false
	p.meter.set(0)
	return nil
}

// attempt requests the missing bytes from a source, appends them, and compares the whole
// file with the wanted one. moved reports whether the file has grown.
func (p *part) attempt(ctx context.Context, s *source) (moved bool, err error) {
	p.meter.attempt()
	if p.have < p.want.Size {
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
	if err != nil {
		return err
	}
	defer a.body.Close()
	if a.size >= 0 && a.size != p.want.Size {
		return refused("%w (%d bytes, want %d): replace the file there by the one that was published", ErrContent, a.size, p.want.Size)
	}
	if err := p.join(s, a); err != nil {
		return err
	}
	if err := p.checkSpace(); err != nil {
		return err
	}
	return p.copy(ctx, dog.watch(a.body), a.start, s.url.Scheme != schemeFile)
}

// resumeAt returns from which byte to request the file from a source. Only the source that
// sent the beginning of a strict part is asked for the rest.
func (p *part) resumeAt(s *source) (from int64, tag string) {
	if s.raw == p.url && p.tag != "" {
		return p.have, p.tag
	}
	if p.strict {
		return 0, ""
	}
	return p.have, ""
}

// join prepares the part for the bytes of an answer, which may be the rest of the file, the
// whole file again, or another file.
func (p *part) join(s *source, a answer) error {
	if p.have > 0 && !p.continues(s.raw, a, p.strict) {
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
	return nil
}

// continues reports whether an answer belongs to the file that the part is the beginning
// of. An answer from the same URL with another tag does not. To a strict part only an answer
// from its URL with its tag belongs.
func (b beginning) continues(url string, a answer, strict bool) bool {
	if url != b.url {
		return !strict
	}
	if b.tag != "" && (a.tag == b.tag || a.tag == "" && a.start > 0) {
		return true // a range without a tag: the request was for this tag
	}
	return !strict && a.tag == b.tag
}

func (p *part) checkSpace() error {
	dir := filepath.Dir(p.path)
	free, err := p.fetcher.Disk.Free(op, dir)
	if err != nil {
		return onDisk(dir, err)
	}
	if need := p.want.Size - p.have + disk.SpaceMargin; free < need {
		return &fault{ours: true, err: fmt.Errorf("%w in %s: the download needs %d bytes, %d are free; free some and upgrade again", disk.ErrNoSpace, dir, need, free)}
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
			if at < p.want.Size {
				return fmt.Errorf("the connection ended after %d of %d bytes", at, p.want.Size)
			}
			return nil
		case err != nil:
			return err
		}
	}
}

func (p *part) add(data []byte) error {
	if p.have+int64(len(data)) > p.want.Size {
		return refused("%w (more than %d bytes): replace the file there by the one that was published", ErrContent, p.want.Size)
	}
	if _, err := p.out.Write(data); err != nil {
		return onDisk(p.path, err)
	}
	p.sum.Write(data)
	p.have += int64(len(data))
	p.meter.set(p.have)
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
	if err := p.sync(); err != nil {
		return err
	}
	n := checkpoint{Digest: p.want.SHA512, URL: p.url, Tag: p.tag, Length: p.have, SHA512: digestOf(p.sum)}
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
	if sameDigest(got, p.want.SHA512) {
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
