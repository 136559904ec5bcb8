package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

const opReadPkg = "read package"

// Archive is an open archive that [Open] has read and accepted.
type Archive struct {
	Contents

	disk    disk.Disk
	file    disk.File
	name    string // base name, for errors
	limits  limits
	scanned *contents
}

// Open opens the archive at path, and reads it to its end without writing anything. It
// refuses every archive that [Archive.Unpack] would refuse. If verify is not nil it reads the
// same bytes at the same time, and its error takes precedence: nothing is known about an
// archive that nobody trusts. The parts of a zip file are not in order, so verify reads it
// before the scan does; only its owner may write to it meanwhile.
func Open(ctx context.Context, d disk.Disk, path string, verify func(io.Reader) error) (*Archive, error) {
	return open(ctx, d, path, verify, defaultLimits())
}

func open(ctx context.Context, d disk.Disk, path string, verify func(io.Reader) error, l limits) (*Archive, error) {
	f, err := d.OpenFile(opReadPkg, path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	a := &Archive{disk: d, file: f, name: filepath.Base(path), limits: l}
	if err := a.read(ctx, verify); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return a, nil
}

// Close closes the file. It may be called again.
func (a *Archive) Close() error {
	if a == nil || a.file == nil {
		return nil
	}
	f := a.file
	a.file = nil
	return f.Close()
}

// read scans the archive while verify reads it.
func (a *Archive) read(ctx context.Context, verify func(io.Reader) error) error {
	sum, v := sha256.New(), startVerifier(verify)
	c, err := scan(ctx, a.file, io.MultiWriter(sum, v), a.limits)
	var cause error
	if err != nil && !isRefused(err) && !errors.Is(err, ErrDamaged) {
		cause = err // of the disk or ctx: the archive may be sound
	}
	if refused := v.end(cause); refused != nil && (cause == nil || !errors.Is(refused, cause)) {
		return refused
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	a.scanned = c
	a.Contents = Contents{
		Manifest:     c.manifest,
		Legacy:       c.legacy,
		Files:        c.files,
		UnpackedSize: c.unpacked,
		SHA256:       hex.EncodeToString(sum.Sum(nil)),
		Size:         v.size,
		Top:          c.top,
	}
	return nil
}

// verifier runs a verification that reads what is written to it.
type verifier struct {
	pipe *io.PipeWriter
	size int64 // bytes written
	done chan error
}

func startVerifier(verify func(io.Reader) error) *verifier {
	r, w := io.Pipe()
	v := &verifier{pipe: w, done: make(chan error, 1)}
	go func() {
		var err error
		if verify != nil {
			err = verify(r)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		// After an error the next Write fails, which ends the scan.
		_ = r.CloseWithError(err) // always nil
		v.done <- err
	}()
	return v
}

func (v *verifier) Write(p []byte) (int, error) {
	n, err := v.pipe.Write(p)
	v.size += int64(n)
	return n, err
}

// end ends the content, as if a read had failed with cause unless that is nil, and returns the
// result.
func (v *verifier) end(cause error) error {
	_ = v.pipe.CloseWithError(cause) // always nil
	return <-v.done
}
