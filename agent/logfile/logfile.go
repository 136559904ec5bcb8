// Package logfile implements the agent's log file, which is rotated: there is at most
// one older file, and both are bounded.
package logfile

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// DefaultMaxBytes is some 50,000 lines, weeks of an idle agent.
const DefaultMaxBytes = 10 << 20

const op = "agent log"

// File is an open log file. It is safe for concurrent use.
type File struct {
	disk disk.Disk
	path string
	max  int64

	mu     sync.Mutex
	file   disk.File // nil: it could not be opened yet
	size   int64
	closed bool
}

// Open opens or creates the log file at path. maxBytes 0 means
// [DefaultMaxBytes]. If the disk cannot be written, Open returns the error and a File whose lines are
// lost until it can: whoever logs may be the one that says so.
func Open(d disk.Disk, path string, maxBytes int64) (*File, error) {
	if maxBytes <= 0 {
		maxBytes = DefaultMaxBytes
	}
	f := &File{disk: d, path: path, max: maxBytes}
	err := d.MkdirAll(op, filepath.Dir(path), 0o755)
	if err == nil {
		err = f.open()
	}
	if err != nil && !disk.IsUnwritable(err) {
		return nil, err
	}
	return f, err
}

func (f *File) open() error {
	file, err := f.disk.OpenFile(op, f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	f.file, f.size = file, size
	return nil
}

// Write appends one line. slog drops the error, so a full disk only loses log lines.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, os.ErrClosed
	}
	if f.file == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	if f.size > 0 && f.size+int64(len(p)) > f.max {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(p)
	f.size += int64(n)
	return n, err
}

func (f *File) rotate() error {
	if err := f.file.Close(); err != nil {
		return err
	}
	f.file = nil
	rerr := f.disk.Rename(op, f.path, f.path+previous)
	// Reopen after a failed rename too: a file above its bound is better than none.
	if err := f.open(); err != nil {
		return err
	}
	return rerr
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
