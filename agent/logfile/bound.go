package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

const (
	// previous ends the name of the older file.
	previous = ".1"
	// maxTail bounds what [Tail] reads of a file, in bytes. It is some 5,000 lines.
	maxTail = 1 << 20
)

// Bound rotates a file that another process appends to, once it has more than maxBytes. The
// process keeps its file open, so the file is copied and emptied. Lines that are written
// between the two are lost. A full disk loses the older lines, since the bound holds in any
// case.
func Bound(d disk.Disk, path string, maxBytes int64) error {
	fi, err := d.Lstat(op, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || fi.Size() <= maxBytes {
		return err
	}
	kept := copyEnd(d, path, fi.Size(), maxBytes)
	f, err := d.OpenFile(op, path, os.O_WRONLY, 0)
	if err != nil {
		return errors.Join(kept, err)
	}
	return errors.Join(kept, f.Truncate(0), f.Close())
}

// copyEnd replaces the older file by the last bytes of the file.
func copyEnd(d disk.Disk, path string, size, maxBytes int64) error {
	in, err := d.OpenFile(op, path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := in.Seek(size-maxBytes, io.SeekStart); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	// The older file is overwritten first: its space may be what the copy needs.
	out, err := d.OpenFile(op, path+previous, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = io.CopyN(out, in, maxBytes)
	return errors.Join(err, out.Close())
}

// Tail returns the last lines of the file and the older one, oldest first: at most lines,
// and at most 1 MiB of each file. Files that do not exist have no lines.
func Tail(d disk.Disk, path string, lines int) ([]string, error) {
	lines = max(lines, 0)
	var out []string
	for _, name := range []string{path, path + previous} {
		if len(out) >= lines {
			break
		}
		older, err := lastLines(d, name)
		if err != nil {
			return nil, err
		}
		out = append(older, out...)
	}
	return out[max(0, len(out)-lines):], nil
}

func lastLines(d disk.Disk, path string) ([]string, error) {
	f, err := d.OpenFile(op, path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(max(0, size-maxTail), io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTail))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if size > maxTail { // the first line is not complete
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	var out []string
	for line := range bytes.Lines(b) {
		out = append(out, string(bytes.TrimRight(line, "\r\n")))
	}
	return out, nil
}
