package packagecmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/term"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/terminal"
)

// writeAtomically writes a file that may be too large for memory. It appears under its
// name once it is complete and durable, or not at all.
func writeAtomically(path string, perm fs.FileMode, fill func(io.Writer) error) error {
	d, op := disk.OS{}, "write "+filepath.Base(path)
	if err := d.MkdirAll(op, filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + ".new"
	if err := d.Remove(op, tmp); err != nil {
		return err
	}
	f, err := d.OpenFile(op, tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = d.Rename(op, tmp, path)
	}
	if err != nil {
		return errors.Join(err, d.Remove(op, tmp))
	}
	return d.SyncDir(op, filepath.Dir(path))
}

// progressEvery is how often the progress line is redrawn: often enough to show activity,
// seldom enough not to flicker.
const progressEvery = 200 * time.Millisecond

// Progress shows how many bytes have been processed, in one line. It prints only to a
// terminal.
type Progress struct {
	w            io.Writer // nil if it is not a terminal
	what         string
	bytes, total int64 // total is 0 if it is not known
	next         time.Time
}

// NewProgress returns the progress of what is done with a total of bytes; 0: it is not known.
func NewProgress(w io.Writer, what string, total int64) *Progress {
	p := &Progress{what: terminal.EscapeLine(what), total: total, next: time.Now().Add(progressEvery)}
	if f, ok := terminal.Raw(w).(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = f
	}
	return p
}

func (p *Progress) add(n int) {
	p.bytes += int64(n)
	if now := time.Now(); p.w != nil && now.After(p.next) {
		p.next = now.Add(progressEvery)
		done := SizeText(p.bytes)
		if p.total > 0 {
			done = fmt.Sprintf("%d %%", p.bytes*100/p.total)
		}
		fmt.Fprintf(p.w, "\r\x1b[K%s: %s", p.what, done)
	}
}

// Done removes the line.
func (p *Progress) Done() {
	if p.w != nil {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

func (p *Progress) writer(w io.Writer) io.Writer { return progressWriter{w, p} }

// Reader counts what is read of r.
func (p *Progress) Reader(r io.Reader) io.Reader {
	return io.TeeReader(r, progressWriter{io.Discard, p})
}

type progressWriter struct {
	w io.Writer
	p *Progress
}

func (w progressWriter) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	w.p.add(n)
	return n, err
}

// progressDisk counts the bytes read of an archive.
type progressDisk struct {
	disk.OS
	p *Progress
}

func (d progressDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := d.OS.OpenFile(op, path, flag, perm)
	if err != nil {
		return nil, err
	}
	return progressFile{f, d.p}, nil
}

type progressFile struct {
	disk.File
	p *Progress
}

func (f progressFile) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	f.p.add(n)
	return n, err
}

func filesText(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

// SizeText returns a number of bytes for people.
func SizeText(n int64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case n >= mib:
		return fmt.Sprintf("%.1f MiB", float64(n)/mib)
	case n >= kib:
		return fmt.Sprintf("%.1f KiB", float64(n)/kib)
	}
	return fmt.Sprintf("%d bytes", n)
}
