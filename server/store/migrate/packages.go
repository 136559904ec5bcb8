package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Packages calls put with the bytes of all packages of a store, except those for which have
// returns true. The bytes are in folder, in files named by their SHA-256. Packages returns
// the names of packages whose bytes are missing from the folder. That is no error, because
// agents could not download them before either.
func Packages(ctx context.Context, from store.Store, folder string, have func(sha256 string) bool,
	put func(ctx context.Context, sha256 string, size int64, r io.Reader) error, report func(Step),
) (lost []string, err error) {
	const name = "package bytes"
	list, total, err := from.Packages().List(ctx, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for i, p := range list {
		if !have(p.SHA256) {
			err := retry(ctx, func() error { return putPackage(ctx, folder, p, put) })
			switch {
			case errors.Is(err, fs.ErrNotExist):
				lost = append(lost, p.File)
			case err != nil:
				return lost, fmt.Errorf("%s: %s: %w", name, p.File, err)
			}
		}
		report(Step{Noun: name, Done: i + 1, Total: total})
	}
	report(Step{Noun: name, Done: total, Total: total, Ended: true})
	return lost, nil
}

func putPackage(ctx context.Context, folder string, p fleet.Package, put func(context.Context, string, int64, io.Reader) error) error {
	f, err := os.Open(filepath.Join(folder, p.SHA256))
	if err != nil {
		return err
	}
	defer f.Close()
	return put(ctx, p.SHA256, p.Size, f)
}

// Uploads copies the bytes of uploads, which are in folder, in files named by the SHA-256 of
// their chunks. It skips missing ones: whoever wants the file requests it again.
func Uploads(ctx context.Context, from store.Store, folder string, have func(sha256 string) bool,
	put func(ctx context.Context, sha256 string, size int64, r io.Reader) error, report func(Step),
) error {
	const name = "upload bytes"
	list, total, err := from.Uploads().List(ctx, 0, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for i, u := range list {
		for _, c := range u.Chunks {
			if c.Key == "" || have(c.Key) {
				continue
			}
			err := retry(ctx, func() error { return putChunk(ctx, folder, c.Key, put) })
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s: %s: %w", name, u.ID, err)
			}
		}
		report(Step{Noun: name, Done: i + 1, Total: total})
	}
	report(Step{Noun: name, Done: total, Total: total, Ended: true})
	return nil
}

func putChunk(ctx context.Context, folder, key string, put func(context.Context, string, int64, io.Reader) error) error {
	f, err := os.Open(filepath.Join(folder, key))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return put(ctx, key, info.Size(), f)
}
